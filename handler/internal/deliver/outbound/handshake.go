package outbound

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"asynccaller/handler/internal/plain/socket"
)

// errHandshake marks an error of a call whose latest TLS handshake failed.
var errHandshake = errors.New("the TLS handshake failed")

// oldTLS says in words what several servers say in different ways.
const oldTLS = "the target accepts neither TLS 1.2 nor TLS 1.3"

// asked says what a target has asked for on a connection.
type asked struct {
	// is says that it has asked for a client certificate, and isAnswered that something has come after the handshake.
	is, isAnswered atomic.Bool
	// presented names the certificate that it gets; empty if there is none.
	presented string
}

// err returns why the connection has ended, if that can be the certificate: the target has asked for one, and has not
// answered since.
func (a *asked) err() error {
	if a == nil || !a.is.Load() || a.isAnswered.Load() {
		return nil
	}
	return &certificateError{a.presented}
}

// certificateError marks an error of a connection whose target has asked for a certificate.
type certificateError struct{ presented string }

func (e *certificateError) Error() string { return "the target has asked for a client certificate" }

// certificateAlerts are the alerts by which servers refuse a certificate, or say that they want one.
var certificateAlerts = []string{
	"handshake failure", "bad certificate", "unsupported certificate", "revoked certificate", "expired certificate",
	"unknown certificate", "unknown certificate authority", "access denied", "certificate required",
}

// certificateDetail returns a text for people about a connection that has ended after its target had asked for a
// certificate; empty if the error says another reason.
func certificateDetail(e *certificateError, err error) string {
	network, isNetwork := errors.AsType[*net.OpError](err)
	isAlert := isNetwork && network.Op == "remote error"
	about := "a client certificate is wanted"
	if e.presented != "" {
		about = "the target refused the certificate " + e.presented
	}
	if isAlert {
		name := strings.TrimPrefix(network.Err.Error(), "tls: ")
		if !slices.Contains(certificateAlerts, name) {
			return ""
		}
		return about + " (alert " + name + ")"
	}
	about = "the target asked for a client certificate, got none, and closed the connection"
	if e.presented != "" {
		about = "the target asked for a client certificate, got " + e.presented + ", and closed the connection"
	}
	return about
}

// handshakeDetail returns a text for people about a TLS handshake that failed. The text has nothing that the target
// wrote.
func handshakeDetail(err error) string {
	network, isNetwork := errors.AsType[*net.OpError](err)
	record, isRecord := errors.AsType[tls.RecordHeaderError](err)
	reason := ""
	switch {
	case isNetwork && network.Op == "remote error":
		reason = alertDetail(network.Err)
	case isRecord && string(record.RecordHeader[:]) == "HTTP/":
		reason = "the port speaks HTTP without TLS"
	case isRecord:
		reason = "the port does not speak TLS"
	case choosesOldTLS(err):
		reason = oldTLS
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), socket.IsReset(err):
		reason = "the target closed the connection"
	}
	if reason == "" {
		return errHandshake.Error()
	}
	return errHandshake.Error() + ": " + reason
}

// alertDetail returns a text for people about an alert of the target. An alert is a number. Its type is not exported,
// but its text is a constant of crypto/tls for each number, so the target cannot write into it.
func alertDetail(alert error) string {
	name := strings.TrimPrefix(alert.Error(), "tls: ")
	meaning := ""
	switch name {
	case "handshake failure", "insufficient security level":
		meaning = "no common cipher suite, or a client certificate is wanted"
	case "protocol version not supported":
		meaning = oldTLS
	case "unrecognized name":
		meaning = "the target does not know the host name"
	case "certificate required", "bad certificate", "unknown certificate", "unknown certificate authority":
		meaning = "a client certificate is wanted" // the handler has none
	}
	if meaning == "" {
		return "the target sent the alert " + name
	}
	return meaning + " (alert " + name + ")" // in this order, because a trail keeps the beginning
}

// choosesOldTLS reports whether a target has chosen a version of TLS that we do not accept. The error of crypto/tls has
// no type. Its text is not shown, only compared.
func choosesOldTLS(err error) bool {
	return strings.Contains(err.Error(), "tls: server selected unsupported protocol version")
}
