package azure

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"asynccaller/handler/internal/plain/secret"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/tools/freeport"
)

// TestAdvice: the advice fits what went wrong on the way to the account.
func TestAdvice(t *testing.T) {
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	nobody, err := freeport.Address(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	get := func(address, proxy string) error {
		transport := NewTransport(address)
		if proxy != "" {
			transport.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: proxy})
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := (&http.Client{Transport: transport}).Do(request)
		if err == nil {
			_ = response.Body.Close()
			t.Fatalf("GET %s: no error", address)
		}
		return describe("list queues", err)
	}
	unwilling := httptest.NewServer(http.NotFoundHandler())
	defer unwilling.Close()
	elsewhere := &net.OpError{Op: "dial", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 4)}, Err: syscall.ECONNREFUSED}
	lookup := func(name string) error {
		return describe("list queues", &url.Error{Op: "Get", URL: "https://" + name, Err: &net.OpError{
			Op: "dial", Err: &net.DNSError{Err: "no such host", Name: name, IsNotFound: true},
		}})
	}
	for name, row := range map[string]struct {
		err  error
		want string
	}{
		"refused_here":       {get("http://"+nobody, ""), "start Azurite"},
		"refused_on_windows": {fmt.Errorf("list queues: %w", syscall.Errno(10061)), "start Azurite"},
		"refused_elsewhere":  {fmt.Errorf("list queues: %w", elsewhere), "private endpoints"},
		"refused_by_proxy":   {get("https://acme.queue.core.windows.net", nobody), "HTTPS_PROXY"},
		"refused_at_proxy":   {get("https://acme.queue.core.windows.net", unwilling.Listener.Addr().String()), "NO_PROXY"},
		"certificate":        {get(secure.URL, ""), "SSL_CERT_FILE"},
		"no_such_account":    {lookup("acme.queue.core.windows.net"), "premium block blobs"},
		"no_such_host":       {lookup("acme.blob.core.windows.net"), ""},
		"other":              {errors.New("no answer"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := Advice(row.err, Roles)
			isOther := row.want == "" && got != ""
			if !strings.Contains(got, row.want) || isOther {
				t.Errorf("%v: advice %q, want %q", row.err, got, row.want)
			}
		})
	}
}

// TestAdviceOnDenial: the credential in force decides what to do. A SAS needs no role, because it has no identity.
func TestAdviceOnDenial(t *testing.T) {
	const (
		failed, permission = "AuthenticationFailed", "AuthorizationPermissionMismatch"
		valid              = "&st=2026-01-01&se=2099-01-01T00:00Z"
	)
	var code string
	address := startServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", "Thu, 26 Nov 2026 12:00:00 GMT")
		answerWith(http.StatusForbidden, code)(w, r)
	})
	signed := func(more string) Connection { return Connection{Endpoint: address, SAS: secret.Text(canarySAS + more)} }
	key := connections(address)["key"]
	for name, test := range map[string]struct {
		conn       Connection
		code, want string
	}{
		"expired":          {signed("&se=2026-11-26T11:59:59Z"), failed, "has expired at 2026-11-26T11:59:59Z (se)"},
		"expired_minutes":  {signed("&se=2026-11-26T12:00Z"), failed, "has expired"},
		"expired_offset":   {signed("&se=2026-11-26T13:00:00%2B01:00"), failed, "has expired at 2026-11-26T12:00:00Z"},
		"expired_fraction": {signed("&se=2026-11-26T11:59:59.1234567Z"), failed, "has expired"},
		"expired_day":      {signed("&se=2026-11-26"), "AuthorizationFailure", "has expired at 2026-11-26T00:00:00Z"},
		"not_yet":          {signed("&st=2026-11-26T12:00:01Z"), failed, "is not valid before 2026-11-26T12:00:01Z"},
		"https_only":       {signed(valid + "&spr=https"), "AuthorizationProtocolMismatch", "permits only https (spr)"},
		"service":          {signed(valid), "AuthorizationServiceMismatch", "lacks a service (ss): create"},
		"resource_type":    {signed(valid), "AuthorizationResourceTypeMismatch", "lacks a resource type (srt)"},
		"permission":       {signed(valid), permission, "lacks a permission (sp): create an account SAS with ss=bqt"},
		"address":          {signed(valid), "AuthorizationSourceIPMismatch", "address of this machine (sip)"},
		"wrong_signature":  {signed(valid), failed, "the key that signed the SAS"},
		"policy":           {signed(""), failed, "the key that signed the SAS"},
		"firewall":         {signed(valid), "AuthorizationFailure", "the account's firewall"},
		"no_keys":          {key, "KeyBasedAuthenticationNotPermitted", "remove AzureWebJobsStorage, which takes"},
		"no_sas":           {signed(valid), "KeyBasedAuthenticationNotPermitted", "set AzureWebJobsStorage__accountName"},
		"wrong_key":        {key, failed, "its AccountKey is another account's, or was renewed"},
		"key_at_firewall":  {key, "AuthorizationFailure", "the account is closed to the address of this machine"},
	} {
		t.Run(name, func(t *testing.T) {
			code = test.code
			err := putError(t.Context(), mustOpen(t, test.conn))
			got := Advice(err, Roles)
			if !strings.Contains(got, test.want) || test.conn.SAS != "" && strings.Contains(got, "role") {
				t.Errorf("%v: advice %q, want %q", err, got, test.want)
			}
			if !errors.Is(err, storage.ErrDenied) {
				t.Errorf("%v is no denial", err)
			}
			mustHideSecrets(t, err)
			mustHideSecrets(t, errors.New(got))
		})
	}
	// An identity: storage has one code for an account that is closed to this address, and another for a missing role.
	for code, want := range map[string]string{
		"AuthorizationFailure": "the account is closed to the address of this machine: run the command in a network",
		permission:             "assign the " + Roles,
	} {
		request := httptest.NewRequestWithContext(
			t.Context(), http.MethodGet, "https://acct.queue.core.windows.net/async-caller/messages", nil)
		request.Header.Set("Authorization", "Bearer canary")
		err := describe("peek at async-caller", &azcore.ResponseError{
			StatusCode: http.StatusForbidden, ErrorCode: code,
			RawResponse: &http.Response{StatusCode: http.StatusForbidden, Body: http.NoBody, Request: request},
		})
		if got := Advice(err, Roles); !strings.Contains(got, want) {
			t.Errorf("%s: advice %q, want %q", code, got, want)
		}
	}
}

// TestAdviceOnTokens: an identity without a token has nothing to do with the account and its firewall.
func TestAdviceOnTokens(t *testing.T) {
	refused := &azidentity.AuthenticationFailedError{RawResponse: &http.Response{
		StatusCode: http.StatusBadRequest, Status: "400 Bad Request",
		Body: io.NopCloser(strings.NewReader(`{"message":"No managed identity found for specified ClientId"}`)),
	}}
	managed, application := Identity{ManagedIdentity: true, ClientID: "id"}, Identity{ClientSecret: "canary"}
	cancelled, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	unreachable := &url.Error{Op: "Get", URL: "http://169.254.169.254/x?canary", Err: &net.OpError{
		Op: "dial", Addr: &net.TCPAddr{IP: net.IPv4(169, 254, 169, 254)}, Err: syscall.ECONNREFUSED,
	}}
	proxied := &url.Error{Op: "Post", URL: "https://login.example/x?canary", Err: &net.OpError{
		Op: proxyConnect, Err: errors.New("the proxy answered 407"),
	}}
	untrusted := &url.Error{Op: "Post", URL: "https://login.example/x?canary", Err: &tls.CertificateVerificationError{
		Err: errors.New("unknown authority"),
	}}
	for name, test := range map[string]struct {
		identity   Identity
		ctx        context.Context
		err        error
		text, want string
	}{
		"none_found": {managed, t.Context(), refused, "No managed identity found", "correct AzureWebJobsStorage__clientId"},
		"system":     {Identity{ManagedIdentity: true}, t.Context(), refused, "RESPONSE 400", "assign the managed identity"},
		"late":       {managed, cancelled, context.DeadlineExceeded, "context deadline", "outside Azure"},
		"imds":       {managed, t.Context(), errors.New("managed identity timed out"), "timed out", "does not answer"},
		"refused":    {managed, t.Context(), unreachable, "Get 169.254.169.254: ", "assign the managed identity"},
		"secret":     {application, t.Context(), refused, "RESPONSE 400", "__clientSecret"},
		"proxied":    {application, t.Context(), proxied, "the proxy answered 407", "to login.microsoftonline.com"},
		"untrusted":  {application, t.Context(), untrusted, "unknown authority", "to login.microsoftonline.com"},
		"nobody":     {Identity{}, t.Context(), errors.New("no credential"), "no credential", "`az login`"},
	} {
		t.Run(name, func(t *testing.T) {
			fake := credentialFunc(func(policy.TokenRequestOptions) (azcore.AccessToken, error) {
				return azcore.AccessToken{}, test.err
			})
			_, err := advisedCredential{fake, test.identity}.GetToken(test.ctx, policy.TokenRequestOptions{})
			err = describe("list queues", fmt.Errorf("policy: %w", err))
			if got := Advice(err, Roles); !strings.Contains(got, test.want) || strings.Contains(got, "firewall") {
				t.Errorf("%v: advice %q, want %q", err, got, test.want)
			}
			text, isToken := strings.CutPrefix(err.Error(), "list queues: get a token: ")
			if !isToken || !strings.Contains(text, test.text) {
				t.Errorf("error %q, want %q", err, test.text)
			}
			if !errors.Is(err, storage.ErrNotSent) || errors.Is(err, storage.ErrRefused) {
				t.Errorf("%v is not a request that was not sent", err)
			}
			if strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q shows a secret, or has several lines", err)
			}
		})
	}
}

// silentCredential is an identity whose endpoint does not answer.
type silentCredential struct{}

func (silentCredential) GetToken(ctx context.Context, _ policy.TokenRequestOptions) (azcore.AccessToken, error) {
	<-ctx.Done()
	return azcore.AccessToken{}, ctx.Err()
}

// TestSilentIdentity: the error of a request without a token names the identity, also if its endpoint is silent.
func TestSilentIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := func(Identity) (azcore.TokenCredential, error) { return silentCredential{}, nil }
		conn := Connection{
			Endpoint: "https://acct.queue.core.windows.net", Identity: Identity{ManagedIdentity: true},
		}
		queues, err := open(conn, silent, &http.Client{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		_, err = queues.Peek(ctx, "async-caller", 1)
		advice := Advice(err, Roles)
		if !strings.Contains(advice, "the endpoint for tokens of managed identities does not answer") ||
			!strings.Contains(fmt.Sprint(err), "get a token: ") || time.Since(began) > 8*time.Second {
			t.Errorf("%v after %v, advice %q", err, time.Since(began), advice)
		}
	})
}

// TestDetails: what storage says about a credential is shown, without signatures and tokens.
func TestDetails(t *testing.T) {
	const signature = "kFzCanaryCanaryCanaryCanaryCanaryCanaryCanary8="
	body := ""
	address := startServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("x-ms-error-code", "AuthenticationFailed")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, body)
	})
	conn := connections(address)["key"]
	conn.TableEndpoint = address
	table, err := OpenTable(conn, "rows")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(table.Close)
	const refused = ": storage refused access"
	for _, test := range []struct{ body, want string }{
		{
			"<Error><Message>No.\nRequestId:1</Message><AuthenticationErrorDetail>Signature not valid in the " +
				"specified time frame: Start [a] - Expiry [b]\nmore</AuthenticationErrorDetail></Error>",
			": No; Signature not valid in the specified time frame: Start [a] Expiry [b]" + refused,
		},
		{
			"<Error><AuthenticationErrorDetail>The MAC signature '" + signature + "' is not the same" +
				"</AuthenticationErrorDetail></Error>",
			": The MAC signature *** is not the same" + refused,
		},
		{
			`{"odata.error":{"code":"AuthenticationFailed","message":{"lang":"en-US","value":"No\u001b ` + signature +
				`.\nRequestId:1"}}}`,
			": No ***" + refused,
		},
		{`{"odata.error":{"message":{"value":"` + strings.Repeat("a ", 1<<16) + `"}}}`, "…" + refused},
		{`{"odata.error":{"message":"text"}}`, "403 AuthenticationFailed" + refused},
		{strings.Repeat("[", 100), "403 AuthenticationFailed" + refused},
		{"", "403 AuthenticationFailed" + refused},
	} {
		body = test.body
		_, _, err := table.Get(t.Context(), "partition", "row")
		for _, err := range []error{err, putError(t.Context(), mustOpen(t, conn))} {
			if err == nil || !strings.HasSuffix(err.Error(), test.want) || len(err.Error()) > 2*maxErrorText {
				t.Errorf("%.100s: error %v, want %q", test.body, err, test.want)
			}
			if strings.Contains(fmt.Sprint(err), "Canary") {
				t.Errorf("the signature shows in %v", err)
			}
		}
	}
}
