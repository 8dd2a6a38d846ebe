// Package outbound makes the call: it sends the request of an envelope to its target and returns the outcome.
// Every failure is a [decision.Outcome], not an error.
package outbound

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync/atomic"
	"time"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/guard"
)

// Limits of a call.
const (
	// maxAnswerBytes is the part of an answer's body that is kept: the most that a callback can carry.
	maxAnswerBytes = 64 << 10
	// firstAnswerBytes is the memory for a body of which nothing has arrived.
	firstAnswerBytes = 512
	// maxDrainBytes is the part of the rest that is read and dropped, so that the connection can be reused. If
	// more is left, a new connection is cheaper.
	maxDrainBytes  = 256 << 10
	maxHeaderBytes = 256 << 10
	maxRedirects   = 10

	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	// idleTimeout is less than the 2 to 4 minutes after which Azure's outbound NAT and common load balancers
	// drop an idle connection.
	idleTimeout = 90 * time.Second
	// maxIdlePerHost is more than the calls that all queue functions make at once (11 times 24 by default), in
	// case they all go to one target. The default of 2 halves the throughput.
	maxIdlePerHost = 512
	maxIdle        = 1024
)

// errTimeout is the cause of a context that ended because the call took too long.
var errTimeout = errors.New("no answer in time")

// Client makes calls. It is safe for concurrent use.
type Client struct {
	timeout   time.Duration
	http      http.Client
	transport *guardedTransport
}

// New returns a client whose calls take at most timeout and go only to targets that the rules allow, through the
// proxy if there is one. The client ignores the proxy variables of the environment.
func New(timeout time.Duration, rules guard.Rules, proxy Proxy) *Client {
	transport := newGuardedTransport(rules, proxy)
	return &Client{
		timeout:   timeout,
		http:      http.Client{Transport: transport, CheckRedirect: checkRedirect},
		transport: transport,
	}
}

// Close closes idle connections.
func (c *Client) Close() { c.transport.base.CloseIdleConnections() }

// Do makes the call of an envelope and waits for the answer, at most for the client's timeout or the envelope's
// shorter one. The end of ctx interrupts the call.
func (c *Client) Do(ctx context.Context, e *envelope.Envelope) decision.Outcome {
	timeout := c.timeout
	if e.Call.Timeout > 0 {
		timeout = min(timeout, e.Call.Timeout)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	defer cancel()
	started := time.Now()
	outcome := c.do(ctx, e)
	outcome.Took = time.Since(started)
	return outcome
}

func (c *Client) do(ctx context.Context, e *envelope.Envelope) decision.Outcome {
	// net/http does not distinguish a connection that breaks during the TLS handshake from one that breaks later.
	var handshakeFailed atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) { handshakeFailed.Store(err != nil) },
	})
	request, err := newRequest(traced, e)
	if err != nil {
		return failure(ctx, err)
	}
	response, err := c.http.Do(request)
	if err != nil && handshakeFailed.Load() {
		err = errors.Join(errHandshake, err)
	}
	if err != nil {
		return failure(ctx, err)
	}
	defer response.Body.Close()

	outcome := decision.Outcome{Status: response.StatusCode, Header: response.Header}
	if isRedirect(response.StatusCode) { // one that the client did not follow
		outcome.Failure = decision.FailureRedirected
		outcome.Detail = "answered " + strconv.Itoa(response.StatusCode)
	}
	outcome.Body, outcome.Truncated = readAnswer(response)
	return outcome
}

// readAnswer reads the beginning of the body and drains some of the rest. A body that breaks off is truncated.
// It is no reason to repeat the call, because the status shows that the target received it.
//
// It allocates memory for the body only when the body arrives, and then once: an answer of 1 GiB must not add
// more than 67 KiB to a call in flight (docs/performance.md), which the garbage of a growing buffer would.
func readAnswer(response *http.Response) (answer []byte, truncated bool) {
	limit := maxAnswerBytes
	if announced := response.ContentLength; announced >= 0 { // -1 is unknown
		limit = int(min(announced, maxAnswerBytes))
	}
	answer = make([]byte, 0, min(limit, firstAnswerBytes))
	for len(answer) < limit {
		if len(answer) == cap(answer) {
			answer = append(make([]byte, 0, limit), answer...)
		}
		n, err := response.Body.Read(answer[len(answer):cap(answer)])
		answer = answer[:len(answer)+n]
		if err != nil {
			return answer, !errors.Is(err, io.EOF)
		}
	}
	if response.ContentLength > maxAnswerBytes+maxDrainBytes {
		return answer, true
	}
	n, err := io.CopyN(io.Discard, response.Body, maxDrainBytes)
	return answer, n > 0 || !errors.Is(err, io.EOF)
}
