// Package outbound makes the call: it sends what an envelope asks for to its target and says what came
// of it. It never fails; every way to end is a [decision.Outcome].
package outbound

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"asynccaller/handler/decision"
	"asynccaller/handler/envelope"
	"asynccaller/handler/guard"
)

// Limits of a call.
const (
	// maxAnswerBytes is how much of an answer's body is kept: what a callback can carry at most.
	maxAnswerBytes = 64 << 10
	// firstAnswerBytes is what room is made for before more has come.
	firstAnswerBytes = 1 << 10
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

// errTimeout tells the end of a call's own time from every other end of its context.
var errTimeout = errors.New("no answer in time")

// Client makes calls. It is safe for concurrent use.
type Client struct {
	single    *roundTripper
	targets   *targets
	transport *http.Transport
	timeout   time.Duration
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
		timeout:   timeout,
	}
}

// Close closes the connections that no call uses.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Do makes the call of an envelope and waits for the answer, at most for the client's timeout or the
// envelope's shorter one. When the context ends the call is interrupted.
func (c *Client) Do(ctx context.Context, e *envelope.Envelope) decision.Outcome {
	started := time.Now()
	timeout := c.timeout
	if e.Call.Timeout > 0 {
		timeout = min(timeout, e.Call.Timeout)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	defer cancel()

	outcome := c.do(ctx, e)
	outcome.Took = time.Since(started)
	return outcome
}

func (c *Client) do(ctx context.Context, e *envelope.Envelope) decision.Outcome {
	// net/http does not tell a connection that breaks during the handshake from one that breaks later.
	// Dialing runs in a goroutine of its own, which may outlive the call.
	var handshakeFailed atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) { handshakeFailed.Store(err != nil) },
	})
	request, err := newRequest(traced, e)
	if err != nil {
		return decision.Outcome{Failure: decision.FailureBadURL, Detail: "the request cannot be made"}
	}
	response, err := c.send(request)
	if err != nil {
		return classify(ctx, err, handshakeFailed.Load())
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

func newRequest(ctx context.Context, e *envelope.Envelope) (*http.Request, error) {
	var body io.Reader
	if e.Call.Body != nil {
		body = bytes.NewReader(e.Call.Body)
	}
	request, err := http.NewRequestWithContext(ctx, e.Call.Method, "", body)
	if err != nil {
		return nil, err
	}
	request.URL, request.Host, request.Header = e.Call.Target, e.Call.Host, forwarded(e.Call.Header)
	setDefault(request.Header, "User-Agent", userAgent)
	setDefault(request.Header, idempotencyKey, e.RequestID)
	request.Header["X-Async-Caller-Attempt"] = []string{strconv.Itoa(e.Attempts + 1)}
	return request, nil
}

// idempotencyKey is not as net/http writes it: a header of that name would tell it that it may repeat the
// request by itself, up to once for each kept-alive connection, when one breaks after the request was sent. On
// the wire the letter case of a name means nothing (RFC 9110, 5.1).
const idempotencyKey = "idempotency-key"

func setDefault(header http.Header, name, value string) {
	if _, set := header[name]; !set {
		header[name] = []string{value}
	}
}

// forwarded copies the headers but those that concern only one connection (RFC 9110, 7.6.1), and the
// length, which follows from the body. It shares the values with the envelope. Keys that net/http would
// understand are hidden from it.
func forwarded(header http.Header) http.Header {
	const ours = 3
	copied := make(http.Header, len(header)+ours)
	maps.Copy(copied, header)
	for _, listed := range header["Connection"] {
		for name := range strings.SplitSeq(listed, ",") {
			copied.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{
		"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length",
	} {
		delete(copied, name)
	}
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, ok := copied[name]; ok {
			delete(copied, name)
			copied[strings.ToLower(name)] = values
		}
	}
	return copied
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
