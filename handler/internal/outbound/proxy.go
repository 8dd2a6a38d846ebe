package outbound

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

// Proxy is the way that calls take out of the operator's network. The zero value is the direct one. It may
// hold a password, so it never shows what it is.
type Proxy struct {
	// use is what http.Transport takes, nil for none: then the environment's variables are not asked
	// either. A function shows nothing, however it is printed.
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

// String says whether there is a proxy, and not which.
func (p Proxy) String() string {
	if p.use == nil {
		return "none"
	}
	return "***"
}

// GoString is the same.
func (p Proxy) GoString() string { return p.String() }

// proxyError says that the proxy does not connect us to a target.
type proxyError struct{ status int }

func (e *proxyError) Error() string { return "the proxy answered " + strconv.Itoa(e.status) }

// proxyAnswered turns a proxy's answer to CONNECT into an error that is not text only.
func proxyAnswered(_ context.Context, _ *url.URL, _ *http.Request, answer *http.Response) error {
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	return &proxyError{answer.StatusCode}
}
