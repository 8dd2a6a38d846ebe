package outbound

import (
	"net/http"
	"net/url"
	"slices"

	"asynccaller/handler/internal/secret"
)

// checkRedirect decides whether a redirect is followed: 307 and 308 always, 301, 302 and 303 for GET
// and HEAD only, because following one with another method would lose the body; at most ten. A redirect
// that is not followed is the answer.
func checkRedirect(next *http.Request, via []*http.Request) error {
	switch {
	case len(via) > maxRedirects:
		return http.ErrUseLastResponse
	case !keepsMethod(next.Response.StatusCode) && !slices.Contains([]string{http.MethodGet, http.MethodHead}, via[0].Method):
		return http.ErrUseLastResponse
	}
	// net/http would tell the next target the whole URL of the one before, its query included.
	if via[0].Header.Get("Referer") == "" {
		next.Header.Del("Referer")
	}
	if leavesHost(next, via) {
		for name := range next.Header {
			if secret.Is(name) {
				delete(next.Header, name)
			}
		}
	}
	return nil
}

// leavesHost reports whether any redirect so far led to another host. That a later one leads back makes no
// difference: it may be the other host that knows where to send the call for its credentials.
func leavesHost(next *http.Request, via []*http.Request) bool {
	from := via[0].URL
	for _, request := range append(via[1:len(via):len(via)], next) {
		if !sameHost(from, request.URL) {
			return true
		}
		from = request.URL
	}
	return false
}

// sameHost reports whether credentials for one URL may be sent to another: the host and the port are the
// same, and TLS is not given up. From http to https is no other host if both ports are the usual ones.
func sameHost(from, to *url.URL) bool {
	if from.Hostname() != to.Hostname() {
		return false
	}
	upgrade := from.Scheme == "http" && to.Scheme == "https" && port(from) == "80" && port(to) == "443"
	return upgrade || from.Scheme == to.Scheme && port(from) == port(to)
}

func port(u *url.URL) string {
	switch port := u.Port(); {
	case port != "":
		return port
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

func keepsMethod(status int) bool {
	return status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect
}

// isRedirect reports whether a response is one that http.Client follows if it may.
func isRedirect(response *http.Response) bool {
	switch response.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}
