package outbound

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

// Proxy is the proxy that calls go through. The zero value is none. It may hold a password, which it never prints.
type Proxy struct {
	// use is the field Proxy of http.Transport, nil for none, so that net/http does not read the environment's
	// variables. Package fmt prints nothing of what a function holds.
	use func(*http.Request) (*url.URL, error)
}

// ParseProxy reads the URL of a proxy. The error does not repeat it.
func ParseProxy(text string) (Proxy, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) || u.Hostname() == "":
	case u.Path != "" && u.Path != "/", u.RawQuery != "", u.Fragment != "":
	default:
		if n, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() == "" || err == nil && n > 0 {
			return Proxy{http.ProxyURL(u)}, nil
		}
	}
	return Proxy{}, errors.New("give an http, https or socks5 URL such as http://proxy.example:3128, or none")
}

// proxyError is a proxy's refusal to connect to a target.
type proxyError struct{ status int }

func (e *proxyError) Error() string { return "the proxy answered " + strconv.Itoa(e.status) }

// checkProxyAnswer turns a proxy's refusal of CONNECT into a typed error; net/http's has only a text.
func checkProxyAnswer(_ context.Context, _ *url.URL, _ *http.Request, answer *http.Response) error {
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	return &proxyError{answer.StatusCode}
}
