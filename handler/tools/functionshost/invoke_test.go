package main

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/listener"
)

// readyInvoker returns an invoker whose handler is a server in this process.
func readyInvoker(t *testing.T, serve http.HandlerFunc) (*invoker, *recorder) {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	client := newClient()
	t.Cleanup(client.CloseIdleConnections)
	ended := make(chan struct{})
	close(ended) // there is no process to kill
	log := newRecorder()
	return &invoker{
		handler: &handler{
			address: server.URL, client: client, readyTimeout: time.Minute,
			ready: &process{done: ended}, becameReady: make(chan struct{}),
		},
		timeout: time.Minute,
		log:     zerolog.New(log),
	}, log
}

func answerObject(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"Logs":["a log line"]}`))
}

func TestInvokeRequest(t *testing.T) {
	var got *http.Request
	var body string
	i, log := readyInvoker(t, func(w http.ResponseWriter, r *http.Request) {
		content, _ := io.ReadAll(r.Body)
		got, body = r, string(content)
		answerObject(w)
	})
	if out := i.invoke(t.Context(), testInvocation(functionapp.DataBinary, "hello")); out != listener.Succeeded {
		t.Fatalf("result %d, want success", out)
	}
	if got.Method != http.MethodPost || got.RequestURI != "/QueueFn" || got.Proto != "HTTP/1.1" {
		t.Errorf("request line %s %s %s", got.Method, got.RequestURI, got.Proto)
	}
	if !strings.HasPrefix(got.Host, "127.0.0.1:") {
		t.Errorf("Host is %q", got.Host)
	}
	for header, want := range map[string]string{
		"Content-Type":                  "application/json; charset=utf-8",
		"User-Agent":                    "Azure-Functions-Host/" + hostVersion,
		"X-Azure-Functions-HostVersion": hostVersion,
		"Accept-Encoding":               "",
	} {
		if value := got.Header.Get(header); value != want {
			t.Errorf("%s is %q, want %q", header, value, want)
		}
	}
	id := got.Header.Get("X-Azure-Functions-InvocationId")
	if len(id) != 36 || strings.Count(log.text(), id) != 3 {
		t.Errorf("invocation id %q is not on the three log lines:\n%s", id, log.text())
	}
	if got.ContentLength != -1 {
		t.Errorf("Content-Length is %d, want a chunked request", got.ContentLength)
	}
	if !strings.HasPrefix(body, `{"Data":{"msg":"aGVsbG8="},"Metadata":{`) {
		t.Errorf("body is %s", body)
	}
	if strings.Contains(log.text(), "aGVsbG8=") || strings.Contains(log.text(), "hello") {
		t.Errorf("the log has the content:\n%s", log.text())
	}
}

// A message that text mode cannot carry fails without an invocation of the handler.
func TestInvokeInvalidText(t *testing.T) {
	i, _ := readyInvoker(t, func(http.ResponseWriter, *http.Request) { t.Error("invoked") })
	if out := i.invoke(t.Context(), testInvocation(functionapp.DataString, "\xff")); out != listener.Failed {
		t.Errorf("result %d, want failure", out)
	}
}

// errAny is any error other than errNoResult.
var errAny = errors.New("any")

func TestJudge(t *testing.T) {
	const jsonType = "application/json"
	for name, test := range map[string]struct {
		status      int
		contentType string
		body        string
		want        error // nil: success; errAny: a failure
	}{
		"object":                {200, jsonType, `{}`, nil},
		"charset":               {200, "Application/JSON; charset=utf-8", `{}`, nil},
		"byte_order_mark":       {200, jsonType, "\ufeff{}", nil},
		"empty":                 {200, jsonType, ``, errNoResult},
		"empty_of_any_type":     {200, "text/plain", ``, errNoResult},
		"null":                  {200, jsonType, ` null `, errNoResult},
		"array":                 {200, jsonType, `[]`, errAny},
		"malformed":             {200, jsonType, `{"Logs":`, errAny},
		"trailing":              {200, jsonType, `{} x`, errAny},
		"text":                  {200, "text/plain", `{}`, errAny},
		"no_type":               {200, "", `{}`, errAny},
		"outputs_are_no_object": {200, jsonType, `{"Outputs":[]}`, errAny},
		"logs_are_no_array":     {200, jsonType, `{"Logs":"x"}`, errAny},
		"bad_request":           {400, jsonType, `{}`, errAny},
		"internal_error":        {500, jsonType, `{}`, errAny},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := judge(test.status, test.contentType, []byte(test.body))
			got := err
			if err != nil && !errors.Is(err, errNoResult) {
				got = errAny
			}
			if !errors.Is(got, test.want) {
				t.Errorf("error %v, want %v", err, test.want)
			}
		})
	}
}
