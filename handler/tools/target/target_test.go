package target_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"asynccaller/handler/tools/target"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustStart(t *testing.T) *target.Target {
	t.Helper()
	s, err := target.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func mustRequest(ctx context.Context, t *testing.T, url string) *http.Request {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Idempotency-Key", "m")
	request.Header.Set("X-Async-Caller-Attempt", "2")
	return request
}

// call returns the status, 0 for none, the number of bytes received of the body, at most 1 MiB, and whether they came
// without an error.
func call(ctx context.Context, t *testing.T, url string) (status int, length int64, whole bool) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(mustRequest(ctx, t, url))
	if err != nil {
		return 0, 0, false
	}
	defer response.Body.Close()
	length, err = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20))
	return response.StatusCode, length, err == nil
}

func TestAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		length      int64
		whole, slow bool
	}{
		"200":           {length: 14, whole: true},
		"204":           {whole: true},
		"503":           {length: 14, whole: true},
		"reset":         {},
		"close":         {},
		"half-head":     {},
		"garbage":       {},
		"half-body-503": {length: 7},
		"half-body-200": {length: 7},
		"later-429":     {whole: true},
		"huge-200":      {length: 1 << 20, whole: true},
		"hang":          {slow: true},
		"drip-head":     {slow: true},
		"drip-body-200": {slow: true, length: 1},
	} {
		t.Run(name, func(t *testing.T) {
			answer, err := target.Parse(name)
			if err != nil {
				t.Fatal(err)
			}
			ctx := t.Context()
			if test.slow {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 500*time.Millisecond)
				defer cancel()
			}
			status, length, whole := call(ctx, t, mustStart(t).URL(name))
			if status != answer.Status || length != test.length || whole != test.whole {
				t.Errorf("status %d, %d bytes, whole %v; want %d, %d, %v", status, length, whole, answer.Status,
					test.length, test.whole)
			}
		})
	}
}

func TestScript(t *testing.T) {
	s := mustStart(t)
	for n, want := range []int{503, 0, 200, 200} {
		if status, _, _ := call(t.Context(), t, s.URL("503,reset,200")); status != want {
			t.Errorf("call %d was answered %d, want %d", n+1, status, want)
		}
	}
	calls := s.Calls("m")
	if len(calls) != 4 || calls[1].Answer != "reset" || calls[1].Attempt != "2" || string(calls[1].Body) != "body" {
		t.Errorf("recorded %+v", calls)
	}
	if status, _, _ := call(t.Context(), t, s.URL("nonsense")); status != http.StatusInternalServerError {
		t.Errorf("an unknown script was answered %d", status)
	}
}

// TestCloseEndsCallsThatHang checks that an answer that begins and then hangs ends with its server.
func TestCloseEndsCallsThatHang(t *testing.T) {
	stalled := target.Answer{Status: 200, Length: target.Huge, Sent: 10, Then: target.Hang}
	s, err := target.Serve(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		stalled.Write(w, r)
	}))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	response, err := transport.RoundTrip(mustRequest(t.Context(), t, "http://"+s.Addr))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.ReadFull(response.Body, make([]byte, 10)); err != nil || s.Busy() != 1 ||
		response.ContentLength != target.Huge {
		t.Errorf("error %v, %d busy connections, length %d", err, s.Busy(), response.ContentLength)
	}
	s.Close()
	if _, err := response.Body.Read(make([]byte, 1)); err == nil {
		t.Error("the answer went on")
	}
}

func TestRefuse(t *testing.T) {
	s := mustStart(t)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	post := func() error {
		response, err := transport.RoundTrip(mustRequest(t.Context(), t, s.URL("200")))
		if err != nil {
			return err
		}
		defer response.Body.Close()
		_, err = io.Copy(io.Discard, response.Body)
		return err
	}
	if err := post(); err != nil || s.Connections() != 1 {
		t.Fatalf("error %v, %d connections, want one", err, s.Connections())
	}
	ctx, end := context.WithCancel(t.Context())
	refused := make(chan error)
	for range 2 { // at the same time
		go func() { refused <- s.Refuse(ctx, time.Hour) }()
	}
	for !errors.Is(post(), syscall.ECONNREFUSED) {
	}
	end()
	for range 2 {
		if err := <-refused; err != nil {
			t.Fatal(err)
		}
	}
	if err := post(); err != nil {
		t.Error(err)
	}
}
