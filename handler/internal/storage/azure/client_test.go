package azure

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
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
	"asynccaller/handler/internal/storage/storagetest"
	"asynccaller/handler/tools/azurite"
)

// shared is the Azurite of the package, unless no test needs one.
var shared struct {
	start  sync.Once
	server *azurite.Server
	err    error
}

// withAzurite runs the tests, and then stops the Azurite.
type withAzurite struct{ *testing.M }

func (m withAzurite) Run() (code int) {
	code = m.M.Run()
	if shared.server == nil {
		return code
	}
	if err := shared.server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// mustConnect returns the connection to the Azurite of the package. Each test uses names of its own.
func mustConnect(t *testing.T) Connection {
	t.Helper()
	shared.start.Do(func() { shared.server, shared.err = azurite.Start(context.Background(), azurite.Options{}) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	settings := []string{"AzureWebJobsStorage=" + shared.server.ConnectionString}
	conn, err := ParseConnection(settings, "AzureWebJobsStorage")
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(withAzurite{m}) }

func TestConformance(t *testing.T) {
	t.Parallel()
	conn := mustConnect(t)
	storagetest.Run(t, func(t *testing.T) storage.Queues { return mustOpen(t, conn) })
}

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
	mustBe(t, nil, putError(t.Context(), store))
}

func TestNewCredential(t *testing.T) {
	application := Identity{TenantID: "tenant", ClientID: "id", ClientSecret: "secret"}
	for name, test := range map[string]struct {
		identity Identity
		want     func(azcore.TokenCredential) bool
	}{
		"managed":     {Identity{ManagedIdentity: true, ClientID: "id"}, is[*azidentity.ManagedIdentityCredential]},
		"application": {application, is[*azidentity.ClientSecretCredential]},
		"default":     {Identity{}, is[*azidentity.DefaultAzureCredential]},
	} {
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
	const endpoint = "https://acct.queue.core.windows.net"
	for _, conn := range []Connection{
		{Endpoint: endpoint, AccountName: "acct", AccountKey: "canary!"},
		{Endpoint: endpoint, Identity: Identity{TenantID: "a/b", ClientID: "id", ClientSecret: "canary"}},
	} {
		_, err := Open(conn)
		if err == nil || !strings.HasPrefix(err.Error(), "open queue storage: ") {
			t.Errorf("error %v, want one that names the operation", err)
		}
		mustHideSecrets(t, err)
	}
}

func TestTransport(t *testing.T) {
	for endpoint, want := range map[string]time.Duration{
		"http://127.0.0.1:10001/devstoreaccount1": azuriteIdleTimeout,
		"http://[::1]:10001/devstoreaccount1":     azuriteIdleTimeout,
		"https://localhost/devstoreaccount1":      azuriteIdleTimeout,
		"http://azurite:10001/devstoreaccount1":   idleTimeout,
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
