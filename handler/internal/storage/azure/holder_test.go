package azure

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

type fixedToken string

func (f fixedToken) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: string(f), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// TestHolder: the token of a request says who sends it, whatever else is in it.
func TestHolder(t *testing.T) {
	for claims, want := range map[string]string{
		`{"oid":"1b2c","upn":"anna@contoso.com","appid":"9"}`: "anna@contoso.com",
		`{"oid":"1b2c","unique_name":"live.com#anna@x.org"}`:  "live.com#anna@x.org",
		`{"oid":"1b2c","appid":"9"}`:                          "1b2c",
		`{"appid":"9"}`:                                       "9",
		`{"upn":"a\u001b[31mb"}`:                              "a\ufffd[31mb",
		`{"upn":7}`:                                           "",
		`no JSON`:                                             "",
	} {
		token := "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
		store, err := open(Connection{AccountName: "acme", Endpoint: "https://acme.queue.core.windows.net"},
			func(Identity) (azcore.TokenCredential, error) { return fixedToken(token), nil },
			&http.Client{Transport: refusing{}})
		if err != nil {
			t.Fatal(err)
		}
		if before := store.Holder(); before != "" {
			t.Errorf("%q before the first request", before)
		}
		_, _ = store.Names(t.Context(), "")
		if got := store.Holder(); got != want {
			t.Errorf("%s: %q, want %q", claims, got, want)
		}
	}
	if got := holderOf(strings.Repeat("x", 10)); got != "" {
		t.Errorf("%q of no token", got)
	}
}

type refusing struct{}

func (refusing) RoundTrip(*http.Request) (*http.Response, error) { return nil, http.ErrHandlerTimeout }
