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
	// applicationID is part of the User-Agent, so that storage logs show the sender.
	applicationID = "async-caller"
	// maxConnsPerHost limits the connections to storage. The Functions host passes batchSize + newBatchThreshold
	// messages of a queue at once, 24 by default, and each needs one request in flight.
	maxConnsPerHost = 64
	// connectTimeout and handshakeTimeout leave time for a second try within one settle write.
	connectTimeout   = 5 * time.Second
	handshakeTimeout = 5 * time.Second
	// idleTimeout is less than the 4 minutes after which Azure's load balancers drop an idle connection.
	// azuriteIdleTimeout is less than Azurite's keep-alive of 5 s. A request on a connection that the server is
	// closing fails, and Go does not repeat a POST.
	idleTimeout        = time.Minute
	azuriteIdleTimeout = 3 * time.Second
)

// newTransport returns the transport for one endpoint. The caller's context limits the time of a request.
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
		// Storage does not redirect. Following a redirect could send the SAS in the query to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// newServiceClient returns a client that authenticates with the connection's key or SAS, else with tokens of cred.
func newServiceClient(conn Connection, cred azcore.TokenCredential, transport policy.Transporter) (*azqueue.ServiceClient, error) {
	options := &azqueue.ClientOptions{ClientOptions: azcore.ClientOptions{
		// Settling retries within the time that is left, and two layers of retries multiply.
		Retry:     policy.RetryOptions{MaxRetries: -1},
		Telemetry: policy.TelemetryOptions{ApplicationID: applicationID},
		Transport: transport,
	}}
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

// newCredential returns a credential that requests tokens from Microsoft Entra. It uses the SDK's own transport and
// retries, because the endpoint of a managed identity answers 404 while the machine starts.
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
