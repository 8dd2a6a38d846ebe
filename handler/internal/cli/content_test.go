package cli

import "testing"

func TestAttemptResult(t *testing.T) {
	for want, a := range map[string]attempt{
		"answered 503": {Status: 503}, "dns": {Error: "dns"},
		"answered 200, body_cut": {Status: 200, Error: "body_cut"}, "no answer": {},
	} {
		if got := a.result(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
