package targets

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"asynccaller/handler/internal/plain/secret"
	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/guard"
)

// Auth says how the calls to a target are authorized.
type Auth struct {
	Credential Credential
	// KeepsOwn says that a call with an Authorization of its sender keeps it.
	KeepsOwn bool
}

// Credential is what a token is fetched with. Equal values share their tokens. Printing it shows no secret.
type Credential struct {
	Kind CredentialKind
	// Scope is what the token is for; OAuth2 may have none.
	Scope string
	// ClientID is the user-assigned identity, empty for that of the system, or the client of OAuth2.
	ClientID string
	// TokenURL, Secret and Audience are those of OAuth2. Audience may be empty. Parameters are others of the token
	// request, encoded as its body is. InBody says that the client and its secret are sent in the body of the token
	// request, and not in its header.
	TokenURL   string
	Secret     secret.Text
	Audience   string
	Parameters secret.Text
	InBody     bool
	// Name describes the credential for people by what the file says: variables are not resolved, so that it is the
	// same for the handler and for the tools.
	Name string
}

// CredentialKind is the way in which a token is fetched.
type CredentialKind string

// The kinds of credentials.
const (
	ManagedIdentity CredentialKind = "managedIdentity"
	// OAuth2 is the client credentials grant (RFC 6749, 4.4).
	OAuth2 CredentialKind = "oauth2"
)

// PlainRefusal is why a call with a credential is not made by http.
const PlainRefusal = "its credential in targets.json is sent by https only"

// profiled are the methods whose calls get the headers and the credential of a profile. A target can return the headers
// of other methods to the sender: TRACE does (RFC 9110, 9.3.8), and so do TRACK and DEBUG of some servers.
var profiled = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	http.MethodOptions,
}

// AddsTo reports whether a request may get the headers and the credential of its target's profile: not with a method
// that returns them, nor with a Host header that could lead it to another host. Host is empty if there is none.
func AddsTo(method string, target *url.URL, host string) bool {
	leadsAway := host != "" && !SameHost(target, &url.URL{Scheme: target.Scheme, Host: host})
	return !leadsAway && slices.Contains(profiled, method)
}

// SameHost reports whether credentials for one URL may be sent to another: host and port are the same. An upgrade from
// http to https on the default ports stays on the same host.
func SameHost(from, to *url.URL) bool {
	if from.Hostname() != to.Hostname() {
		return false
	}
	upgrade := from.Scheme == "http" && to.Scheme == "https" && guard.Port(from) == "80" && guard.Port(to) == "443"
	return upgrade || from.Scheme == to.Scheme && guard.Port(from) == guard.Port(to)
}

// CredentialOf returns the credential that a call gets; nil if it gets none.
func (p Profile) CredentialOf(call *envelope.Call) *Credential {
	_, hasOwn := call.Header["Authorization"]
	keepsOwn := p.Auth != nil && p.Auth.KeepsOwn && (hasOwn || call.Target.User != nil)
	if p.Auth == nil || keepsOwn || !AddsTo(call.Method, call.Target, call.Host) {
		return nil
	}
	return &p.Auth.Credential
}

// IsPlain reports whether a call gets a credential, but would send it in the clear.
func (p Profile) IsPlain(call *envelope.Call) bool {
	return call.Target.Scheme != "https" && p.CredentialOf(call) != nil
}

// Credentials returns the credentials of all entries by their patterns, in the form of [Profiles.Patterns].
func (p Profiles) Credentials() map[string]Credential {
	credentials := map[string]Credential{}
	for key, profile := range p.entries {
		if profile.Auth != nil {
			credentials[patternOf(key)] = profile.Auth.Credential
		}
	}
	return credentials
}

// checkAuth returns the problem of a profile's credential with its pattern, of which key is the key in [Profiles], and
// with its other members.
func (p *Profile) checkAuth(key string) error {
	_, hasHeader := p.Headers["Authorization"]
	var problem string
	switch {
	case p.Auth == nil:
		return nil
	case key == star:
		problem = "a credential is for the hosts that a pattern names: * names all"
	case strings.HasSuffix(p.Scope, ":80"):
		problem = "a credential is sent by https only, and 80 is the port of http"
	case hasHeader:
		problem = "takes the place of headers.Authorization: remove one"
	default:
		return nil
	}
	return strictjson.In("auth", errors.New(problem))
}

func (p *Profile) setAuth(value json.RawMessage, getenv func(string) string) error {
	p.Auth = &Auth{}
	c := &p.Auth.Credential
	texts := authTexts{getenv: getenv, found: map[string]string{}}
	var kinds []CredentialKind
	err := eachMember(value, map[string]func(json.RawMessage) error{
		"clientId": texts.into(&c.ClientID, "identity"),
		"managedIdentity": func(value json.RawMessage) error {
			kinds = append(kinds, ManagedIdentity)
			return texts.into(&c.Scope, "scope")(value)
		},
		"oauth2": func(value json.RawMessage) error {
			kinds = append(kinds, OAuth2)
			return c.setOAuth2(value, texts)
		},
		"override": func(value json.RawMessage) error {
			p.Auth.KeepsOwn = string(value) == "false"
			if !p.Auth.KeepsOwn && string(value) != "true" {
				return errors.New("want true or false")
			}
			return nil
		},
	})
	switch {
	case err != nil:
		return err
	case len(kinds) != 1:
		return errors.New("want managedIdentity or oauth2")
	case kinds[0] == OAuth2 && texts.found["identity"] != "":
		return strictjson.In("clientId", errors.New("is that of a managed identity: oauth2 has its own"))
	}
	c.Kind = kinds[0]
	c.Name = texts.name(c.Kind)
	return nil
}

func (c *Credential) setOAuth2(value json.RawMessage, texts authTexts) error {
	err := eachMember(value, map[string]func(json.RawMessage) error{
		"audience": texts.into(&c.Audience, "audience"),
		"clientId": texts.into(&c.ClientID, "clientId"),
		"clientSecret": func(value json.RawMessage) error {
			text, err := strictjson.String(value)
			name, isVariable := strings.CutPrefix(text, "$")
			if err != nil || !isVariable {
				return errors.New(`want "$NAME", and the secret in the environment variable NAME`)
			}
			texts.found["clientSecret"] = text
			resolved, err := resolve(name, texts.getenv)
			c.Secret = secret.Text(resolved)
			return err
		},
		"parameters": func(value json.RawMessage) error { return c.setParameters(value, texts) },
		"scope":      texts.into(&c.Scope, "scope"),
		"style": func(value json.RawMessage) error {
			c.InBody = string(value) == `"body"`
			if !c.InBody && string(value) != `"header"` {
				return errors.New(`want "header" or "body"`)
			}
			return nil
		},
		"tokenUrl": func(value json.RawMessage) error {
			err := texts.into(&c.TokenURL, "tokenUrl")(value)
			if err == nil && c.TokenURL != "" && !isTokenURL(c.TokenURL) {
				err = errors.New("want an https URL without user info, query and fragment")
			}
			return err
		},
	})
	isWhole := texts.found["tokenUrl"] != "" && texts.found["clientId"] != "" && texts.found["clientSecret"] != ""
	if err == nil && !isWhole {
		err = errors.New("want tokenUrl, clientId and clientSecret")
	}
	return err
}

// ownParameters are the parameters of a token request that have members of their own, or one value.
var ownParameters = []string{"audience", "client_id", "client_secret", "grant_type", "scope"}

// parameterName matches the name of a parameter (RFC 6749, 8.2).
var parameterName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)

func (c *Credential) setParameters(value json.RawMessage, texts authTexts) error {
	parameters := url.Values{}
	err := inEach(value, func(m strictjson.Member) error {
		switch {
		case slices.Contains(ownParameters, strings.ToLower(m.Name)):
			return errors.New("the grant and the other members of oauth2 set it")
		case !parameterName.MatchString(m.Name):
			return errors.New("want a name of letters, digits, -, . and _")
		}
		member, text := "parameters."+m.Name, ""
		err := texts.into(&text, member)(m.Value)
		if err == nil && secret.Is(m.Name) && !strings.HasPrefix(texts.found[member], "$") {
			err = errSecret
		}
		parameters.Set(m.Name, text)
		return err
	})
	c.Parameters = secret.Text(parameters.Encode())
	return err
}

// isTokenURL reports whether a text is the URL of a token server. Without a query it has no place for a secret.
func isTokenURL(text string) bool {
	u, err := envelope.ParseURL(text)
	return err == nil && u.Scheme == "https" && u.User == nil && !strings.ContainsAny(text, "?#")
}

// maxAuthText limits the texts of a credential in bytes.
const maxAuthText = 500

// authTexts are the texts of a credential as the file has them, by their members.
type authTexts struct {
	getenv func(string) string
	found  map[string]string
}

// into returns a function that reads a text, or the variable that it names, into a field. Without an environment, the
// field of a variable stays empty.
func (a authTexts) into(field *string, member string) func(json.RawMessage) error {
	return func(value json.RawMessage) error {
		text, err := strictjson.String(value)
		if err != nil {
			return err
		}
		resolved := text
		if name, isVariable := strings.CutPrefix(text, "$"); isVariable {
			resolved, err = resolve(name, a.getenv)
		}
		isUsable := text != "" && len(resolved) <= maxAuthText && !strings.ContainsFunc(resolved, unicode.IsControl)
		if err == nil && !isUsable {
			err = fmt.Errorf("want 1 to %d bytes without control characters", maxAuthText)
		}
		a.found[member], *field = text, resolved
		return err
	}
}

// name returns the [Credential.Name] of what was found.
func (a authTexts) name(kind CredentialKind) string {
	name := strings.TrimSpace("managed identity " + a.found["identity"])
	if kind == OAuth2 {
		server := a.found["tokenUrl"]
		if u, err := url.Parse(server); err == nil && u.Host != "" {
			server = u.Host
		}
		name = "OAuth 2 client " + a.found["clientId"] + " at " + server
	}
	if scope := a.found["scope"]; scope != "" {
		name += " for " + scope
	}
	return name
}
