package outbound_test

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/deliver/outbound"
	"asynccaller/handler/internal/rules/decision"
)

// newPipedClient returns a client that connects to invented targets by pipes, so that it works in a synctest bubble.
// The function handles each connection, which is closed when the function returns.
func newPipedClient(t *testing.T, timeout time.Duration, server func(c net.Conn)) *outbound.Client {
	t.Helper()
	var servers sync.WaitGroup
	t.Cleanup(servers.Wait)
	client := newClient(t, timeout)
	client.ConnectBy(func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		servers.Go(func() {
			server(theirs)
			_ = theirs.Close()
		})
		return ours, nil
	})
	return client
}

// advance advances the clock of the synctest bubble.
func advance(d time.Duration) {
	passed := make(chan struct{})
	time.AfterFunc(d, func() { close(passed) })
	<-passed
}

// hang reads everything and answers nothing, until the client closes the connection.
func hang(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// drip sends a beginning and then one byte per second, until the client closes the connection.
func drip(beginning string) func(net.Conn) {
	return func(c net.Conn) {
		if _, err := readHead(c); err != nil {
			return
		}
		for text := beginning; ; text = "x" {
			if _, err := io.WriteString(c, text); err != nil {
				return
			}
			advance(time.Second)
		}
	}
}

// TestTimeout: a call ends after the timeout of its profile, or else the client's, or the envelope's shorter one. The
// client waits a moment, and no longer, for a body that nobody needs.
func TestTimeout(t *testing.T) {
	const (
		target, needed = "http://target.example", "http://target.example/needed"
		none, noEnd    = "0 timeout: no answer in time", "timeout: answered 200, but the body did not end"
		moment, whole  = 100 * time.Millisecond, 120 * time.Second
		ok, bad        = "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 400 Bad\r\n\r\n"
	)
	long := strings.Repeat("x", 64<<10)
	x, noEndOf400 := long[:20], strings.Replace(noEnd, "200", "400", 1)
	for name, test := range map[string]struct {
		url, timeout string
		server       func(net.Conn)
		want         string
		took         time.Duration
	}{
		"no_answer":           {target, "", hang, none, whole},
		"endless_status_line": {target, "", drip("HTTP/1.1 200 "), none, whole},
		"endless_headers":     {target, "", drip("HTTP/1.1 200 OK\r\nX-"), none, whole},
		"shorter_by_envelope": {target, "90s", hang, none, 90 * time.Second},
		"never_longer":        {target, "1h", hang, none, whole},
		"handshake_hangs": {
			"https://target.example", "", hang, "0 timeout: connecting took too long", 10 * time.Second,
		},
		"endless_body":      {needed, "", drip(ok), "200 " + x + "... " + noEnd, whole},
		"endless_failure":   {target, "1500ms", drip(bad), "400 x... " + noEndOf400, 1500 * time.Millisecond},
		"body_nobody_needs": {target, "", drip(ok), "200", moment},
		"none_of_that_body": {target, "", drip("HTTP/1.1 201 OK\r\nContent-Length: 9\r\n\r\n"), "201", moment},
		"rest_nobody_needs": {needed, "", drip(ok + long), "200 " + x, moment},
		"rest_of_a_failure": {target, "", drip(bad + long), "400 " + x, moment},
		"rest_with_signal": {
			target, "", drip(bad + `{"` + long), `400 {"` + x[2:] + "... " + noEndOf400, whole,
		},
		"longer_profile":       {"http://slow.example", "", hang, none, 200 * time.Second},
		"shorter_profile":      {"http://fast.example", "90s", hang, none, 2 * time.Second},
		"envelope_and_profile": {"http://slow.example", "150s", hang, none, 150 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := newPipedClient(t, whole, test.server).WithProfiles(mustProfiles(t,
					`{"slow.example":{"timeout":"200s"},"fast.example":{"timeout":"2s"},"*":{"concurrency":1}}`))
				call, more := object{"url": test.url + "?code=" + canary}, object{}
				if test.timeout != "" {
					call["timeout"] = test.timeout
				}
				if test.url == needed {
					more = reported
				}
				o := client.Do(t.Context(), mustEnvelope(t, call, more))
				wantNoSecret(t, o)
				if got := summary(o); got != test.want || o.Took != test.took {
					t.Errorf("got  %s after %v\nwant %s after %v", got, o.Took, test.want, test.took)
				}
			})
		})
	}
}

// The client sends a small request in one write, because each write costs two system calls.
func TestCallIsOneWrite(t *testing.T) {
	for _, body := range []string{"", "the last words"} {
		first := make([]byte, 4<<10)
		client := newPipedClient(t, longTimeout, func(c net.Conn) {
			n, _ := c.Read(first) // the data of one write
			first = first[:n]
			_, _ = io.WriteString(c, noContent)
		})
		e := mustEnvelope(t, object{"url": "http://target.example", "body": body})
		wantAnswer(t, client.Do(t.Context(), e), 204)
		if !strings.HasSuffix(string(first), "\r\n\r\n"+body) {
			t.Errorf("the first write was %q", first)
		}
	}
}

// A slow answer within the timeout is used.
func TestSlowAnswer(t *testing.T) {
	answer := func(c net.Conn) {
		if _, err := readHead(c); err != nil {
			return
		}
		advance(119 * time.Second)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate")
	}
	synctest.Test(t, func(t *testing.T) {
		client := newPipedClient(t, 120*time.Second, answer)
		o := client.Do(t.Context(), mustEnvelope(t, object{"url": "http://target.example"}, reported))
		wantAnswer(t, o, 200)
		if string(o.Body) != "late" || o.Truncated || o.Took != 119*time.Second {
			t.Errorf("got %q, truncated %v, after %v", o.Body, o.Truncated, o.Took)
		}
	})
}

// TestStopping: a stop interrupts a call, wherever it is.
func TestStopping(t *testing.T) {
	const target = "http://target.example/"
	redirectThenHang := func(c net.Conn) {
		if head, err := readHead(c); err == nil && strings.HasPrefix(head, "GET / ") {
			_, _ = io.WriteString(c,
				"HTTP/1.1 307 Go\r\nLocation: /there\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
			return
		}
		hang(c)
	}
	for name, test := range map[string]struct {
		url    string
		server func(net.Conn)
		after  time.Duration
		want   decision.Failure
	}{
		"before_the_call":      {target, hang, 0, decision.FailureInterrupted},
		"during_the_call":      {target, hang, time.Minute, decision.FailureInterrupted},
		"during_the_handshake": {"https://target.example", hang, time.Second, decision.FailureInterrupted},
		"behind_a_redirect":    {target, redirectThenHang, time.Second, decision.FailureInterrupted},
		"during_the_body":      {target, drip("HTTP/1.1 200 OK\r\n\r\n"), time.Minute, decision.FailureInterrupted},
		"after_the_timeout":    {target, hang, 3 * time.Minute, decision.FailureTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := newPipedClient(t, 120*time.Second, test.server)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				if test.after == 0 {
					stop()
				}
				defer time.AfterFunc(test.after, stop).Stop()
				o := client.Do(ctx, mustEnvelope(t, object{"url": test.url}, reported))
				wantFailure(t, o, test.want)
				if want := min(test.after, 120*time.Second); o.Took != want {
					t.Errorf("it took %v, want %v", o.Took, want)
				}
			})
		})
	}
}

// TestSwitchingProtocols: no timeout ends the connection of a protocol switch, so the client must not read from it.
func TestSwitchingProtocols(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newPipedClient(t, time.Second, func(c net.Conn) {
			if _, err := readHead(c); err == nil {
				_, _ = io.WriteString(c,
					"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
				hang(c)
			}
		})
		o := client.Do(t.Context(), mustEnvelope(t, object{"url": "http://target.example"}))
		if o.Status != 101 || o.Took > 0 {
			t.Errorf("got status %d after %v, want 101 at once", o.Status, o.Took)
		}
	})
}
