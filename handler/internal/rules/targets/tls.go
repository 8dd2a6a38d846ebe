package targets

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/rules/certificate"
	"asynccaller/handler/internal/rules/envelope"
)

// Certificate is the client certificate of a profile. Name is the variable that has it, as in the file.
type Certificate struct {
	certificate.Certificate

	Name string
}

// CertificateOf returns the certificate that a call presents; nil if it presents none.
func (p Profile) CertificateOf(call *envelope.Call) *Certificate {
	if call.Target.Scheme != "https" || !AddsTo(call.Method, call.Target, call.Host) {
		return nil
	}
	return p.Certificate
}

// Certificates returns the certificates of all entries by their patterns, in the form of [Profiles.Patterns].
func (p Profiles) Certificates() map[string]*Certificate {
	certificates := map[string]*Certificate{}
	for key, profile := range p.entries {
		if profile.Certificate != nil {
			certificates[patternOf(key)] = profile.Certificate
		}
	}
	return certificates
}

func (p *Profile) setCertificate(value json.RawMessage, getenv func(string) string) (err error) {
	c := &Certificate{}
	c.Name, c.Certificate, err = fromVariable(value, getenv, certificate.Parse)
	p.Certificate = c
	return err
}

func (p *Profile) setAuthorities(value json.RawMessage, getenv func(string) string) error {
	_, a, err := fromVariable(value, getenv, certificate.ParseAuthorities)
	p.Authorities = &a
	return err
}

// fromVariable reads the value of the variable that a text names. Without an environment it reads nothing.
func fromVariable[T any](
	value json.RawMessage, getenv func(string) string, parse func(string) (T, error),
) (text string, parsed T, err error) {
	text, err = strictjson.String(value)
	name, isVariable := strings.CutPrefix(text, "$")
	if err != nil || !isVariable {
		return "", parsed, errors.New(`want "$NAME", and the text in the environment variable NAME`)
	}
	content, err := lookUp(name, getenv)
	if err != nil || getenv == nil {
		return text, parsed, err
	}
	parsed, err = parse(content)
	if err != nil {
		err = fmt.Errorf("the environment variable %s %w", name, err)
	}
	return text, parsed, err
}

// checkTLS returns the problem of a profile's certificate with its pattern, of which key is the key in [Profiles].
func (p *Profile) checkTLS(key string) error {
	var problem string
	switch {
	case p.Certificate == nil:
		return nil
	case key == star:
		problem = "a certificate is for the hosts that a pattern names: * names all"
	case strings.HasSuffix(p.Scope, ":80"):
		problem = "a certificate is presented by https only, and 80 is the port of http"
	default:
		return nil
	}
	return strictjson.In("certificate", errors.New(problem))
}

// Identity says as whom the handler connects to a target, and whom it trusts there. Its zero value is nobody, and the
// authorities of the system.
type Identity struct {
	Certificate *Certificate
	Authorities *certificate.Authorities
}

// Key differs from that of every other identity; it is empty for the zero value.
func (i Identity) Key() string {
	key := ""
	if i.Certificate != nil {
		key += i.Certificate.ID
	}
	if i.Authorities != nil {
		key += "-" + i.Authorities.ID
	}
	return key
}

// IdentityFor returns the identity of a call; without the certificate for a URL that is only reached by a redirect.
func (p Profiles) IdentityFor(target *url.URL, call *envelope.Call) (i Identity) {
	profile := p.For(target)
	i.Authorities = profile.Authorities
	if call != nil {
		i.Certificate = profile.CertificateOf(call)
	}
	return i
}
