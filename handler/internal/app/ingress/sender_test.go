package ingress_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestSender: a request that the Functions host does not send is refused. No call is made for it, and no task runs.
func TestSender(t *testing.T) {
	const content = `{"asyncCaller":1,"call":{"url":"https://t.example/"}}`
	for name, c := range map[string]struct {
		host, header, value string
		want                int
	}{
		"as_the_host":            {"127.0.0.1:7071", "User-Agent", "Azure-Functions-Host/4.1052", http.StatusOK},
		"localhost":              {"localhost:7071", "", "", http.StatusForbidden},
		"ipv6":                   {"[::1]:7071", "", "", http.StatusForbidden},
		"ipv4_in_ipv6":           {"[::ffff:127.0.0.1]:7071", "", "", http.StatusForbidden},
		"other_loopback":         {"127.0.0.2:7071", "", "", http.StatusForbidden},
		"short_address":          {"127.1:7071", "", "", http.StatusForbidden},
		"no_host":                {"", "", "", http.StatusForbidden},
		"no_port":                {"127.0.0.1", "", "", http.StatusForbidden},
		"other_port":             {"127.0.0.1:7072", "", "", http.StatusForbidden},
		"port_with_a_zero":       {"127.0.0.1:07071", "", "", http.StatusForbidden},
		"host_of_the_app":        {"app.azurewebsites.net", "", "", http.StatusForbidden},
		"name_that_was_rebound":  {"evil.example:7071", "", "", http.StatusForbidden},
		"other_address":          {"10.0.0.4:7071", "", "", http.StatusForbidden},
		"page_in_a_browser":      {"127.0.0.1:7071", "Origin", "https://evil.example", http.StatusForbidden},
		"browser_without_origin": {"127.0.0.1:7071", "Sec-Fetch-Site", "cross-site", http.StatusForbidden},
		"no_invocation_id":       {"127.0.0.1:7071", "X-Azure-Functions-InvocationId", "", http.StatusForbidden},
		"invocation_id_no_guid":  {"127.0.0.1:7071", "X-Azure-Functions-InvocationId", "42", http.StatusForbidden},
		"forwarded_host":         {"127.0.0.1:7071", "X-Forwarded-Host", "app.example", http.StatusForbidden},
		"forwarded_host_empty":   {"127.0.0.1:7071", "X-Forwarded-Host", "", http.StatusForbidden},
		"http_invocation_id":     {"127.0.0.1:7071", "x-ms-invocation-id", invocationID, http.StatusForbidden},
		"form":                   {"127.0.0.1:7071", "Content-Type", "text/plain", http.StatusForbidden},
		"parameter_twice": {
			"127.0.0.1:7071", "Content-Type", "application/json; a=1; a=2",
			http.StatusForbidden,
		},
		"no_content_type":         {"127.0.0.1:7071", "Content-Type", "", http.StatusForbidden},
		"content_type_in_capital": {"127.0.0.1:7071", "Content-Type", "Application/JSON", http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			a := newTaskApp(t, func(context.Context) (string, error) { runs++; return "done", nil })
			for path, next := range map[string]string{
				function: "the host keeps the message and delivers it again",
				taskName: "it runs again at its next time",
			} {
				a.log.Reset()
				request := invocation(t, path, binary(content, goodMetadata))
				request.Host = c.host
				if c.header != "" {
					request.Header.Set(c.header, c.value)
				}
				recorder := httptest.NewRecorder()
				a.ServeHTTP(recorder, request)
				if recorder.Code != c.want {
					t.Fatalf("%s answered %d %s, want %d", path, recorder.Code, recorder.Body, c.want)
				}
				line := a.mustOneLine(t)
				isRefused := line["message"] == "invocation refused: "+next && line["level"] == "error"
				if isRefused != (c.want == http.StatusForbidden) || line["function"] != path {
					t.Errorf("logged %v", line)
				}
			}
			want := 0
			if c.want == http.StatusOK {
				want = 1
			}
			if written := len(a.contents(t, mainQueue)); written != want || runs != want {
				t.Errorf("%d successors written, %d runs, want %d", written, runs, want)
			}
		})
	}
}
