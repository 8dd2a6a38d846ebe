package azure

import (
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
)

const (
	// applicationID stands in the User-Agent, so that storage logs tell who asked.
	applicationID = "async-caller"
	// maxConnsPerHost bounds the sockets to the one host we talk to. The host hands us batchSize +
	// newBatchThreshold messages at a time, 24 as shipped, and each needs one request in flight.
	maxConnsPerHost = 64
	// connectTimeout and handshakeTimeout leave time for a second try within a settle.
	connectTimeout   = 5 * time.Second
	handshakeTimeout = 5 * time.Second
	// idleTimeout is below the time after which Azure's load balancers drop a silent connection (4
	// minutes); azuriteIdleTimeout is below Azurite's keep-alive of 5 s. A request that meets a connection
	// the server is just closing fails, and Go does not repeat a POST.
	idleTimeout        = time.Minute
	azuriteIdleTimeout = 3 * time.Second
)

// newTransport returns the connections to one endpoint. How long a request may take is for the caller's
// context to say.
func newTransport(endpoint string) *http.Transport {
	idle := idleTimeout
	if loopback(endpoint) {
		idle = azuriteIdleTimeout
	}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment, // never applies to a loopback address
		DialContext:         (&net.Dialer{Timeout: connectTimeout}).DialContext,
		TLSHandshakeTimeout: handshakeTimeout,
		MaxConnsPerHost:     maxConnsPerHost,
		MaxIdleConnsPerHost: maxConnsPerHost,
		IdleConnTimeout:     idle,
		ForceAttemptHTTP2:   true,
	}
}

func loopback(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	if u.Hostname() == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(u.Hostname())
	return err == nil && addr.IsLoopback()
}

func newHTTPClient(transport http.RoundTripper) *http.Client {
	return &http.Client{
		Transport: transport,
		// Storage does not redirect. Following one would take the query, and a SAS in it, elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// clientOptions are the SDK's options. Its retries are off: whoever settles a message knows how much time
// is left and retries accordingly; two layers of retries multiply.
func clientOptions(transport policy.Transporter) *azqueue.ClientOptions {
	return &azqueue.ClientOptions{ClientOptions: azcore.ClientOptions{
		Retry:     policy.RetryOptions{MaxRetries: -1},
		Telemetry: policy.TelemetryOptions{ApplicationID: applicationID},
		Transport: transport,
	}}
}

// newServiceClient opens the account with the connection's key or SAS, or else with tokens of cred.
func newServiceClient(conn Connection, cred azcore.TokenCredential, transport policy.Transporter) (*azqueue.ServiceClient, error) {
	options := clientOptions(transport)
	switch {
	case conn.AccountKey != "":
		key, err := azqueue.NewSharedKeyCredential(conn.AccountName, string(conn.AccountKey))
		if err != nil {
			return nil, fmt.Errorf("account key: %w", err)
		}
		return azqueue.NewServiceClientWithSharedKeyCredential(conn.Endpoint, key, options)
	case conn.SAS != "":
		return azqueue.NewServiceClientWithNoCredential(conn.Endpoint+"?"+string(conn.SAS), options)
	default:
		return azqueue.NewServiceClient(conn.Endpoint, cred, options)
	}
}

// newCredential returns what asks Microsoft Entra for tokens. Its requests go through the SDK's own
// transport, with its retries: a managed identity's endpoint answers 404 while the machine starts.
func newCredential(id Identity) (azcore.TokenCredential, error) {
	switch {
	case id.ManagedIdentity && id.ClientID != "":
		return azidentity.NewManagedIdentityCredential(&azidentity.ManagedIdentityCredentialOptions{
			ID: azidentity.ClientID(id.ClientID),
		})
	case id.ManagedIdentity:
		return azidentity.NewManagedIdentityCredential(nil)
	case id.ClientSecret != "":
		return azidentity.NewClientSecretCredential(id.TenantID, id.ClientID, string(id.ClientSecret), nil)
	default:
		return azidentity.NewDefaultAzureCredential(nil)
	}
}
