package targets_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/targets"
)

// signing returns the value of a variable: N24 has a secret of 24 bytes, and so for any number.
func signing(name string) string {
	var n int
	if _, err := fmt.Sscanf(name, "N%d", &n); err == nil {
		return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", n)))
	}
	return map[string]string{
		"RAW": canary + strings.Repeat("A", 26), "BARE": strings.TrimPrefix(signing("N32"), "whsec_"),
		"OPEN": strings.TrimRight(signing("N32"), "="), "PUBLIC": "whpk_" + strings.Repeat("A", 44),
		"SPACE": signing("N32") + " ", "HEX": "whsec_" + strings.Repeat("0f", 31),
	}[name]
}

func TestSign(t *testing.T) {
	for _, pattern := range []string{"a.example", "a.example:80", "*.example"} {
		file := fmt.Sprintf(`{%q:{"sign":["$N24","$N64"]}}`, pattern)
		profiles, err := targets.Parse([]byte(file), nil, signing)
		if err != nil {
			t.Fatal(err)
		}
		p := profileOf(t, profiles, "http://a.example")
		lengths := []int{len(p.Sign[0].Key), len(p.Sign[1].Key)}
		if !slices.Equal(lengths, []int{24, 64}) || p.Sign.Names() != "$N24, $N64" || len(p.Secrets) != 2 {
			t.Errorf("%s: got %d for %s, and the secrets %d", pattern, lengths, p.Sign.Names(), len(p.Secrets))
		}
		asJSON, err := json.Marshal(p)
		if printed := fmt.Sprintf("%v %+v %#v %s %v", p, p, p.Sign, asJSON, err); strings.Contains(printed, "kkkk") {
			t.Errorf("printed %s", printed)
		}
		tools, err := targets.Parse([]byte(file), nil, nil)
		if there := profileOf(t, tools, "http://a.example").Sign; err != nil || there.Names() != p.Sign.Names() {
			t.Errorf("without the environment: %s, %v", there.Names(), err)
		}
	}
}

func TestSignProblems(t *testing.T) {
	const want = " is no secret of Standard Webhooks: want whsec_ and base64 of 24 to 64 bytes"
	for value, problem := range map[string]string{
		`"$N32"`: `sign: want an array, not a string`,
		`[]`:     `sign: want 1 to 10 secrets`,
		`["$N32"` + strings.Repeat(`,"$N32"`, 10) + `]`: `sign: want 1 to 10 secrets`,
		`["$N24","` + canary + `"]`:                     `sign[1]: want "$NAME", and the secret in the environment`,
		`[24]`:                                          `sign[0]: want "$NAME", and the secret`,
		`["$whsec_` + canary + `+"]`:                    `sign[0]: want "$NAME": letters, digits`,
		`["$UNSET"]`:                                    `sign[0]: the environment variable UNSET is not set`,
		`["$N24","$N32","$N24"]`:                        `sign[2]: appears twice`,
		`["$N23"]`:                                      `sign[0]: the environment variable N23` + want,
		`["$N65"]`:                                      `sign[0]: the environment variable N65` + want,
		`["$RAW"]`:                                      `sign[0]: the environment variable RAW` + want,
		`["$BARE"]`:                                     `sign[0]: the environment variable BARE` + want,
		`["$OPEN"]`:                                     `sign[0]: the environment variable OPEN` + want,
		`["$PUBLIC"]`:                                   `sign[0]: the environment variable PUBLIC` + want,
		`["$SPACE"]`:                                    `sign[0]: the environment variable SPACE` + want,
		`["$HEX"]`:                                      `sign[0]: the environment variable HEX` + want,
		`["$N32"],"headers":{"WebHook_id":"1"}`:         `sign: takes the place of headers.WebHook_id: remove one`,
		`["$N32"],"to":"https://b.example"`:             `to: takes the place of the other members`,
	} {
		_, err := targets.Parse([]byte(`{"a.example":{"sign":`+value+`}}`), nil, signing)
		text := fmt.Sprint(err)
		isRight := strings.HasPrefix(text, `"a.example": `+problem)
		if !isRight || strings.Contains(text, "\n") || strings.Contains(text, canary) {
			t.Errorf("%s: got %v, want %s", value, err, problem)
		}
	}
	_, err := targets.Parse([]byte(`{"*":{"sign":["$N32"]}}`), nil, signing)
	if err == nil || err.Error() != `"*": sign: a signature is for the hosts that a pattern names: * names all` {
		t.Errorf("got %v", err)
	}
}

// TestSigningKeysOf: a call is signed under the conditions of the profile's headers.
func TestSigningKeysOf(t *testing.T) {
	profiles, err := targets.Parse([]byte(`{"a.example":{"sign":["$N32"]}}`), nil, signing)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, url, host string
		isSigned          bool
	}{
		{"GET", "http://a.example", "", true},
		{"POST", "https://a.example:8443", "a.example:8443", true},
		{"TRACE", "https://a.example", "", false},
		{"PURGE", "https://a.example", "", false},
		{"PUT", "https://a.example", "b.example", false},
		{"PUT", "https://b.example", "", false},
	} {
		target, err := url.Parse(c.url)
		if err != nil {
			t.Fatal(err)
		}
		call := &envelope.Call{Method: c.method, Target: target, Host: c.host}
		if got := len(profiles.For(target).SigningKeysOf(call)) > 0; got != c.isSigned {
			t.Errorf("%s %s, Host %q: signed: %t", c.method, c.url, c.host, got)
		}
	}
}
