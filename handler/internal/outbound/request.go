package outbound

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"asynccaller/handler/internal/dotnet"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/guard"
	"asynccaller/handler/internal/secret"
	"asynccaller/handler/internal/targets"
)

const userAgent = "async-caller"

// addedKey is the key of a context's value with the names of the headers that the target's profile has added.
type addedKey struct{}

// newRequest returns the request for the next attempt at an envelope's call, with the headers of the target's profile.
func newRequest(ctx context.Context, e *envelope.Envelope, profile targets.Profile) (*http.Request, error) {
	added := addedBy(profile, e)
	if len(added) > 0 {
		ctx = context.WithValue(ctx, addedKey{}, added)
	}
	var body io.Reader
	if e.Call.Body != nil {
		body = bytes.NewReader(e.Call.Body)
	}
	request, err := http.NewRequestWithContext(ctx, e.Call.Method, "", body)
	if err != nil {
		return nil, err
	}
	request.URL, request.Host, request.Header = e.Call.Target, e.Call.Host, header(e, profile, added)
	return request, nil
}

// traced are the headers of the trace. They replace those of the envelope, and their names are sent in lower case.
var traced = []string{envelope.HeaderTraceparent, envelope.HeaderTracestate}

// repeatable are the headers that make net/http repeat a request by itself, up to once for each kept-alive
// connection, when a connection breaks after the request was sent. One attempt must be one call. net/http does not
// recognize them in lower case, and few receivers compare letter case (RFC 9110, 5.1).
var repeatable = []string{"Idempotency-Key", "X-Idempotency-Key"}

// addedBy returns the canonical names of those headers that a profile adds to an envelope's call. The envelope's own take
// precedence. A Host header can lead the call to another host than the profile's, and a TRACE call can return its headers
// to the sender (RFC 9110, 9.3.8): they get none.
func addedBy(profile targets.Profile, e *envelope.Envelope) (names []string) {
	host := &url.URL{Scheme: e.Call.Target.Scheme, Host: e.Call.Host}
	if host.Host != "" && !sameHost(e.Call.Target, host) || e.Call.Method == http.MethodTrace {
		return nil
	}
	for name := range profile.Headers {
		_, own := e.Call.Header[name]
		if name == "Authorization" && e.Call.Target.User != nil {
			own = true // net/http makes one of the user info
		}
		if !own {
			names = append(names, name)
		}
	}
	return names
}

// header returns the headers of the request: those of the envelope without the hop-by-hop ones, those added by the profile,
// and our own. The names are in the spelling of who wrote them, each in only one. It shares the values with their owners.
func header(e *envelope.Envelope, profile targets.Profile, added []string) http.Header {
	sent := make(http.Header, len(e.Call.Header))
	maps.Copy(sent, e.Call.Header)
	for _, listed := range e.Call.Header["Connection"] {
		for name := range strings.SplitSeq(listed, ",") {
			sent.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range envelope.HopByHop {
		delete(sent, name)
	}
	for _, name := range added {
		sent[name] = profile.Headers[name]
	}
	setDefault(sent, "User-Agent", userAgent)
	setDefault(sent, "Idempotency-Key", e.RequestID)
	sent.Set("X-Async-Caller-Attempt", strconv.Itoa(e.Attempts+1))
	if e.Trace.SpanID != "" {
		sent[envelope.HeaderTraceparent] = []string{e.Trace.Traceparent()}
		delete(sent, envelope.HeaderTracestate)
	}
	if e.Trace.State != "" {
		sent[envelope.HeaderTracestate] = []string{e.Trace.State}
	}
	spell := func(name, spelled string) {
		if values, ok := sent[name]; ok {
			delete(sent, name)
			sent[spelled] = values
		}
	}
	for name, spelled := range e.Call.Spelling {
		spell(name, spelled)
	}
	for _, name := range added {
		spell(name, profile.Spelling.Of(name))
	}
	setDefault(sent, "User-Agent", "") // otherwise net/http adds its own
	for _, name := range slices.Concat(traced, repeatable) {
		spell(name, strings.ToLower(name))
	}
	return sent
}

func setDefault(header http.Header, name, value string) {
	if _, ok := header[name]; !ok {
		header.Set(name, value)
	}
}

// checkRedirect decides whether the client follows a redirect: 307 and 308 always; 303 with GET, or HEAD after HEAD, because
// the call was handled and the result is elsewhere (RFC 9110, 15.4.4); 301 and 302 only for GET and HEAD, because any
// other method would lose its body; at most ten; never from https to http. If the client does not follow a redirect, the
// redirect is the answer.
func checkRedirect(next *http.Request, via []*http.Request) error {
	latest := via[len(via)-1]
	moved := next.Response.StatusCode == http.StatusMovedPermanently || next.Response.StatusCode == http.StatusFound
	if len(via) > maxRedirects || moved && next.Method != latest.Method || givesUpTLS(latest.URL, next.URL) {
		return http.ErrUseLastResponse
	}
	// net/http sends the URL of the previous target, with its query.
	if via[0].Header.Get("Referer") == "" {
		next.Header.Del("Referer")
	}
	if dropsContent(next, via) {
		maps.DeleteFunc(next.Header, func(name string, _ []string) bool { return dotnet.IsContentHeader(name) })
	}
	if leavesHost(next, via) {
		added, _ := next.Context().Value(addedKey{}).([]string)
		for name := range next.Header {
			if secret.Is(name) || slices.Contains(added, http.CanonicalHeaderKey(name)) {
				delete(next.Header, name)
			}
		}
	}
	return nil
}

// dropsContent reports whether any redirect so far asked for a request without content. net/http then sends no body, but
// copies most content headers from the first request.
func dropsContent(next *http.Request, via []*http.Request) bool {
	return slices.ContainsFunc(append(via[1:len(via):len(via)], next), func(r *http.Request) bool { return !keepsMethod(r.Response.StatusCode) })
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

// givesUpTLS reports whether a redirect would send in the clear what the sender encrypts.
func givesUpTLS(from, to *url.URL) bool { return from.Scheme == "https" && to.Scheme == "http" }

// sameHost reports whether credentials for one URL may be sent to another: host and port are the same. An upgrade from
// http to https on the default ports stays on the same host.
func sameHost(from, to *url.URL) bool {
	if from.Hostname() != to.Hostname() {
		return false
	}
	upgrade := from.Scheme == "http" && to.Scheme == "https" && guard.Port(from) == "80" && guard.Port(to) == "443"
	return upgrade || from.Scheme == to.Scheme && guard.Port(from) == guard.Port(to)
}

func keepsMethod(status int) bool {
	return status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect
}

// isRedirect reports whether [http.Client] considers following an answer with the status.
func isRedirect(status int) bool {
	return keepsMethod(status) || status == http.StatusMovedPermanently || status == http.StatusFound || status == http.StatusSeeOther
}
