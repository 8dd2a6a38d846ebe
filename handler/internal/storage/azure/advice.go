package azure

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"asynccaller/handler/internal/plain/socket"
	"asynccaller/handler/internal/storage"
)

// Roles are those that the handler and the operators' commands need.
const Roles = "roles " + storage.QueueRole + " and " + storage.TableRole

// ReaderRoles are those that the commands need that only look.
const ReaderRoles = "roles " + storage.QueueReaderRole + " and " + storage.TableReaderRole

const setting = storage.ConnectionName

// advisedError is a denial of storage, or a token that was not obtained, with what to do about it. The advice is empty
// if the error does not tell.
type advisedError struct {
	error
	advice string
}

func (e *advisedError) Unwrap() error { return e.error }

// Advice returns what to do about an error of storage that does not say it itself. Roles are those that the operation
// needs.
func Advice(err error, roles string) string {
	network, _ := errors.AsType[*net.OpError](err)
	name, _ := errors.AsType[*net.DNSError](err)
	advised, _ := errors.AsType[*advisedError](err)
	switch {
	case advised != nil && advised.advice != "": // also if a proxy or a certificate is why there is no token
		return advised.advice
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
	case errors.Is(err, storage.ErrDenied):
		return "check the credential in " + setting + " and the account's firewall, " +
			"or assign the " + roles + " to the identity"
	case name != nil && name.IsNotFound && strings.Contains(name.Name, ".queue."):
		return "check the account's name in " + setting + ", and the network's DNS; an account without queues, " +
			"such as one for premium block blobs (BlockBlobStorage), has no such name: use a general-purpose account"
	case socket.IsRefused(err) && isElsewhere(network):
		return "nothing listens at this address: check " + setting +
			", and the DNS and private endpoints of the network"
	case socket.IsRefused(err):
		return "nothing listens at this address: start Azurite with `make azurite`, or `async-caller demo --stay`, " +
			"whose connection string is new each time; or check " + setting
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

// closedAdvice says what to do if the firewall of the account does not admit this address. Storage gives the same
// answer if public access is off.
const closedAdvice = "the account is closed to the address of this machine: run the command in a network that " +
	"reaches the private endpoints of the account, in which its host resolves to a private address " +
	"(deploy/README.md, \"A closed account\"); or admit the address in the account's firewall"

// denialAdvice returns what to do about a request that storage has denied, by the credential of the request. It is
// empty if roles may be missing. A SAS needs none: it has no identity.
func denialAdvice(response *azcore.ResponseError) string {
	code, request := response.ErrorCode, response.RawResponse.Request
	if code == "KeyBasedAuthenticationNotPermitted" {
		return "the account permits no key and no SAS: remove " + setting + ", which takes precedence over settings " +
			setting + "__, and set " + setting + accountNameKey
	}
	if request == nil {
		return ""
	}
	query := request.URL.Query()
	if query.Has("sig") {
		now, err := http.ParseTime(response.RawResponse.Header.Get("Date"))
		if err != nil {
			now = time.Now()
		}
		return signatureAdvice(code, query, now)
	}
	if code == "AuthenticationFailed" && strings.HasPrefix(request.Header.Get("Authorization"), "SharedKey") {
		return "check the credential in " + setting + ": its AccountKey is another account's, or was renewed"
	}
	if code == "AuthorizationFailure" { // a missing role is AuthorizationPermissionMismatch
		return closedAdvice
	}
	return ""
}

// signatureAdvice returns what to do about a SAS that storage has denied with an error code.
func signatureAdvice(code string, sas url.Values, now time.Time) string {
	start, expiry := sasTime(sas.Get("st")), sasTime(sas.Get("se"))
	why := map[string]string{
		"AuthorizationProtocolMismatch":     "permits only https (spr): use https endpoints, or ",
		"AuthorizationServiceMismatch":      "lacks a service (ss): ",
		"AuthorizationResourceTypeMismatch": "lacks a resource type (srt): ",
		"AuthorizationPermissionMismatch":   "lacks a permission (sp): ",
		"AuthorizationSourceIPMismatch":     "does not permit the address of this machine (sip): ",
	}[code]
	if now.Before(start) {
		why = "is not valid before " + start.Format(time.RFC3339) + " (st): wait, or "
	}
	if !expiry.IsZero() && !now.Before(expiry) {
		why = "has expired at " + expiry.Format(time.RFC3339) + " (se): "
	}
	if why == "" {
		return "check the credential in " + setting + ": the key that signed the SAS may have been renewed; " +
			"and check the account's firewall"
	}
	return "the SAS " + why + "create an account SAS with ss=bqt, srt=sco and sp=rwdlacup, or sp=rl to look only, " +
		"and set it in " + setting
}

// sasTime returns a time of a SAS, or the zero time if there is none.
func sasTime(text string) time.Time {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00", time.DateOnly} {
		at, err := time.Parse(layout, text)
		if err == nil {
			return at.UTC()
		}
	}
	return time.Time{}
}

// SASExpiry returns when the connection's SAS expires, or the zero time if it has none, or does not say so.
func (c Connection) SASExpiry() time.Time {
	sas, _ := url.ParseQuery(string(c.SAS)) // validated
	return sasTime(sas.Get("se"))
}

// ErrNoToken means that the identity of a connection got no token.
var ErrNoToken = errors.New("the identity got no token")

// advisedCredential adds what to do to the errors of a credential, and marks them: without a token, the request is not
// sent.
type advisedCredential struct {
	azcore.TokenCredential
	identity Identity
}

// GetToken implements [azcore.TokenCredential].
func (c advisedCredential) GetToken(
	ctx context.Context, options policy.TokenRequestOptions,
) (azcore.AccessToken, error) {
	// The SDK has no error but that of the request's context, once that has ended: this one ends before.
	deadline, hasDeadline := ctx.Deadline()
	if hasDeadline {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)*3/4)
		defer cancel()
	}
	token, err := c.TokenCredential.GetToken(ctx, options)
	if err == nil {
		return token, nil
	}
	isLate := ctx.Err() != nil || strings.Contains(err.Error(), "timed out") // the SDK drops the cause
	marked := &terseError{text: err.Error(), cause: fmt.Errorf("%w: %w: %w", ErrNoToken, storage.ErrNotSent, err)}
	return token, &advisedError{marked, tokenAdvice(c.identity, isLate)}
}

// tokenAdvice returns what to do if an identity gets no token, or none in time.
func tokenAdvice(id Identity, isLate bool) string {
	switch {
	case id.ManagedIdentity && isLate:
		return "the endpoint for tokens of managed identities does not answer: outside Azure there is none; " +
			"in the app, assign the identity, and restart the app"
	case id.ManagedIdentity:
		return "assign the managed identity to the app, or correct " + setting + clientIDKey + " or " +
			setting + resourceIDKey
	case id.ClientSecret != "":
		return "correct " + setting + tenantIDKey + ", " + clientIDKey + " and " + clientSecretKey +
			", whose secret may have expired, and check the network to login.microsoftonline.com"
	}
	return "sign in, for example with `az login`; in an app, assign a managed identity, and set " +
		setting + credentialKey + " to managedidentity"
}
