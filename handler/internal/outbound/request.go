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

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/targets"
)

const userAgent = "async-caller"

// newRequest returns the request for the next attempt at an envelope's call, with those headers of the target's profile
// that it adds.
func newRequest(
	ctx context.Context, e *envelope.Envelope, profile targets.Profile, added []string,
) (*http.Request, error) {
	var body io.Reader
	if e.Call.Body != nil {
		body = bytes.NewReader(e.Call.Body)
	}
	request, err := http.NewRequestWithContext(ctx, e.Call.Method, "", body)
	if err != nil {
		return nil, err
	}
	request.URL, request.Host, request.Header = e.Call.Target, e.Call.Host, header(e, profile, added)
	authorize(request)
	return request, nil
}

// authorize makes an Authorization of the URL's user info, unless the request has one in any spelling.
func authorize(request *http.Request) {
	user := request.URL.User
	if user == nil {
		return
	}
	for name := range request.Header {
		if strings.EqualFold(name, "Authorization") {
			return
		}
	}
	password, _ := user.Password()
	request.SetBasicAuth(user.Username(), password)
}

// traced are the headers of the trace. They replace those of the envelope, and their names are sent in lower case.
var traced = []string{envelope.HeaderTraceparent, envelope.HeaderTracestate}

const idempotencyKey = "Idempotency-Key"

// repeatable are the headers that make net/http repeat a request by itself, up to once for each kept-alive
// connection, when a connection breaks after the request was sent. One attempt must be one call. net/http does not
// recognize them in lower case, and few receivers compare letter case (RFC 9110, 5.1).
var repeatable = []string{idempotencyKey, "X-Idempotency-Key"}

// profiled are the methods whose calls get the headers of a profile. A target can return the headers of other
// methods to the sender: TRACE does (RFC 9110, 9.3.8), and so do TRACK and DEBUG of some servers.
var profiled = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	http.MethodOptions,
}

// addedBy returns the canonical names of those headers that a profile adds to an envelope's call. The envelope's own
// take precedence. It returns none if a Host header could lead the call to another host than the profile's.
func addedBy(profile targets.Profile, e *envelope.Envelope) (names []string) {
	host := &url.URL{Scheme: e.Call.Target.Scheme, Host: e.Call.Host}
	leadsAway := host.Host != "" && !sameHost(e.Call.Target, host)
	if leadsAway || !slices.Contains(profiled, e.Call.Method) {
		return nil
	}
	for name := range profile.Headers {
		_, own := e.Call.Header[name]
		if name == "Authorization" && e.Call.Target.User != nil {
			own = true // made of the user info
		}
		if !own {
			names = append(names, name)
		}
	}
	return names
}

// header returns the headers of the request: those of the envelope without the hop-by-hop ones, those added by the
// profile, and our own. The names are in the spelling of who wrote them, each in only one. It shares the values with
// their owners.
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
	setDefault(sent, idempotencyKey, e.RequestID)
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
