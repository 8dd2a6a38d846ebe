package ingress_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestSender: a request that the Functions host does not send is refused, and no call is made for it.
func TestSender(t *testing.T) {
	const content = `{"asyncCaller":1,"call":{"url":"https://t.example/"}}`
	for name, c := range map[string]struct {
		url, header, value string
		want               int
	}{
		"as_the_host":             {"http://127.0.0.1:7071/", "User-Agent", "Azure-Functions-Host/4.1052", http.StatusOK},
		"localhost":               {"http://localhost:7071/", "", "", http.StatusOK},
		"ipv6":                    {"http://[::1]:7071/", "", "", http.StatusOK},
		"no_port":                 {"http://127.0.0.1/", "", "", http.StatusOK},
		"name_that_was_rebound":   {"http://evil.example:7071/", "", "", http.StatusForbidden},
		"other_address":           {"http://10.0.0.4:7071/", "", "", http.StatusForbidden},
		"page_in_a_browser":       {"http://127.0.0.1:7071/", "Origin", "https://evil.example", http.StatusForbidden},
		"browser_without_origin":  {"http://127.0.0.1:7071/", "Sec-Fetch-Site", "cross-site", http.StatusForbidden},
		"no_invocation_id":        {"http://127.0.0.1:7071/", "X-Azure-Functions-InvocationId", "", http.StatusForbidden},
		"invocation_id_no_guid":   {"http://127.0.0.1:7071/", "X-Azure-Functions-InvocationId", "42", http.StatusForbidden},
		"form":                    {"http://127.0.0.1:7071/", "Content-Type", "text/plain", http.StatusForbidden},
		"parameter_twice":         {"http://127.0.0.1:7071/", "Content-Type", "application/json; a=1; a=2", http.StatusForbidden},
		"no_content_type":         {"http://127.0.0.1:7071/", "Content-Type", "", http.StatusForbidden},
		"content_type_in_capital": {"http://127.0.0.1:7071/", "Content-Type", "Application/JSON", http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			a := newApp(t, answers(503))
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, c.url+function, strings.NewReader(binary(content, goodMetadata)))
			request.Header.Set("Content-Type", "application/json; charset=utf-8")
			request.Header.Set("X-Azure-Functions-InvocationId", invocationID)
			if c.header != "" {
				request.Header.Set(c.header, c.value)
			}
			recorder := httptest.NewRecorder()
			a.ServeHTTP(recorder, request)
			if recorder.Code != c.want {
				t.Fatalf("answered %d %s, want %d", recorder.Code, recorder.Body, c.want)
			}
			if written := len(a.contents(t, mainQueue)); (written == 1) != (c.want == http.StatusOK) {
				t.Errorf("%d successors written", written)
			}
		})
	}
}
