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

// classify says which failure an error of the HTTP client is, from what happened and never from its
// text. The detail it gives is ours: an error's text may hold the URL, and the URL a secret.
func classify(ctx context.Context, err error, handshakeFailed bool) decision.Outcome {
	failure := func(f decision.Failure, detail string) decision.Outcome {
		return decision.Outcome{Failure: f, Detail: detail}
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errTimeout):
		return failure(decision.FailureTimeout, "no answer in time")
	case cause != nil:
		return failure(decision.FailureInterrupted, "")
	}
	if refused, ok := errors.AsType[*refusedError](err); ok {
		return failure(decision.FailureTargetRefused, refused.detail)
	}
	if detail, failed := proxyFailed(err); failed {
		return failure(decision.FailureConnect, detail)
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		switch {
		case dns.IsNotFound:
			return failure(decision.FailureDNS, "the host name does not exist")
		case dns.IsTimeout:
			return failure(decision.FailureDNS, "the name server did not answer in time")
		}
		return failure(decision.FailureDNS, "the host name cannot be resolved")
	}
	if detail, untrusted := untrustedCertificate(err); untrusted {
		return failure(decision.FailureCertificate, detail)
	}
	if badURL(err) {
		return failure(decision.FailureBadURL, "the URL cannot be called")
	}
	if timedOut(err) {
		return failure(decision.FailureTimeout, "connecting took too long")
	}
	if handshakeFailed || brokenHandshake(err) {
		return failure(decision.FailureTLS, "the TLS handshake failed")
	}
	return classifyConnection(err)
}

func classifyConnection(err error) decision.Outcome {
	op, isOp := errors.AsType[*net.OpError](err)
	dialing := isOp && op.Op == "dial"
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return decision.Outcome{Failure: decision.FailureConnect, Detail: "connection refused"}
	case dialing:
		return decision.Outcome{Failure: decision.FailureConnect, Detail: "the host cannot be reached"}
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return decision.Outcome{Failure: decision.FailureConnection, Detail: "connection reset"}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return decision.Outcome{Failure: decision.FailureConnection, Detail: "connection closed before the answer"}
	}
	return decision.Outcome{Failure: decision.FailureConnection, Detail: "the answer is not usable HTTP"}
}

// proxyFailed finds what happens on the way through a proxy. It is ours or the operator's to mend, so it
// may pass, whatever it is.
func proxyFailed(err error) (detail string, failed bool) {
	if answer, ok := errors.AsType[*proxyError](err); ok {
		return answer.Error(), true
	}
	op, ok := errors.AsType[*net.OpError](err)
	switch {
	case ok && op.Op == "proxyconnect":
		return "the proxy cannot be reached", true
	case ok && strings.HasPrefix(op.Op, "socks"):
		return "the proxy does not connect to the target", true
	}
	return "", false
}

func untrustedCertificate(err error) (detail string, untrusted bool) {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return "the certificate has expired or is not valid yet", true
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "the certificate is for another host", true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "the certificate's issuer is unknown", true
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "the certificate is not trusted", true
	}
	return "", false
}

// badURL finds what url.Parse, the resolver of international names and the dialer object to.
func badURL(err error) bool {
	if _, ok := errors.AsType[*net.AddrError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*net.ParseError](err); ok {
		return true
	}
	_, escape := errors.AsType[url.EscapeError](err)
	_, host := errors.AsType[url.InvalidHostError](err)
	return escape || host
}

// timedOut finds the time limits below the call's own: dialing and the TLS handshake.
func timedOut(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return errors.Is(err, os.ErrDeadlineExceeded) || (ok && timeout.Timeout())
}

func brokenHandshake(err error) bool {
	_, alert := errors.AsType[tls.AlertError](err)
	_, record := errors.AsType[tls.RecordHeaderError](err)
	op, isOp := errors.AsType[*net.OpError](err)
	return alert || record || errors.Is(err, http.ErrSchemeMismatch) || (isOp && (op.Op == "remote error" || op.Op == "local error"))
}
