package outbound_test

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"asynccaller/handler/internal/decision"
)

func TestSwitchingProtocolsDoesNotHang(t *testing.T) {
	release := make(chan struct{})
	server := newWire(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		<-release
	})
	done := make(chan decision.Outcome, 1)
	client, e := newClient(t, 100*time.Millisecond), mustEnvelope(t, object{"url": server.url()})
	go func() { done <- client.Do(context.Background(), e) }()
	select {
	case o := <-done:
		t.Logf("got %+v", o)
	case <-time.After(3 * time.Second):
		t.Error("a call of 100 ms has lasted 3 s")
	}
	close(release)
}

func TestPlainServerCalledByTLS(t *testing.T) {
	server := newTarget(t, nil)
	o := newClient(t, patience).Do(t.Context(), secretive(t, "https", server.Listener.Addr().String()))
	wantFailure(t, o, decision.FailureTLS)
}

func TestHandshakeBrokenOff(t *testing.T) {
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
	o := newClient(t, patience).Do(t.Context(), secretive(t, "https", listener.Addr().String()))
	wantFailure(t, o, decision.FailureTLS)
}

func TestRedirectToNoURL(t *testing.T) {
	for _, location := range []string{"http://[::1", "http://a b/", "http:///x", "https://", "http://exa%zzmple/", "http://127.0.0.1:99999/"} {
		t.Run(location, func(t *testing.T) {
			o := newClient(t, patience).Do(t.Context(), mustEnvelope(t, object{"url": redirecting(t, 307, location).URL}))
			wantFailure(t, o, decision.FailureRedirected)
		})
	}
}
