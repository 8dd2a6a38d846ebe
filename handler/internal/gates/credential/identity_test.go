package credential_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"asynccaller/handler/internal/gates/credential"
	"asynccaller/handler/internal/rules/targets"
)

// startIdentity starts an identity endpoint of App Service, and returns its requests.
func startIdentity(t *testing.T, answer http.HandlerFunc) chan *http.Request {
	t.Helper()
	requests := make(chan *http.Request, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- r
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	t.Setenv("IDENTITY_ENDPOINT", server.URL+"/msi/token")
	t.Setenv("IDENTITY_HEADER", "the-header-secret")
	return requests
}

// TestManagedIdentity: the request is that of App Service, for the system's identity and for another one.
func TestManagedIdentity(t *testing.T) {
	end := time.Now().Add(24 * time.Hour).Truncate(time.Second)
	requests := startIdentity(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":"abc","expires_on":"%d","resource":%q,"token_type":"Bearer"}`,
			end.Unix(), r.URL.Query().Get("resource"))
	})
	for _, client := range []string{"", "the-client"} {
		c := targets.Credential{Kind: targets.ManagedIdentity, Scope: "api://orders/.default", ClientID: client}
		token, err := credential.NewFetch(nil)(t.Context(), c)
		if err != nil || string(token.Value) != "abc" || !token.End.Equal(end) {
			t.Errorf("%q until %v, want %v; %v", string(token.Value), token.End, end, err)
		}
		r := <-requests
		q := r.URL.Query()
		if r.URL.Path != "/msi/token" || q.Get("api-version") != "2019-08-01" || q.Get("resource") != "api://orders" ||
			q.Get("client_id") != client || r.Header.Get("X-IDENTITY-HEADER") != "the-header-secret" {
			t.Errorf("%s with %v", r.URL, r.Header)
		}
	}
}

// TestManagedIdentityFails: one request for each try, and no problem repeats an answer.
func TestManagedIdentityFails(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, `{"message":"C4nary"}`, code) }
	}
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   string
		fault  bool
	}{
		"no_identity": {status(400), "status 400", true},
		"denied":      {status(403), "status 403", true},
		"updating":    {status(404), "status 404", false},
		"restarting":  {status(410), "status 410", false},
		"busy":        {status(429), "status 429", false},
		"away":        {status(503), "status 503", false},
		"html": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "<p>C4nary")
		}, "the identity endpoint gives no usable answer", false},
		"hangs": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "no answer in time", false},
	} {
		t.Run(name, func(t *testing.T) {
			requests := startIdentity(t, test.answer)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if name == "hangs" {
				go func() {
					<-requests
					cancel()
				}()
			}
			c := targets.Credential{Kind: targets.ManagedIdentity, Scope: "api://" + name}
			_, err := credential.NewFetch(nil)(ctx, c)
			problem, ok := errors.AsType[*credential.ProblemError](err)
			if !ok || problem.Text != test.want || problem.ByOperator != test.fault {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if cause := credential.Cause(c, err); cause != "no token: "+test.want+" (managed identity)" {
				t.Errorf("cause %q", cause)
			}
			if n := len(requests); n > 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}
