package azure

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"asynccaller/handler/internal/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// credentialFunc is a credential without a server.
type credentialFunc func(policy.TokenRequestOptions) (azcore.AccessToken, error)

func (f credentialFunc) GetToken(_ context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return f(o)
}

func (f credentialFunc) credential(Identity) (azcore.TokenCredential, error) { return f, nil }

func TestIdentitySendsBearerToken(t *testing.T) {
	var asked []policy.TokenRequestOptions
	cred := credentialFunc(func(o policy.TokenRequestOptions) (azcore.AccessToken, error) {
		asked = append(asked, o)
		return azcore.AccessToken{Token: "the-token", ExpiresOn: time.Now().Add(time.Hour)}, nil
	})
	var authorization, agent string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		authorization, agent = r.Header.Get("Authorization"), r.Header.Get("User-Agent")
		w.Header().Set("x-ms-approximate-messages-count", "7")
	}))
	t.Cleanup(server.Close)
	store, err := open(Connection{Endpoint: server.URL}, cred.credential, server.Client())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if count, err := store.Count(t.Context(), "async-caller"); err != nil || count != 7 {
			t.Fatalf("Count = %d, %v; want 7", count, err)
		}
	}
	if authorization != "Bearer the-token" {
		t.Errorf("Authorization: %q, want the bearer token", authorization)
	}
	if !strings.HasPrefix(agent, applicationID) {
		t.Errorf("User-Agent: %q, want it to begin with %q", agent, applicationID)
	}
	if len(asked) != 1 {
		t.Fatalf("asked %d times for a token that lives an hour, want once", len(asked))
	}
	if diff := cmp.Diff([]string{"https://storage.azure.com/.default"}, asked[0].Scopes); diff != "" {
		t.Errorf("scopes (-want +got):\n%s", diff)
	}
}

// A token must not be sent without TLS.
func TestIdentityNeverOverHTTP(t *testing.T) {
	url := startServer(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was made") })
	cred := credentialFunc(func(policy.TokenRequestOptions) (azcore.AccessToken, error) {
		return azcore.AccessToken{Token: "canary", ExpiresOn: time.Now().Add(time.Hour)}, nil
	})
	store, err := open(Connection{Endpoint: url}, cred.credential, http.DefaultClient)
	if err != nil {
		t.Fatal(err)
	}
	err = putError(t.Context(), store)
	mustBeTemporary(t, "identity", err, nil)
	mustHideSecrets(t, err)
}

// A failure of Microsoft Entra is one line and temporary: the endpoint of a managed identity can be late.
func TestIdentityNoToken(t *testing.T) {
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost,
		"https://login.example/tenant/token?code=canary", nil)
	refusal := &azidentity.AuthenticationFailedError{RawResponse: &http.Response{
		StatusCode: http.StatusUnauthorized, Status: "401 Unauthorized", Request: request,
		Body: io.NopCloser(strings.NewReader(`{"error":"invalid_client","error_description":"AADSTS7000215: ` +
			`Invalid client secret provided."}`)),
	}}
	cred := credentialFunc(func(policy.TokenRequestOptions) (azcore.AccessToken, error) {
		return azcore.AccessToken{}, refusal
	})
	store, err := open(Connection{Endpoint: "https://acct.queue.core.windows.net"}, cred.credential,
		newHTTPClient(http.DefaultTransport))
	if err != nil {
		t.Fatal(err)
	}
	err = putError(t.Context(), store)
	var got *azidentity.AuthenticationFailedError
	if !errors.As(err, &got) || got != refusal {
		t.Errorf("error %v does not wrap the credential's", err)
	}
	text := err.Error()
	if strings.ContainsAny(text, "\n\t") || len(text) > 2*maxErrorText || strings.Contains(text, "canary") {
		t.Errorf("the error is not one short line: %q", text)
	}
	if !strings.Contains(text, "AADSTS7000215") {
		t.Errorf("error %q does not say what Microsoft Entra said", text)
	}
	for _, kind := range []error{storage.ErrNoQueue, storage.ErrStale, storage.ErrRefused} {
		if errors.Is(err, kind) {
			t.Errorf("error %q is %q", err, kind)
		}
	}
}

func TestNewCredential(t *testing.T) {
	tests := map[string]struct {
		identity Identity
		want     func(azcore.TokenCredential) bool
	}{
		"managed":       {Identity{ManagedIdentity: true}, is[*azidentity.ManagedIdentityCredential]},
		"user_assigned": {Identity{ManagedIdentity: true, ClientID: "id"}, is[*azidentity.ManagedIdentityCredential]},
		"resource": {
			Identity{ManagedIdentity: true, ResourceID: "/subscriptions/s"},
			is[*azidentity.ManagedIdentityCredential],
		},
		"application": {
			Identity{TenantID: "tenant", ClientID: "id", ClientSecret: "secret"},
			is[*azidentity.ClientSecretCredential],
		},
		"default": {Identity{}, is[*azidentity.DefaultAzureCredential]},
	}
	for name, test := range tests {
		if got, err := newCredential(test.identity); err != nil || !test.want(got) {
			t.Errorf("%s: %T, %v", name, got, err)
		}
	}
}

func is[T azcore.TokenCredential](cred azcore.TokenCredential) bool {
	_, ok := cred.(T)
	return ok
}

func TestOpenProblems(t *testing.T) {
	for name, conn := range map[string]Connection{
		"key": {Endpoint: "https://acct.queue.core.windows.net", AccountName: "acct", AccountKey: "canary!"},
		"tenant": {
			Endpoint: "https://acct.queue.core.windows.net",
			Identity: Identity{TenantID: "a/b", ClientID: "id", ClientSecret: "canary"},
		},
	} {
		store, err := Open(conn)
		if err == nil {
			t.Errorf("%s: got %v, want an error", name, store)
			continue
		}
		if !strings.HasPrefix(err.Error(), "open queue storage: ") {
			t.Errorf("%s: error %q does not name the operation", name, err)
		}
		mustHideSecrets(t, err)
	}
}

func TestTransport(t *testing.T) {
	for endpoint, want := range map[string]time.Duration{
		"http://127.0.0.1:10001/devstoreaccount1": azuriteIdleTimeout,
		"http://[::1]:10001/devstoreaccount1":     azuriteIdleTimeout,
		"https://localhost/devstoreaccount1":      azuriteIdleTimeout,
		"https://acct.queue.core.windows.net":     idleTimeout,
		"http://azurite:10001/devstoreaccount1":   idleTimeout,
		"://":                                     idleTimeout,
	} {
		transport := NewTransport(endpoint)
		if transport.IdleConnTimeout != want {
			t.Errorf("%s: idle timeout %s, want %s", endpoint, transport.IdleConnTimeout, want)
		}
		if transport.MaxConnsPerHost != storage.MaxConnections ||
			transport.MaxIdleConnsPerHost != storage.MaxConnections {
			t.Errorf("%s: connections are not bounded and kept", endpoint)
		}
		if transport.Protocols.HTTP2() || !transport.Protocols.HTTP1() {
			t.Errorf("%s: protocols %v, want HTTP/1.1 only", endpoint, transport.Protocols)
		}
	}
}

// TestTryAfterSilence checks that a try that follows one without an answer uses a new connection. The network drops
// idle connections without telling, and several requests in flight leave several of them.
func TestTryAfterSilence(t *testing.T) {
	const pool = 8
	type connection struct{}
	var opened, silent atomic.Int64 // connections are numbered; those up to silent do not answer
	ended := make(chan struct{})
	arrived, pooled := make(chan struct{}, pool), make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Value(connection{}).(int64) <= silent.Load() {
			<-ended
			return
		}
		if r.Method == http.MethodGet {
			arrived <- struct{}{}
			<-pooled
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "<QueueMessagesList><QueueMessage><MessageId>1</MessageId>"+
			"<PopReceipt>1</PopReceipt></QueueMessage></QueueMessagesList>")
	}))
	server.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, connection{}, opened.Add(1))
	}
	server.Start()
	t.Cleanup(server.Close)
	defer close(ended)
	store := mustOpen(t, connections(server.URL)["key"])
	var group sync.WaitGroup
	for range pool {
		group.Go(func() { _, _ = store.Count(t.Context(), "async-caller") })
	}
	for range pool {
		<-arrived
	}
	close(pooled)
	group.Wait()
	silent.Store(opened.Load())
	tries := 0
	err := storage.Persist(t.Context(), 100*time.Millisecond, func(ctx context.Context) error {
		tries++
		return putError(ctx, store)
	})
	if err != nil || tries != 2 || silent.Load() < pool {
		t.Errorf("%d tries with %d silent connections in the pool: %v; want 2", tries, silent.Load(), err)
	}
}

func TestNamesAllPages(t *testing.T) {
	url := startServer(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.Query().Get("prefix"); got != "async" {
			t.Errorf("asked for prefix %q, want async", got)
		}
		page := `<Queue><Name>async-c</Name></Queue><Queue><Name>async-a</Name></Queue></Queues>` +
			`<NextMarker>next</NextMarker>`
		if r.URL.Query().Get("marker") == "next" {
			page = `<Queue><Name>async-b</Name></Queue></Queues><NextMarker/>`
		}
		_, _ = io.WriteString(w, "<EnumerationResults><Queues>"+page+"</EnumerationResults>")
	})
	got, err := mustOpen(t, connections(url)["key"]).Names(t.Context(), "async")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"async-a", "async-b", "async-c"}, got); diff != "" {
		t.Errorf("Names (-want +got):\n%s", diff)
	}
}
