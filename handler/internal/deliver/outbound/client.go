// Package outbound makes the call: it sends the request of an envelope to its target and returns the outcome.
// Every failure is a [decision.Outcome], not an error.
package outbound

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math"
	"net"
	"net/http/httptrace"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"asynccaller/handler/internal/plain/socket"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/guard"
	"asynccaller/handler/internal/rules/targets"
)

// Limits of a call.
const (
	// maxAnswerBytes is the part of an answer's body that is kept: the most that a callback can carry.
	maxAnswerBytes = 64 << 10
	// firstAnswerBytes is the memory for a body of which nothing has arrived.
	firstAnswerBytes = 512
	// maxDrainBytes is the part of the rest that is read and dropped, so that the connection can be reused, and
	// drainTimeout is how long that may take. If more is left, a new connection is cheaper.
	maxDrainBytes = 256 << 10
	drainTimeout  = 100 * time.Millisecond

	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	// idleTimeout is less than the 2 to 4 minutes after which Azure's outbound NAT and common load balancers
	// drop an idle connection.
	idleTimeout = 90 * time.Second
	// maxIdlePerHost is the number of calls that are in flight at most, in case they all go to one target. The default
	// of 2 halves the throughput.
	maxIdlePerHost = targets.MaxCalls
	maxIdle        = 2 * maxIdlePerHost
)

// droppedDetail says of an answer that net/http got it without the header lines that it refuses.
const droppedDetail = "header lines that are not HTTP were ignored"

// errTimeout is the cause of a context that ended because the call took too long.
var errTimeout = errors.New("no answer in time")

// Client makes calls. It is safe for concurrent use.
type Client struct {
	timeout   time.Duration
	profiles  targets.Profiles
	tokens    Tokens
	transport *guardedTransport
	// decoding is held while an answer becomes text: that takes up to some 400 KiB, which no gate counts.
	decoding sync.Mutex
}

// New returns a client whose calls take at most timeout and go only to targets that the rules allow, through the
// proxy if there is one. The client ignores the proxy variables of the environment.
func New(timeout time.Duration, rules guard.Rules, proxy Proxy) *Client {
	return &Client{timeout: timeout, transport: newGuardedTransport(rules, proxy)}
}

// WithProfiles makes the client use the timeouts and headers of profiles. It returns the client.
func (c *Client) WithProfiles(profiles targets.Profiles) *Client {
	c.profiles = profiles
	return c
}

// ConnectBy makes the client connect to targets by another function, which judges no address. The names of hosts are
// judged all the same.
func (c *Client) ConnectBy(connect func(ctx context.Context, network, address string) (net.Conn, error)) {
	c.transport.connect = connect
}

// CallBytes is the memory that one call takes at most, with the largest message, by https, and with an answer as long
// as is kept, beside what [envelope.Envelope.Memory] says of its envelope.
const CallBytes = 400 << 10

// Close closes idle connections.
func (c *Client) Close() { c.transport.base.CloseIdleConnections() }

// Do makes the call of an envelope and waits for the answer, at most for the timeout of the target's profile, or else
// the client's, or the envelope's shorter one. The end of ctx interrupts the call.
func (c *Client) Do(ctx context.Context, e *envelope.Envelope) decision.Outcome {
	profile := c.profiles.For(e.Call.Target)
	timeout := cmp.Or(profile.Timeout, c.timeout)
	if e.Call.Timeout > 0 {
		timeout = min(timeout, e.Call.Timeout)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	started := time.Now() // before the timer, so that a call that times out never takes less than its timeout
	// A deadline of ctx would not do, because do can shorten the time.
	timer := time.AfterFunc(timeout, func() { cancel(errTimeout) })
	defer timer.Stop()
	outcome := c.do(ctx, e, profile, timer)
	outcome.Took = time.Since(started)
	return outcome
}

func (c *Client) do(
	ctx context.Context, e *envelope.Envelope, profile targets.Profile, timer *time.Timer,
) decision.Outcome {
	var dropped atomic.Bool
	var latest atomic.Pointer[targetConn]
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			if connection, ok := info.Conn.(*targetConn); ok {
				connection.requested.Store(&dropped)
				latest.Store(connection)
			}
		},
	})
	response, h, err := c.send(traced, e, profile)
	if err != nil {
		if connection := latest.Load(); connection != nil {
			err = errors.Join(err, connection.certificate.err())
		}
		return failure(ctx, err)
	}
	defer response.Body.Close()

	outcome := decision.Outcome{Status: response.StatusCode, Header: response.Header}
	if isRedirect(response) { // one that the client did not follow
		outcome.Failure = decision.FailureRedirected
		outcome.Detail = "answered " + strconv.Itoa(response.StatusCode)
		from := response.Request.URL
		to, _ := location(response, from)
		if to != nil && givesUpTLS(from, to) {
			outcome.Detail += ": it leads from https to http"
		}
	}
	hurry := func() { timer.Reset(drainTimeout) }
	if outcome.Status/100 == 2 && e.Callback == nil {
		drain(response.Body, response.ContentLength, hurry) // nobody needs it
	} else if err := ReadAnswer(&outcome, response.Body, response.ContentLength, hurry); err != nil {
		outcome.Failure = failure(ctx, io.ErrUnexpectedEOF).Failure
		outcome.Detail = "answered " + strconv.Itoa(outcome.Status) + ", but " + whyCut(ctx, response, err)
	}
	if dropped.Load() {
		outcome.Detail = strings.TrimPrefix(outcome.Detail+", "+droppedDetail, ", ")
	}
	c.decoding.Lock()
	defer c.decoding.Unlock()
	outcome.Keep(h.sent)
	h.excuse(&outcome, e)
	return outcome
}

// ReadAnswer reads into an outcome what matters of the body of its answer: the beginning, and what the body of a failed
// call says about retrying. It returns an error if the body breaks off before. Then it calls hurry and drains the rest.
// Length is the announced length of the body, or -1.
//
// It allocates memory for the beginning only when the body arrives, and then once: hundreds of calls are in flight, and
// the garbage of a growing buffer would double the memory of their answers.
func ReadAnswer(o *decision.Outcome, body io.Reader, length int64, hurry func()) (err error) {
	limit := maxAnswerBytes
	if length >= 0 {
		limit = int(min(length, maxAnswerBytes))
	}
	o.Body = make([]byte, 0, min(limit, firstAnswerBytes))
	for len(o.Body) < limit {
		if len(o.Body) == cap(o.Body) {
			o.Body = append(make([]byte, 0, limit), o.Body...)
		}
		n, err := body.Read(o.Body[len(o.Body):cap(o.Body)])
		o.Body = o.Body[:len(o.Body)+n]
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			o.Truncated = true
			return err
		}
	}
	if length == int64(limit) {
		return nil
	}
	rest := &io.LimitedReader{R: body, N: math.MaxInt64} // it counts
	if o.Failure == "" && o.Status/100 != 2 {
		o.Signal, err = decision.ReadSignal(o.Header, o.Body, rest)
	}
	if err == nil {
		drain(rest, length-int64(limit), hurry)
	}
	o.Truncated = length > 0 || rest.N < math.MaxInt64 || err != nil
	return err
}

// drain reads and drops the rest of a body, if it is short and comes at once. Left is its length, or negative.
func drain(body io.Reader, left int64, hurry func()) {
	if left == 0 || left > maxDrainBytes {
		return
	}
	hurry()
	_, _ = io.CopyN(io.Discard, body, maxDrainBytes)
}

// failure returns the outcome of a call that got no answer.
func failure(ctx context.Context, err error) decision.Outcome {
	kind, detail := classify(context.Cause(ctx), err)
	return decision.Outcome{Failure: kind, Detail: detail}
}

// classify returns the kind of failure that an error of net/http is, and a text for people. It goes by the types of
// the errors, and shows none of their texts, which may hold the URL and so a secret, except for those of TLS alerts.
// Cause is why the call's context ended, nil if it did not.
func classify(cause, err error) (kind decision.Failure, detail string) {
	refused, isRefused := errors.AsType[*refusedError](err)
	proxy, isProxy := errors.AsType[*proxyError](err)
	noToken, isNoToken := errors.AsType[*NoTokenError](err)
	dns, isDNS := errors.AsType[*net.DNSError](err)
	certificate, _ := errors.AsType[x509.CertificateInvalidError](err)
	wanted := ""
	if asked, isAsked := errors.AsType[*certificateError](err); isAsked {
		wanted = certificateDetail(asked, err)
	}
	op := ""
	if network, ok := errors.AsType[*net.OpError](err); ok {
		op = network.Op
	}
	switch {
	case errors.Is(cause, errTimeout):
		return decision.FailureTimeout, errTimeout.Error()
	case cause != nil:
		return decision.FailureInterrupted, ""
	case isRefused:
		return decision.FailureTargetRefused, refused.detail
	case isNoToken:
		return decision.FailureAuth, noToken.Cause
	// The operator can fix failures at the proxy, so all of them are temporary.
	case isProxy:
		return decision.FailureConnect, proxy.Error()
	case op == proxyConnect:
		return decision.FailureConnect, "the proxy cannot be reached"
	case strings.HasPrefix(op, "socks"):
		return decision.FailureConnect, "the proxy does not connect to the target"
	case isDNS && dns.IsNotFound:
		return decision.FailureDNS, "the host name does not exist"
	case isDNS && dns.IsTimeout:
		return decision.FailureDNS, "the name server did not answer in time"
	case isDNS:
		return decision.FailureDNS, "the host name cannot be resolved"
	case certificate.Reason == x509.Expired:
		return decision.FailureCertificate, "the certificate has expired or is not valid yet"
	case is[x509.HostnameError](err):
		return decision.FailureCertificate, "the certificate is for another host"
	case is[x509.UnknownAuthorityError](err):
		return decision.FailureCertificate, "the certificate's issuer is unknown"
	case is[*tls.CertificateVerificationError](err):
		return decision.FailureCertificate, "the certificate is not trusted"
	// url.Parse, the resolver of international names and the dialer refuse these.
	case is[*net.AddrError](err), is[*net.ParseError](err), is[url.EscapeError](err), is[url.InvalidHostError](err):
		return decision.FailureBadURL, "the URL cannot be called"
	case isTimeout(err):
		return decision.FailureTimeout, "connecting took too long"
	case wanted != "":
		return decision.FailureTLS, wanted
	case errors.Is(err, errHandshake), is[tls.AlertError](err), is[tls.RecordHeaderError](err),
		op == "remote error", op == "local error":
		return decision.FailureTLS, handshakeDetail(err)
	case socket.IsRefused(err):
		return decision.FailureConnect, "connection refused"
	case op == "dial":
		return decision.FailureConnect, "the host cannot be reached"
	case socket.IsReset(err):
		return decision.FailureConnection, "connection reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		isClosedIdle(err):
		return decision.FailureConnection, "connection closed before the answer"
	case errors.Is(err, errTooManyLines):
		return decision.FailureConnection, errTooManyLines.Error()
	case errors.Is(err, errHeadTooLarge):
		return decision.FailureConnection, errHeadTooLarge.Error()
	}
	return decision.FailureConnection, "the answer is not usable HTTP"
}

// isClosedIdle reports whether the target closed a kept connection when a call was about to use it. The error of
// net/http has no type; its text is only compared.
func isClosedIdle(err error) bool {
	return strings.Contains(err.Error(), "http: server closed idle connection")
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// isTimeout reports whether a limit below the call's own was exceeded: that of dialing or of the TLS handshake.
func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return errors.Is(err, os.ErrDeadlineExceeded) || ok && timeout.Timeout()
}
