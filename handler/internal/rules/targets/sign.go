package targets

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"asynccaller/handler/internal/plain/secret"
	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/rules/envelope"
)

// SigningKey is a secret of Standard Webhooks (version 1, HMAC-SHA256). Printing it shows no secret.
type SigningKey struct {
	// Name is the text of the file, such as $NEW.
	Name string
	// Key has the bytes that the secret encodes; it is empty without an environment.
	Key secret.Text
}

// SigningKeys are the secrets with which a call is signed, each for a signature of its own.
type SigningKeys []SigningKey

// Names returns the names of the secrets for people, such as "$NEW, $OLD".
func (k SigningKeys) Names() string {
	names := make([]string, len(k))
	for i, key := range k {
		names[i] = key.Name
	}
	return strings.Join(names, ", ")
}

// The bounds of the secrets of a profile. The lengths are those of Standard Webhooks. While a secret is replaced, two
// are needed.
const (
	minKeyBytes, maxKeyBytes = 24, 64
	maxSigningKeys           = 10
)

// keyPrefix begins a secret of Standard Webhooks.
const keyPrefix = "whsec_"

// SigningKeysOf returns the secrets with which a call is signed, under the conditions of [AddsTo]; none if it is not
// signed.
func (p Profile) SigningKeysOf(call *envelope.Call) SigningKeys {
	if !AddsTo(call.Method, call.Target, call.Host) {
		return nil
	}
	return p.Sign
}

// IsWebhookHeader reports whether a header, in any letter case, belongs to a signature. Servers that pass headers on as
// variables (CGI, WSGI) do not distinguish _ from -.
func IsWebhookHeader(name string) bool {
	return strings.HasPrefix(strings.ToLower(strings.ReplaceAll(name, "_", "-")), "webhook-")
}

func (p *Profile) setSign(value json.RawMessage, getenv func(string) string) error {
	elements, err := strictjson.Elements(value)
	if err == nil && (len(elements) == 0 || len(elements) > maxSigningKeys) {
		err = fmt.Errorf("want 1 to %d secrets", maxSigningKeys)
	}
	if err != nil {
		return err
	}
	var problems []error
	for i, element := range elements {
		key, encoded, err := signingKey(element, getenv)
		if encoded != "" {
			p.Secrets = append(p.Secrets, secret.Text(encoded)) // the target has it, and could repeat it
		}
		isRepeated := slices.ContainsFunc(p.Sign, func(k SigningKey) bool { return k.Name == key.Name })
		if err == nil && isRepeated {
			err = errors.New("appears twice")
		}
		p.Sign = append(p.Sign, key)
		problems = append(problems, each(strictjson.In(strictjson.Index(i), err))...)
	}
	return errors.Join(problems...)
}

// signingKey reads the name of a variable, and the secret in it. Encoded is its base64.
func signingKey(
	value json.RawMessage, getenv func(string) string,
) (key SigningKey, encoded string, err error) {
	text, err := strictjson.String(value)
	name, isVariable := strings.CutPrefix(text, "$")
	if err != nil || !isVariable {
		return key, "", errors.New(`want "$NAME", and the secret in the environment variable NAME`)
	}
	resolved, err := resolve(name, getenv)
	if err != nil || getenv == nil {
		return SigningKey{Name: text}, "", err
	}
	encoded, isPrefixed := strings.CutPrefix(resolved, keyPrefix)
	decoded, decodeErr := base64.StdEncoding.DecodeString(encoded)
	if !isPrefixed || decodeErr != nil || len(decoded) < minKeyBytes || len(decoded) > maxKeyBytes {
		return key, "", fmt.Errorf("the environment variable %s is no secret of Standard Webhooks: want %s and base64 "+
			"of %d to %d bytes", name, keyPrefix, minKeyBytes, maxKeyBytes)
	}
	return SigningKey{Name: text, Key: secret.Text(decoded)}, encoded, nil
}

// checkSign returns the problem of a profile's signatures with its pattern, of which key is the key in [Profiles], and
// with its headers.
func (p *Profile) checkSign(key string) error {
	names := slices.Sorted(maps.Keys(p.Headers))
	taken := slices.IndexFunc(names, IsWebhookHeader)
	var problem string
	switch {
	case p.Sign == nil:
		return nil
	case key == star:
		problem = "a signature is for the hosts that a pattern names: * names all"
	case taken >= 0:
		problem = "takes the place of headers." + p.Spelling.Of(names[taken]) + ": remove one"
	default:
		return nil
	}
	return strictjson.In("sign", errors.New(problem))
}
