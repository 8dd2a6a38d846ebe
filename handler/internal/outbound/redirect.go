package outbound

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"

	"asynccaller/handler/internal/secret"
)

// checkRedirect decides whether the client follows a redirect: 307 and 308 always; 301, 302 and 303 only for GET
// and HEAD, because any other method would lose its body; at most ten. If the client does not follow a redirect,
// the redirect is the answer.
func checkRedirect(next *http.Request, via []*http.Request) error {
	first := via[0]
	bodyless := first.Method == http.MethodGet || first.Method == http.MethodHead
	if len(via) > maxRedirects || !bodyless && !keepsMethod(next.Response.StatusCode) {
		return http.ErrUseLastResponse
	}
	// net/http sends the URL of the previous target, with its query.
	if first.Header.Get("Referer") == "" {
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

// leavesHost reports whether any redirect so far led to another host. A later redirect back changes nothing: the
// other host may know where to send the call to obtain its credentials.
func leavesHost(next *http.Request, via []*http.Request) bool {
	chain := append(slices.Clone(via), next)
	for i := range via {
		if !sameHost(chain[i].URL, chain[i+1].URL) {
			return true
		}
	}
	return false
}

// sameHost reports whether credentials for one URL may be sent to another: host and port are the same, and TLS is
// not given up. An upgrade from http to https on the default ports stays on the same host.
func sameHost(from, to *url.URL) bool {
	if from.Hostname() != to.Hostname() {
		return false
	}
	upgrade := from.Scheme == "http" && to.Scheme == "https" && port(from) == "80" && port(to) == "443"
	return upgrade || from.Scheme == to.Scheme && port(from) == port(to)
}

func port(u *url.URL) string {
	return cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
}

func keepsMethod(status int) bool {
	return status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect
}

// isRedirect reports whether [http.Client] considers following an answer with the status.
func isRedirect(status int) bool {
	return keepsMethod(status) || status == http.StatusMovedPermanently || status == http.StatusFound || status == http.StatusSeeOther
}
