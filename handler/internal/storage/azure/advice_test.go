package azure

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
)

// TestAdvice: the advice fits what went wrong on the way to the account.
func TestAdvice(t *testing.T) {
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	closed, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := closed.Addr().String()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	get := func(address, proxy string) error {
		transport := NewTransport(address)
		if proxy != "" {
			transport.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: proxy})
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := (&http.Client{Transport: transport}).Do(request)
		if err == nil {
			_ = response.Body.Close()
			t.Fatalf("GET %s: no error", address)
		}
		return describe("list queues", err)
	}
	unwilling := httptest.NewServer(http.NotFoundHandler())
	defer unwilling.Close()
	elsewhere := &net.OpError{Op: "dial", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 4)}, Err: syscall.ECONNREFUSED}
	for name, row := range map[string]struct {
		err  error
		want string
	}{
		"refused_here":       {get("http://"+nobody, ""), "start Azurite"},
		"refused_on_windows": {fmt.Errorf("list queues: %w", syscall.Errno(10061)), "start Azurite"},
		"refused_elsewhere":  {fmt.Errorf("list queues: %w", elsewhere), "private endpoints"},
		"refused_by_proxy":   {get("https://acme.queue.core.windows.net", nobody), "HTTPS_PROXY"},
		"refused_at_proxy":   {get("https://acme.queue.core.windows.net", unwilling.Listener.Addr().String()), "NO_PROXY"},
		"certificate":        {get(secure.URL, ""), "SSL_CERT_FILE"},
		"other":              {errors.New("no answer"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := Advice(row.err, Roles)
			isOther := row.want == "" && got != ""
			if !strings.Contains(got, row.want) || isOther {
				t.Errorf("%v: advice %q, want %q", row.err, got, row.want)
			}
		})
	}
}
