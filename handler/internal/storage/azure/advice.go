package azure

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"

	"asynccaller/handler/internal/socket"
	"asynccaller/handler/internal/storage"
)

// Roles are those that the handler and the operators' commands need.
const Roles = "roles " + storage.QueueRole + " and " + storage.TableRole

// Advice returns what to do about an error of storage that does not say it itself. Roles are those that the operation
// needs.
func Advice(err error, roles string) string {
	const setting = storage.ConnectionName
	network, _ := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, storage.ErrDenied):
		return "check the credential in " + setting + " and the account's firewall, " +
			"or assign the " + roles + " to the identity"
	case errors.Is(err, storage.ErrForeign):
		return "correct HTTPS_PROXY or HTTP_PROXY, or name the host of the account in NO_PROXY; " +
			"or correct the endpoint in " + setting
	case errors.Is(err, storage.ErrRefused) && strings.Contains(err.Error(), skipVersionCheck):
		return "a newer Azurite starts with `make azurite`"
	case network != nil && network.Op == proxyConnect:
		return "the proxy that HTTPS_PROXY or HTTP_PROXY names does not answer, or refuses the account: " +
			"correct the variable, or name the host of the account in NO_PROXY"
	case isUntrusted(err):
		return "the certificate of the account's host is not trusted: if its issuer is unknown, for example because " +
			"a proxy inspects TLS, trust the issuer on this machine (SSL_CERT_FILE on Linux); " +
			"if it is for another host, correct the endpoint in " + setting
	case socket.IsRefused(err) && isElsewhere(network):
		return "nothing listens at this address: check " + setting +
			", and the DNS and private endpoints of the network"
	case socket.IsRefused(err):
		return "nothing listens at this address: start Azurite with `make azurite`, or check " + setting
	case errors.Is(err, ErrNoBlobs):
		return "add BlobEndpoint to the connection string, or set " + setting + "__blobServiceUri"
	}
	return ""
}

// isUntrusted reports whether the certificate of the service was refused.
func isUntrusted(err error) bool {
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok
}

// isElsewhere reports whether an error is about an address of another machine.
func isElsewhere(network *net.OpError) bool {
	if network == nil {
		return false
	}
	address, ok := network.Addr.(*net.TCPAddr)
	return ok && !address.IP.IsLoopback()
}
