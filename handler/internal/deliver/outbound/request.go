package outbound

import (
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/targets"
)

const userAgent = "async-caller"

// draft has the headers of a request that is being made. Their names are canonical until the last step, and their
// values are shared with their owners.
type draft struct {
	header   http.Header
	envelope *envelope.Envelope
	profile  targets.Profile
	held     held
	// added are the names of the headers that the operator has added: they are only for the targets of the profile.
	added []string
}

// steps complete the headers of a sender's call, in their order.
var steps = []func(*draft){addProfile, addToken, addOwn, addTrace, spell}

// newRequest returns the request for the next attempt at an envelope's call, with the token that it holds. Added are
// the canonical names of the headers that the operator has added.
func newRequest(
	ctx context.Context, e *envelope.Envelope, profile targets.Profile, h held,
) (request *http.Request, added []string, err error) {
	body := e.Call.Body
	request, err = http.NewRequestWithContext(ctx, e.Call.Method, "", body.Reader())
	if err != nil {
		return nil, nil, err
	}
	if request.Body != nil && request.GetBody == nil { // it is inflated, which net/http does not know
		request.ContentLength = int64(body.Len())
		request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(body.Reader()), nil }
	}
	d := draft{header: endToEnd(e.Call.Header), envelope: e, profile: profile, held: h}
	for _, step := range steps {
		step(&d)
	}
	request.URL, request.Host, request.Header = e.Call.Target, e.Call.Host, d.header
	authorize(request)
	return request, append(d.added, sign(request, e, profile)...), nil
}

// endToEnd returns headers without the hop-by-hop ones.
func endToEnd(header http.Header) http.Header {
	sent := make(http.Header, len(header))
	maps.Copy(sent, header)
	for _, listed := range header["Connection"] {
		for name := range strings.SplitSeq(listed, ",") {
			sent.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range envelope.HopByHop {
		delete(sent, name)
	}
	return sent
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

// addProfile adds the headers of the profile, if that is allowed. The envelope's own take precedence.
func addProfile(d *draft) {
	call := d.envelope.Call
	if !targets.AddsTo(call.Method, call.Target, call.Host) {
		return
	}
	for name, values := range d.profile.Headers {
		_, own := call.Header[name]
		if name == "Authorization" && call.Target.User != nil {
			own = true // made of the user info
		}
		if !own {
			d.header[name] = values
			d.added = append(d.added, name)
		}
	}
}

// addToken makes the token the Authorization of the call.
func addToken(d *draft) {
	d.held.set(d.header)
	if d.held.token != "" {
		d.added = append(d.added, "Authorization")
	}
}

// addOwn adds the headers of Async Caller.
func addOwn(d *draft) {
	setDefault(d.header, "User-Agent", userAgent)
	setDefault(d.header, idempotencyKey, d.envelope.RequestID)
	d.header.Set("X-Async-Caller-Attempt", strconv.Itoa(d.envelope.Attempts+1))
}

// addTrace replaces the headers of the trace.
func addTrace(d *draft) {
	trace := d.envelope.Trace
	if trace.SpanID != "" {
		d.header[envelope.HeaderTraceparent] = []string{trace.Traceparent()}
		delete(d.header, envelope.HeaderTracestate)
	}
	if trace.State != "" {
		d.header[envelope.HeaderTracestate] = []string{trace.State}
	}
}

// spell gives the names the spelling of who wrote them, each only one.
func spell(d *draft) {
	rename := func(name, spelled string) {
		if values, ok := d.header[name]; ok {
			delete(d.header, name)
			d.header[spelled] = values
		}
	}
	for name, spelled := range d.envelope.Call.Spelling {
		rename(name, spelled)
	}
	for _, name := range d.added {
		rename(name, d.profile.Spelling.Of(name))
	}
	setDefault(d.header, "User-Agent", "") // otherwise net/http adds its own
	for _, name := range slices.Concat(traced, repeatable) {
		rename(name, strings.ToLower(name))
	}
}

func setDefault(header http.Header, name, value string) {
	if _, ok := header[name]; !ok {
		header.Set(name, value)
	}
}
