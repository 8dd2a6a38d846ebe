package outbound_test

import (
	"context"
	"io"
	"net"
	"net/http"
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

func TestTimeout(t *testing.T) {
	tests := map[string]struct {
		url     string
		server  func(net.Conn)
		timeout string // of the envelope
		want    decision.Failure
		took    time.Duration
	}{
		"no_answer": {"http://target.example", hang, "", decision.FailureTimeout, 120 * time.Second},
		"endless_status_line": {
			"http://target.example", drip("HTTP/1.1 200 "), "", decision.FailureTimeout,
			120 * time.Second,
		},
		"endless_headers": {
			"http://target.example", drip("HTTP/1.1 200 OK\r\nX-"), "", decision.FailureTimeout,
			120 * time.Second,
		},
		"shorter_by_envelope": {"http://target.example", hang, "90s", decision.FailureTimeout, 90 * time.Second},
		"never_longer":        {"http://target.example", hang, "1h", decision.FailureTimeout, 120 * time.Second},
		"handshake_hangs":     {"https://target.example", hang, "", decision.FailureTimeout, 10 * time.Second},
		"endless_body": {
			"http://target.example/reported", drip("HTTP/1.1 200 OK\r\n\r\n"), "",
			decision.FailureTimeout, 120 * time.Second,
		},
		"endless_failure_body": {
			"http://target.example", drip("HTTP/1.1 503 Busy\r\n\r\n"), "5s",
			decision.FailureTimeout, 5 * time.Second,
		},
		"body_nobody_needs": {
			"http://target.example", drip("HTTP/1.1 200 OK\r\n\r\n"), "", "",
			100 * time.Millisecond,
		},
		"none_of_that_body": {
			"http://target.example", drip("HTTP/1.1 201 OK\r\nContent-Length: 9\r\n\r\n"),
			"", "", 100 * time.Millisecond,
		},
		"rest_nobody_needs": {
			"http://target.example/reported", drip("HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x", 64<<10)), "",
			"", 100 * time.Millisecond,
		},
		"rest_of_a_failure": {
			"http://target.example", drip("HTTP/1.1 400 OK\r\n\r\n" + strings.Repeat("x", 64<<10)), "", "",
			100 * time.Millisecond,
		},
		"rest_with_signal": {
			"http://target.example", drip("HTTP/1.1 400 OK\r\n\r\n{\"" + strings.Repeat("x", 64<<10)), "",
			decision.FailureTimeout, 120 * time.Second,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := newPipedClient(t, 120*time.Second, test.server)
				call := object{"url": test.url + "/?code=" + canary}
				if test.timeout != "" {
					call["timeout"] = test.timeout
				}
				var more object
				if strings.HasSuffix(test.url, "/reported") {
					more = reported
				}
				started := time.Now()
				o := client.Do(t.Context(), mustEnvelope(t, call, more))
				if took := time.Since(started); took != test.took || o.Took != test.took {
					t.Errorf("it took %v and says %v, want %v", took, o.Took, test.took)
				}
				wantFailure(t, o, test.want)
				if body := strings.Contains(name, "body") || strings.Contains(name, "rest"); body != (o.Status != 0) {
					t.Errorf("got status %d", o.Status)
				}
			})
		})
	}
}

// The client sends a small request in one write, because each write costs two system calls.
func TestCallIsOneWrite(t *testing.T) {
	for name, call := range map[string]object{
		"no_body":    {},
		"empty_body": {"body": ""},
		"text":       {"body": "the last words"},
		"base64":     {"bodyBase64": "dGhlIGxhc3Qgd29yZHM="},
	} {
		t.Run(name, func(t *testing.T) {
			var first []byte
			client := newPipedClient(t, longTimeout, func(c net.Conn) {
				first = make([]byte, 4<<10)
				n, _ := c.Read(first) // the data of one write
				first = first[:n]
				_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
			})
			call["url"] = "http://target.example"
			wantAnswer(t, client.Do(t.Context(), mustEnvelope(t, call)), 204)
			end := "\r\n\r\n"
			if name == "text" || name == "base64" {
				end += "the last words"
			}
			if !strings.HasSuffix(string(first), end) {
				t.Errorf("the first write was %q", first)
			}
		})
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

// The timeout of an envelope works with a real server too.
func TestTimeoutOfAnEnvelope(t *testing.T) {
	release := make(chan struct{})
	server := newTestServer(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	o := newClient(t, longTimeout).
		Do(t.Context(), mustEnvelope(t, object{"url": server.URL + "/?code=" + canary, "timeout": "50ms"}))
	wantFailure(t, o, decision.FailureTimeout)
	if o.Took < 50*time.Millisecond || o.Took > longTimeout/2 {
		t.Errorf("it took %v", o.Took)
	}
}

func TestStopping(t *testing.T) {
	tests := map[string]struct {
		server func(net.Conn)
		after  time.Duration
		want   decision.Failure
	}{
		"before_the_call":   {hang, 0, decision.FailureInterrupted},
		"during_the_call":   {hang, time.Minute, decision.FailureInterrupted},
		"during_headers":    {drip("HTTP/1.1 200 OK\r\nX-"), time.Minute, decision.FailureInterrupted},
		"after_the_timeout": {hang, 3 * time.Minute, decision.FailureTimeout},
		"during_the_body":   {drip("HTTP/1.1 200 OK\r\n\r\n"), time.Minute, decision.FailureInterrupted},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := newPipedClient(t, 120*time.Second, test.server)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				if test.after == 0 {
					stop()
				} else {
					defer time.AfterFunc(test.after, stop).Stop()
				}
				o := client.Do(ctx, mustEnvelope(t, object{"url": "http://target.example/?code=" + canary}, reported))
				wantFailure(t, o, test.want)
				if want := min(test.after, 120*time.Second); o.Took != want {
					t.Errorf("it took %v, want %v", o.Took, want)
				}
			})
		})
	}
}

// A stop also interrupts the TLS handshake and the call behind a redirect.
func TestStoppingEarlyAndLate(t *testing.T) {
	redirectThenHang := func(c net.Conn) {
		if head, err := readHead(c); err == nil && head[:6] == "GET / " {
			_, _ = io.WriteString(c,
				"HTTP/1.1 307 Go\r\nLocation: /there\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
			return
		}
		hang(c)
	}
	for url, server := range map[string]func(net.Conn){
		"https://target.example": hang,
		"http://target.example/": redirectThenHang,
	} {
		synctest.Test(t, func(t *testing.T) {
			client := newPipedClient(t, 120*time.Second, server)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			defer time.AfterFunc(time.Second, stop).Stop()
			wantFailure(t, client.Do(ctx, mustEnvelope(t, object{"url": url})), decision.FailureInterrupted)
		})
	}
}
