package targets_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/plain/secret"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/targets"
)

func TestAuth(t *testing.T) {
	for name, test := range map[string]struct {
		auth string
		want targets.Auth
	}{
		"managed_identity": {
			`{"managedIdentity":"api://orders/.default"}`,
			targets.Auth{Credential: targets.Credential{
				Kind: targets.ManagedIdentity, Scope: "api://orders/.default",
				Name: "managed identity for api://orders/.default",
			}},
		},
		"user_assigned": {
			`{"managedIdentity":"api://orders","clientId":"$KEY","override":true}`,
			targets.Auth{Credential: targets.Credential{
				Kind: targets.ManagedIdentity, Scope: "api://orders", ClientID: "the key",
				Name: "managed identity $KEY for api://orders",
			}},
		},
		"oauth2": {
			`{"oauth2":` + oauth2 + `,"override":false}`,
			targets.Auth{KeepsOwn: true, Credential: targets.Credential{
				Kind: targets.OAuth2, ClientID: "c", TokenURL: "https://l.example/t", Secret: "the key",
				Name: "OAuth 2 client c at l.example",
			}},
		},
		"oauth2_all": {
			`{"oauth2":{"tokenUrl":"https://l.example/t","clientId":"c","clientSecret":"$KEY","scope":"a b",` +
				`"audience":"x","style":"body","parameters":{"resource":"$KEY","a":"b c"}}}`,
			targets.Auth{Credential: targets.Credential{
				Kind: targets.OAuth2, ClientID: "c", TokenURL: "https://l.example/t", Secret: "the key", Scope: "a b",
				Audience: "x", InBody: true, Parameters: "a=b+c&resource=the+key",
				Name: "OAuth 2 client c at l.example for a b",
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, pattern := range []string{"a.example", "a.example:8443", "*.example"} {
				file := fmt.Sprintf(`{%q:{"auth":%s}}`, pattern, test.auth)
				p := profileOf(t, mustParse(t, file), "https://a.example:8443")
				sameText := cmp.Comparer(func(a, b secret.Text) bool { return string(a) == string(b) })
				if diff := cmp.Diff(&test.want, p.Auth, sameText); diff != "" {
					t.Errorf("%s (-want +got):\n%s", pattern, diff)
				}
				tools, err := targets.Parse([]byte(file), nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				there := profileOf(t, tools, "https://a.example:8443").Auth.Credential
				here := p.Auth.Credential
				if here.Name != there.Name || there.Secret != "" {
					t.Errorf("without the environment: %+v", there)
				}
			}
		})
	}
}

// TestCredentialShowsNoSecret: whatever prints a profile.
func TestCredentialShowsNoSecret(t *testing.T) {
	withKey := strings.Replace(oauth2, "{", `{"parameters":{"resource":"$KEY"},`, 1)
	profiles := mustParse(t, auth(`{"oauth2":`+withKey+`}`))
	p := profileOf(t, profiles, "https://a.example")
	asJSON, err := json.Marshal(p.Auth)
	if err != nil {
		t.Fatal(err)
	}
	for _, printed := range []string{
		string(asJSON), fmt.Sprintf("%v %+v %#v %v", p.Auth.Credential, p.Auth.Credential, p.Auth.Credential, *p.Auth),
	} {
		if strings.Contains(printed, "the key") || strings.Contains(printed, "the+key") {
			t.Errorf("printed %s", printed)
		}
	}
}

// TestCredentialOf: which calls get the credential, and which would send it in the clear.
func TestCredentialOf(t *testing.T) {
	own := http.Header{"Authorization": {"mine"}}
	for name, test := range map[string]struct {
		auth, method, url, host string
		header                  http.Header
		gets, isPlain           bool
	}{
		"https":        {`{"managedIdentity":"x"}`, "GET", "https://a.example", "", own, true, false},
		"http":         {`{"managedIdentity":"x"}`, "GET", "http://a.example", "", nil, true, true},
		"trace":        {`{"managedIdentity":"x"}`, "TRACE", "http://a.example", "", nil, false, false},
		"same_host":    {`{"managedIdentity":"x"}`, "GET", "https://a.example", "a.example:443", nil, true, false},
		"other_host":   {`{"managedIdentity":"x"}`, "GET", "https://a.example", "b.example", nil, false, false},
		"other_target": {`{"managedIdentity":"x"}`, "GET", "https://b.example", "", nil, false, false},
		"keeps":        {`{"managedIdentity":"x","override":false}`, "GET", "http://a.example", "", own, false, false},
		"keeps_none":   {`{"managedIdentity":"x","override":false}`, "GET", "http://a.example", "", nil, true, true},
	} {
		target, err := url.Parse(test.url)
		if err != nil {
			t.Fatal(err)
		}
		call := &envelope.Call{Method: test.method, Target: target, Host: test.host, Header: test.header}
		p := mustParse(t, auth(test.auth)).For(target)
		if gets := p.CredentialOf(call) != nil; gets != test.gets || p.IsPlain(call) != test.isPlain {
			t.Errorf("%s: gets it %t, plain %t", name, gets, p.IsPlain(call))
		}
	}
}
