package outbound_test

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/rules/decision"
)

// No timeout ends the connection of a protocol switch, so the client must not read from it.
func TestSwitchingProtocolsDoesNotHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newPipedClient(t, time.Second, func(c net.Conn) {
			if _, err := readHead(c); err == nil {
				_, _ = io.WriteString(c,
					"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
				hang(c)
			}
		})
		if o := client.Do(t.Context(), mustEnvelope(t, object{"url": "http://target.example"})); o.Status != 101 ||
			o.Took > time.Second {
			t.Errorf("got status %d after %v, want 101 at once", o.Status, o.Took)
		}
	})
}

func TestPlainServerCalledByTLS(t *testing.T) {
	server := newTestServer(t, nil)
	o := newClient(t, longTimeout).Do(t.Context(), secretCall(t, "https", server.Listener.Addr().String()))
	wantFailure(t, o, decision.FailureTLS)
}

func TestInterruptedHandshake(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	go func() {
		if c, err := listener.Accept(); err == nil {
			_ = c.Close()
		}
	}()
	o := newClient(t, longTimeout).Do(t.Context(), secretCall(t, "https", listener.Addr().String()))
	wantFailure(t, o, decision.FailureTLS)
}

func TestRedirectToInvalidURL(t *testing.T) {
	for _, location := range []string{
		"http://[::1", "http://a b/", "http:///x", "https://", "http://exa%zzmple/",
		"http://127.0.0.1:99999/",
	} {
		t.Run(location, func(t *testing.T) {
			o := newClient(t, longTimeout).
				Do(t.Context(), mustEnvelope(t, object{"url": redirecting(t, 307, location).URL}))
			wantFailure(t, o, decision.FailureRedirected)
		})
	}
}
