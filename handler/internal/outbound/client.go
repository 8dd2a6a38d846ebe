// Package outbound makes the call: it sends what an envelope asks for to its target and says what came
// of it. It never fails; every way to end is a [decision.Outcome].
package outbound

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/guard"
)

// Limits of a call.
const (
	// maxAnswerBytes is how much of an answer's body is kept: what a callback can carry at most.
	maxAnswerBytes = 64 << 10
	// firstAnswerBytes is what room is made for before more has come.
	firstAnswerBytes = 512
	// maxDrainBytes is how much more is read so that the connection can be used again. Beyond it a new
	// connection is cheaper.
	maxDrainBytes  = 256 << 10
	maxHeaderBytes = 256 << 10
	maxRedirects   = 10

	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	// idleTimeout is below the 2 to 4 minutes after which Azure's outbound NAT and common load
	// balancers forget a connection.
	idleTimeout = 90 * time.Second
	// maxIdlePerHost matches the calls that all queue functions make at a time (11 times 24 as shipped), with
	// room for more, in case one target gets them all; the default of 2 costs half the throughput.
	maxIdlePerHost = 512
	maxIdle        = 1024
)

const userAgent = "async-caller"

// Client makes calls. It is safe for concurrent use.
type Client struct {
	single    *roundTripper
	targets   *targets
	transport *http.Transport
	deadlines deadlines
}

// New returns a client whose calls last at most timeout and go to targets that the rules allow, through
// the proxy if it is one. The proxy variables of the environment mean nothing to it.
func New(timeout time.Duration, rules guard.Rules, proxy Proxy) *Client {
	targets := newTargets(rules, proxy.use != nil)
	transport := &http.Transport{
		Proxy:                  proxy.use,
		OnProxyConnectResponse: proxyAnswered,
		DialContext:            targets.dial,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    handshakeTimeout,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		ExpectContinueTimeout:  time.Second,
		// The target gets the headers of the envelope and no Accept-Encoding of ours.
		DisableCompression: true,
	}
	return &Client{
		single:    &roundTripper{targets, transport},
		targets:   targets,
		transport: transport,
		deadlines: deadlines{limit: timeout},
	}
}

// Close closes the connections that no call uses.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Do makes the call of an envelope and waits for the answer, at most for the client's timeout or the
// envelope's shorter one. When the context ends the call is interrupted.
func (c *Client) Do(ctx context.Context, e *envelope.Envelope) decision.Outcome {
	started := time.Now()
	ctx = c.deadlines.of(ctx, started)
	if e.Call.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, e.Call.Timeout, errTimeout)
		defer cancel()
	}
	outcome := c.do(ctx, e)
	outcome.Took = time.Since(started)
	return outcome
}

func (c *Client) do(ctx context.Context, e *envelope.Envelope) decision.Outcome {
	var shake handshake
	response, err := c.send(newRequest(shake.watched(ctx), e))
	if err != nil {
		return classify(ctx, err, shake.failed.Load())
	}
	defer response.Body.Close()

	outcome := decision.Outcome{Status: response.StatusCode, Header: response.Header}
	if isRedirect(response) { // that was not followed
		outcome.Failure = decision.FailureRedirected
		outcome.Detail = "answered " + strconv.Itoa(response.StatusCode)
	}
	outcome.Body, outcome.Truncated = readAnswer(response)
	return outcome
}

// handshake tells whether the latest TLS handshake failed: net/http does not tell a connection that breaks
// during the handshake from one that breaks later.
type handshake struct {
	trace httptrace.ClientTrace
	// failed is set by the goroutine that dials, which may outlive the call.
	failed atomic.Bool
}

func (h *handshake) watched(ctx context.Context) context.Context {
	h.trace.TLSHandshakeDone = h.done
	return httptrace.WithClientTrace(ctx, &h.trace)
}

func (h *handshake) done(_ tls.ConnectionState, err error) { h.failed.Store(err != nil) }

// send makes the request and follows its redirects. That is what http.Client does, which copies all headers
// beforehand for a redirect that seldom comes. So it is asked only then, and shown the answer that is there.
func (c *Client) send(request *http.Request) (*http.Response, error) {
	if request.URL.User != nil { // which it makes a header of
		return follow(request, c.single)
	}
	response, err := c.single.RoundTrip(request)
	if err != nil || !isRedirect(response) {
		return response, err
	}
	return follow(request, &replay{response, c.single})
}

func follow(request *http.Request, by http.RoundTripper) (*http.Response, error) {
	client := http.Client{Transport: by, CheckRedirect: checkRedirect}
	return client.Do(request)
}

// replay answers the first request with a response that is there, and makes all others.
type replay struct {
	first *http.Response
	next  http.RoundTripper
}

// RoundTrip is for one request after the other.
func (r *replay) RoundTrip(request *http.Request) (*http.Response, error) {
	if first := r.first; first != nil {
		r.first = nil
		return first, nil
	}
	return r.next.RoundTrip(request)
}

// readAnswer reads the beginning of the body and drains some of the rest. A body that breaks off is a body
// cut short, and no reason to make the call again: the status already told what came of it.
func readAnswer(response *http.Response) (beginning []byte, truncated bool) {
	announced := response.ContentLength // -1 when the target does not say
	if announced == 0 {
		return nil, false
	}
	limit := maxAnswerBytes
	if announced > 0 {
		limit = int(min(announced, maxAnswerBytes))
	}
	// What a target announces costs nothing before it comes: many calls may wait for it at a time.
	beginning = make([]byte, 0, min(limit, firstAnswerBytes))
	for len(beginning) < limit {
		if len(beginning) == cap(beginning) {
			beginning = append(make([]byte, 0, limit), beginning...)
		}
		n, err := response.Body.Read(beginning[len(beginning):cap(beginning)])
		beginning = beginning[:len(beginning)+n]
		if err != nil {
			return beginning, !errors.Is(err, io.EOF)
		}
	}
	if announced > maxAnswerBytes+maxDrainBytes {
		return beginning, true
	}
	n, err := io.CopyN(io.Discard, response.Body, maxDrainBytes)
	return beginning, n > 0 || !errors.Is(err, io.EOF)
}

func newRequest(ctx context.Context, e *envelope.Envelope) *http.Request {
	request := &http.Request{
		Method: e.Call.Method, URL: e.Call.Target, Host: e.Call.Host, Header: header(e),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if content := e.Call.Body; content != nil {
		request.ContentLength = int64(len(content))
		request.GetBody = func() (io.ReadCloser, error) { return newBody(content), nil }
		request.Body = newBody(content)
	}
	return request.WithContext(ctx)
}

// newBody is of those types that net/http knows to be in memory: it sends any other apart from the headers, in a
// write of its own.
func newBody(content []byte) io.ReadCloser {
	if len(content) == 0 {
		return http.NoBody // or net/http would look for a length that it does not trust to be 0
	}
	return io.NopCloser(bytes.NewReader(content))
}

// idempotencyKey is not as net/http writes it: a header of that name would tell it that it may repeat the
// request by itself, up to once for each kept-alive connection, when one breaks after the request was sent. On
// the wire the letter case of a name means nothing (RFC 9110, 5.1).
const idempotencyKey = "idempotency-key"

// header is what is sent: the envelope's own headers, with which it shares the values, but those that
// concern only one connection; and ours, where it has none of that name.
func header(e *envelope.Envelope) http.Header {
	const ours = 3
	sent := make(http.Header, len(e.Call.Header)+ours)
	for name, values := range e.Call.Header {
		if !hopByHop(name) {
			sent[hidden(name)] = values
		}
	}
	for _, listed := range e.Call.Header["Connection"] {
		for name := range strings.SplitSeq(listed, ",") {
			delete(sent, hidden(http.CanonicalHeaderKey(strings.TrimSpace(name))))
		}
	}
	values := [ours]string{userAgent, e.RequestID, strconv.Itoa(e.Attempts + 1)}
	setDefault(sent, "User-Agent", values[0:1:1])
	setDefault(sent, idempotencyKey, values[1:2:2])
	sent["X-Async-Caller-Attempt"] = values[2:]
	return sent
}

func setDefault(header http.Header, name string, values []string) {
	if _, set := header[name]; !set {
		header[name] = values
	}
}

// hopByHop reports whether a header concerns only one connection (RFC 9110, 7.6.1). The length is among them,
// as it follows from the body.
func hopByHop(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length":
		return true
	}
	return false
}

// hidden is a header's name in a form that net/http does not know it by, where it would act on it.
func hidden(name string) string {
	switch name {
	case "Idempotency-Key":
		return idempotencyKey
	case "X-Idempotency-Key":
		return "x-idempotency-key"
	}
	return name
}

// roundTripper makes single requests: those that may be made, with answers that http.Client can always
// deal with.
type roundTripper struct {
	targets   *targets
	transport *http.Transport
}

// RoundTrip takes what would hang or be misunderstood out of an answer: the connection of a protocol
// switch, which no timeout ends, and a Location that cannot be called, which http.Client reports like a
// broken connection.
func (t *roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.roundTrip(request)
	if err != nil {
		if refused, ok := errors.AsType[*refusedError](err); ok && request.Response != nil {
			return nil, &refusedError{"behind a redirect: " + refused.detail}
		}
		return nil, err
	}
	if response.StatusCode == http.StatusSwitchingProtocols {
		_ = response.Body.Close()
		response.Body = http.NoBody
	}
	if location := response.Header.Get("Location"); location != "" {
		next, err := request.URL.Parse(location)
		if err == nil {
			_, err = envelope.ParseURL(next.String())
		}
		if err != nil {
			response.Header.Del("Location")
		}
	}
	return response, nil
}

func (t *roundTripper) roundTrip(request *http.Request) (*http.Response, error) {
	if err := t.targets.judge(request); err != nil {
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return nil, err
	}
	return t.transport.RoundTrip(request)
}
