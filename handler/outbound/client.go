// Package outbound makes the call: it sends what an envelope asks for to its target and says what came
// of it. It never fails; every way to end is a [decision.Outcome].
package outbound

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"asynccaller/handler/decision"
	"asynccaller/handler/envelope"
)

// Limits of a call.
const (
	// maxAnswerBytes is how much of an answer's body is kept: what a callback can carry at most.
	maxAnswerBytes = 64 << 10
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
	// maxIdlePerHost matches the calls that one busy queue function makes at a time (24 by host.json)
	// with room for several functions on one target; the default of 2 costs half the throughput.
	maxIdlePerHost = 128
	maxIdle        = 1024
)

const userAgent = "async-caller"

// ErrStopping is the cause with which the context of a call is cancelled when the handler stops.
var ErrStopping = errors.New("the handler is stopping")

// errTimeout tells the end of a call's own time from every other end of its context.
var errTimeout = errors.New("no answer in time")

// Client makes calls. It is safe for concurrent use.
type Client struct {
	http      http.Client
	transport *http.Transport
	timeout   time.Duration
}

// New returns a client whose calls last at most timeout.
func New(timeout time.Duration) *Client {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	transport := &http.Transport{
		DialContext:            dialer.DialContext,
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
		http:      http.Client{Transport: answers{transport}, CheckRedirect: checkRedirect},
		transport: transport,
		timeout:   timeout,
	}
}

// Close closes the connections that no call uses.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Do makes the call of an envelope and waits for the answer, at most for the client's timeout or the
// envelope's shorter one. When the context ends with the cause [ErrStopping] the call was interrupted.
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
	response, err := c.http.Do(request)
	if err != nil {
		return classify(ctx, err, handshakeFailed.Load())
	}
	defer response.Body.Close()

	outcome := decision.Outcome{Status: response.StatusCode, Header: response.Header}
	if notFollowed(response) {
		outcome.Failure = decision.FailureRedirected
		outcome.Detail = "answered " + strconv.Itoa(response.StatusCode)
	}
	outcome.Body, outcome.Truncated = readAnswer(response.Body)
	return outcome
}

// readAnswer reads the beginning of a body and drains some of the rest. A body that breaks off is a
// body cut short, and no reason to make the call again: the status already told what came of it.
func readAnswer(body io.Reader) (beginning []byte, truncated bool) {
	beginning, err := io.ReadAll(io.LimitReader(body, maxAnswerBytes+1))
	if len(beginning) > maxAnswerBytes {
		_, _ = io.CopyN(io.Discard, body, maxDrainBytes)
		return beginning[:maxAnswerBytes], true
	}
	return beginning, err != nil
}

func newRequest(ctx context.Context, e *envelope.Envelope) (*http.Request, error) {
	var body io.Reader
	if e.Call.Body != nil {
		body = bytes.NewReader(e.Call.Body)
	}
	request, err := http.NewRequestWithContext(ctx, e.Call.Method, e.Call.URL, body)
	if err != nil {
		return nil, err
	}
	request.Header = forwarded(e.Call.Header)
	if e.Call.Host != "" {
		request.Host = e.Call.Host
	}
	setDefault(request.Header, "User-Agent", userAgent)
	setDefault(request.Header, "Idempotency-Key", e.RequestID)
	request.Header.Set("X-Async-Caller-Attempt", strconv.Itoa(e.Attempts+1))
	return request, nil
}

func setDefault(header http.Header, name, value string) {
	if _, set := header[name]; !set {
		header[name] = []string{value}
	}
}

// forwarded copies the headers but those that concern only one connection (RFC 9110, 7.6.1), and the
// length, which follows from the body.
func forwarded(header http.Header) http.Header {
	copied := header.Clone()
	if copied == nil {
		copied = http.Header{}
	}
	for _, listed := range copied["Connection"] {
		for name := range strings.SplitSeq(listed, ",") {
			copied.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{
		"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length",
	} {
		copied.Del(name)
	}
	return copied
}

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
	return nil
}

// answers is a transport whose answers http.Client can always deal with.
type answers struct{ transport *http.Transport }

// RoundTrip takes what would hang or be misunderstood out of an answer: the connection of a protocol
// switch, which no timeout ends, and a Location that cannot be called, which http.Client reports like a
// broken connection.
func (a answers) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := a.transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusSwitchingProtocols {
		_ = response.Body.Close()
		response.Body = http.NoBody
	}
	if location := response.Header.Get("Location"); location != "" {
		next, err := request.URL.Parse(location)
		if err != nil || envelope.CheckURL(next.String()) != nil {
			response.Header.Del("Location")
		}
	}
	return response, nil
}

func keepsMethod(status int) bool {
	return status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect
}

// notFollowed reports whether a response is a redirect, which net/http would have followed had
// checkRedirect allowed it.
func notFollowed(response *http.Response) bool {
	switch response.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}
