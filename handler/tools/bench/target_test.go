package main

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestTargetHangsUntilReleased(t *testing.T) {
	target := newTarget()
	t.Cleanup(target.close)
	target.behave(manner{hang: true})
	whole, at := request(modeBinary, nil, sizes{})
	l := load{address: target.server.Listener.Addr().String(), request: whole, idAt: at, parallel: 3}
	done := make(chan error, 1)
	go func() { done <- l.once(t.Context()) }()
	for target.hanging.Load() < 3 {
		select {
		case err := <-done:
			t.Fatalf("answered: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	target.release()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := target.calls.Load(); n != 3 {
		t.Errorf("%d calls, want 3", n)
	}
}

// answer is what came of a call; nothing of the body is read yet.
type answer struct {
	status int
	length int64
	body   io.ReadCloser
}

// call makes one call.
func call(t *testing.T, target *target) answer {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target.url(), strings.NewReader("abc"))
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return answer{response.StatusCode, response.ContentLength, response.Body}
}

func TestTargetAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		manner manner
		status int
		length int64
		body   int64
		err    error
	}{
		"status":       {manner{status: 503}, 503, 0, 0, nil},
		"with_length":  {manner{status: 200, announced: 100 << 10, sent: 100 << 10}, 200, 100 << 10, 100 << 10, nil},
		"in_chunks":    {manner{status: 200, sent: 100 << 10}, 200, -1, 100 << 10, nil},
		"breaks_off":   {manner{status: 200, announced: 2000, sent: 1000}, 200, 2000, 1000, io.ErrUnexpectedEOF},
		"bad_request":  {manner{status: 400, sent: 1}, 400, 1, 1, nil},
		"nothing_said": {manner{}, 200, 0, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			target := newTarget()
			t.Cleanup(target.close)
			target.behave(test.manner)
			got := call(t, target)
			n, err := io.Copy(io.Discard, got.body)
			if got.status != test.status || got.length != test.length || n != test.body || !errors.Is(err, test.err) {
				t.Errorf("status %d, length %d, %d bytes, %v; want %+v", got.status, got.length, n, err, test)
			}
			if target.calls.Load() != 1 || target.received.Load() != 3 {
				t.Errorf("%d calls of %d bytes, want one of 3", target.calls.Load(), target.received.Load())
			}
		})
	}
}

// TestTargetStalls: the beginning of an answer arrives before the call is released.
func TestTargetStalls(t *testing.T) {
	for name, announced := range map[string]int64{withLength: gib, inChunks: 0} {
		t.Run(name, func(t *testing.T) {
			target := newTarget()
			t.Cleanup(target.close)
			target.behave(manner{status: http.StatusOK, announced: announced, sent: answeredBytes, hang: true})
			body := call(t, target).body
			if _, err := io.CopyN(io.Discard, body, answeredBytes); err != nil {
				t.Fatal(err)
			}
			more := make(chan error, 1)
			go func() {
				_, err := body.Read(make([]byte, 1))
				more <- err
			}()
			select {
			case err := <-more:
				t.Fatalf("it did not stall: %v", err)
			case <-time.After(20 * time.Millisecond):
			}
			target.release()
			if err := <-more; err == nil {
				t.Error("there was more of the answer")
			}
		})
	}
}

// TestTargetStopsSending: of an endless answer no more is sent than the caller takes.
func TestTargetStopsSending(t *testing.T) {
	target := newTarget()
	target.behave(manner{status: http.StatusOK, announced: gib, sent: gib})
	_ = call(t, target).body.Close()
	closed := make(chan struct{})
	go func() { target.close(); close(closed) }() // waits for calls under way
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Error("it still sends to a caller who has gone")
	}
}

func TestConnectionsPeak(t *testing.T) {
	var c connections
	for _, state := range []http.ConnState{http.StateNew, http.StateActive, http.StateNew, http.StateIdle, http.StateClosed} {
		c.watch(nil, state)
	}
	if most := c.peak(); most != 2 {
		t.Errorf("at most %d, want 2", most)
	}
	if most := c.peak(); most != 1 {
		t.Errorf("at most %d since, want the one that is open", most)
	}
}
