package azure

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"asynccaller/handler/internal/storage"
)

const (
	versionHeader = "x-ms-version"
	// apiVersion is older than the SDK's, which Azurite refuses for months after a release of the SDK. It has all that
	// the operations of [storage.Queues] need.
	apiVersion = "2021-12-02"
	// applicationID is part of the User-Agent, so that storage logs show the sender.
	applicationID = "async-caller"
	// connectTimeout and handshakeTimeout leave time for a second try within one settle write.
	connectTimeout   = 5 * time.Second
	handshakeTimeout = 5 * time.Second
	// idleTimeout is less than the 4 minutes after which Azure's load balancers drop an idle connection.
	// azuriteIdleTimeout is less than Azurite's keep-alive of 5 s. A request on a connection that the server is
	// closing fails, and Go does not repeat a POST.
	idleTimeout        = time.Minute
	azuriteIdleTimeout = 3 * time.Second
)

// NewTransport returns the transport for one endpoint. The caller's context limits the time of a request.
func NewTransport(endpoint string) *http.Transport {
	idle := idleTimeout
	if loopback(endpoint) {
		idle = azuriteIdleTimeout
	}
	var http1 http.Protocols
	http1.SetHTTP1(true) // HTTP/2 has one connection, and a request that times out leaves it in use
	return &http.Transport{
		Protocols:              &http1,
		Proxy:                  http.ProxyFromEnvironment, // never applies to a loopback address
		OnProxyConnectResponse: checkProxyAnswer,
		DialContext:            (&net.Dialer{Timeout: connectTimeout}).DialContext,
		TLSHandshakeTimeout:    handshakeTimeout,
		MaxConnsPerHost:        storage.MaxConnections,
		MaxIdleConnsPerHost:    storage.MaxConnections,
		IdleConnTimeout:        idle,
	}
}

// checkProxyAnswer returns a proxy's refusal of CONNECT, of which net/http has only a text, as it returns that a proxy
// cannot be reached.
func checkProxyAnswer(_ context.Context, _ *url.URL, _ *http.Request, answer *http.Response) error {
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	return &net.OpError{Op: proxyConnect, Net: "tcp", Err: fmt.Errorf("the proxy answered %d", answer.StatusCode)}
}

// proxyConnect is the operation in net/http's errors about a proxy.
const proxyConnect = "proxyconnect"

func loopback(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	addr, _ := netip.ParseAddr(u.Hostname()) // none for a name
	return u.Hostname() == "localhost" || addr.IsLoopback()
}

func newHTTPClient(transport http.RoundTripper) *http.Client {
	return &http.Client{
		Transport: transport,
		// Storage does not redirect. Following a redirect could send the SAS in the query to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// httpClient has the HTTP connections to one service of an account.
type httpClient struct{ http *http.Client }

// Close closes idle connections. Later operations open new ones.
func (c httpClient) Close() { c.http.CloseIdleConnections() }

// checked returns the error of a request. It closes the idle connections after a request without an answer,
// because they can be as dead as its own: the network drops idle connections silently, and storage fails over.
// Otherwise each try could wait for another dead connection. Requests in progress keep their connections.
func (c httpClient) checked(err error) error {
	_, answered := errors.AsType[*azcore.ResponseError](err)
	if err != nil && !answered && !errors.Is(err, storage.ErrForeign) {
		c.Close()
	}
	return err
}

// credentialFor returns what requests tokens for an identity, such as newCredential.
type credentialFor func(Identity) (azcore.TokenCredential, error)

// newServiceClient returns a client that authenticates with the connection's key or SAS, else with tokens for its
// identity.
func newServiceClient(
	conn Connection, credential credentialFor, transport policy.Transporter,
) (*azqueue.ServiceClient, error) {
	options := &azqueue.ClientOptions{ClientOptions: clientOptions(transport)}
	// Before the request is signed.
	options.PerCallPolicies = []policy.Policy{policyFunc(func(req *policy.Request) (*http.Response, error) {
		req.Raw().Header[versionHeader] = []string{apiVersion} // in the SDK's letter case, to replace its version
		return req.Next()
	})}
	switch {
	case conn.AccountKey != "":
		key, err := azqueue.NewSharedKeyCredential(conn.AccountName, string(conn.AccountKey))
		if err != nil {
			return nil, fmt.Errorf("account key: %w", err)
		}
		return azqueue.NewServiceClientWithSharedKeyCredential(conn.Endpoint, key, options)
	case conn.SAS != "":
		return azqueue.NewServiceClientWithNoCredential(conn.Endpoint+"?"+string(conn.SAS), options)
	}
	cred, err := credential(conn.Identity)
	if err != nil {
		return nil, err
	}
	return azqueue.NewServiceClient(conn.Endpoint, advisedCredential{cred, conn.Identity}, options)
}

func clientOptions(transport policy.Transporter) azcore.ClientOptions {
	return azcore.ClientOptions{
		// Settling retries within the time that is left, and two layers of retries multiply.
		Retry:     policy.RetryOptions{MaxRetries: -1},
		Telemetry: policy.TelemetryOptions{ApplicationID: applicationID},
		Transport: transport,
	}
}

type policyFunc func(*policy.Request) (*http.Response, error)

func (f policyFunc) Do(req *policy.Request) (*http.Response, error) { return f(req) }

// newCredential returns a credential that requests tokens from Microsoft Entra. It uses the SDK's own transport and
// retries, because the endpoint of a managed identity answers 404 while the machine starts.
func newCredential(id Identity) (azcore.TokenCredential, error) {
	switch {
	case id.ManagedIdentity:
		var options azidentity.ManagedIdentityCredentialOptions
		switch {
		case id.ClientID != "":
			options.ID = azidentity.ClientID(id.ClientID)
		case id.ResourceID != "":
			options.ID = azidentity.ResourceID(id.ResourceID)
		case id.ObjectID != "":
			options.ID = azidentity.ObjectID(id.ObjectID)
		}
		return azidentity.NewManagedIdentityCredential(&options)
	case id.ClientSecret != "":
		return azidentity.NewClientSecretCredential(id.TenantID, id.ClientID, string(id.ClientSecret), nil)
	default:
		return azidentity.NewDefaultAzureCredential(nil)
	}
}
