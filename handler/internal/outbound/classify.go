package outbound

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"

	"asynccaller/handler/internal/decision"
)

// errHandshake marks an error of a call whose latest TLS handshake failed.
var errHandshake = errors.New("the TLS handshake failed")

// failure returns the outcome of a call that got no answer.
func failure(ctx context.Context, err error) decision.Outcome {
	kind, detail := classify(context.Cause(ctx), err)
	return decision.Outcome{Failure: kind, Detail: detail}
}

// classify returns the kind of failure that an error of net/http is, and a text for people. It goes by the types of
// the errors, and never uses their texts, which may hold the URL and so a secret. Cause is why the call's context
// ended, nil if it did not.
func classify(cause, err error) (kind decision.Failure, detail string) {
	refused, isRefused := errors.AsType[*refusedError](err)
	proxy, isProxy := errors.AsType[*proxyError](err)
	op, invalid := "", x509.CertificateInvalidError{}
	if network, ok := errors.AsType[*net.OpError](err); ok {
		op = network.Op
	}
	if certificate, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		invalid = certificate
	}
	switch {
	case errors.Is(cause, errTimeout):
		return decision.FailureTimeout, "no answer in time"
	case cause != nil:
		return decision.FailureInterrupted, ""
	case isRefused:
		return decision.FailureTargetRefused, refused.detail
	// The operator can fix what fails at the proxy, so all of it is temporary.
	case isProxy:
		return decision.FailureConnect, proxy.Error()
	case op == "proxyconnect":
		return decision.FailureConnect, "the proxy cannot be reached"
	case strings.HasPrefix(op, "socks"):
		return decision.FailureConnect, "the proxy does not connect to the target"
	case is[*net.DNSError](err):
		return decision.FailureDNS, describeDNS(err)
	case invalid.Reason == x509.Expired:
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
	case errors.Is(err, errHandshake), is[tls.AlertError](err), is[tls.RecordHeaderError](err), errors.Is(err, http.ErrSchemeMismatch),
		op == "remote error", op == "local error":
		return decision.FailureTLS, errHandshake.Error()
	case errors.Is(err, syscall.ECONNREFUSED):
		return decision.FailureConnect, "connection refused"
	case op == "dial":
		return decision.FailureConnect, "the host cannot be reached"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return decision.FailureConnection, "connection reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return decision.FailureConnection, "connection closed before the answer"
	}
	return decision.FailureConnection, "the answer is not usable HTTP"
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func describeDNS(err error) string {
	switch dns, _ := errors.AsType[*net.DNSError](err); {
	case dns.IsNotFound:
		return "the host name does not exist"
	case dns.IsTimeout:
		return "the name server did not answer in time"
	}
	return "the host name cannot be resolved"
}

// isTimeout reports whether a limit below the call's own was exceeded: that of dialing or of the TLS handshake.
func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return errors.Is(err, os.ErrDeadlineExceeded) || ok && timeout.Timeout()
}
