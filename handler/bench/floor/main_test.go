package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestForward(t *testing.T) {
	for name, test := range map[string]struct {
		method, body string
		target       int
		want         int
		calls        string
	}{
		"delivered":   {http.MethodPost, "abc", 200, 200, "abc"},
		"busy_target": {http.MethodPost, "abc", 503, 200, "abc"},
		"ready":       {http.MethodGet, "", 200, 200, ""},
		"too_large":   {http.MethodPost, strings.Repeat("x", maxInvocationBytes+1), 200, 500, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got strings.Builder
			target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(&got, r.Body)
				w.WriteHeader(test.target)
			}))
			defer target.Close()
			answer := httptest.NewRecorder()
			forward(target.Client(), target.URL)(answer, httptest.NewRequestWithContext(t.Context(), test.method, "/AC-standard", strings.NewReader(test.body)))
			if answer.Code != test.want || got.String() != test.calls {
				t.Errorf("answer %d and call %q, want %d and %q", answer.Code, got.String(), test.want, test.calls)
			}
			if test.want == http.StatusOK && answer.Body.String() != `{"Logs":[]}` {
				t.Errorf("body %q is not what the host wants", answer.Body)
			}
		})
	}
}

func TestForwardTargetAway(t *testing.T) {
	target := httptest.NewServer(http.NotFoundHandler())
	target.Close()
	answer := httptest.NewRecorder()
	forward(target.Client(), target.URL)(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/f", strings.NewReader("x")))
	if answer.Code != http.StatusInternalServerError {
		t.Errorf("answer %d, want 500: the run must not count it", answer.Code)
	}
}

func TestRunNeedsItsSettings(t *testing.T) {
	err := run(t.Context(), func(string) string { return "" })
	if err == nil || !strings.Contains(err.Error(), portName) || !strings.Contains(err.Error(), targetName) {
		t.Errorf("error %v, want both settings named", err)
	}
}
