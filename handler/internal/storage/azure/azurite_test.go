package azure

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/storagetest"
	"asynccaller/handler/tools/azurite"
	"asynccaller/handler/tools/azurite/azuritetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	conn := mustConnect(t)
	storagetest.Run(t, func(t *testing.T) storage.Queues { return mustOpen(t, conn) })
}

// An identity works with a server that checks the dates, the issuer and the audience of tokens, but not their
// signature.
func TestIdentityOnAzurite(t *testing.T) {
	t.Parallel()
	certFile, keyFile, roots := mustCertify(t)
	server := azuritetest.Start(t, azurite.Options{CertFile: certFile, KeyFile: keyFile})
	client := newHTTPClient(&http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}})
	for name, test := range map[string]struct {
		audience string
		want     string // end of an error; empty: none
	}{
		"storage":     {"https://storage.azure.com", ""},
		"other_thing": {"https://vault.azure.net", "; Invalid token audience: storage refused access"},
	} {
		t.Run(name, func(t *testing.T) {
			cred := credentialFunc(func(policy.TokenRequestOptions) (azcore.AccessToken, error) {
				expires := time.Now().Add(time.Hour)
				return azcore.AccessToken{Token: unsignedToken(test.audience), ExpiresOn: expires}, nil
			})
			store, err := open(Connection{Endpoint: server.Endpoint}, cred.credential, client)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(store.Close)
			err = store.Create(t.Context(), "by-identity")
			if (err == nil) != (test.want == "") || err != nil && !strings.HasSuffix(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// mustCertify returns a certificate for 127.0.0.1: its files for Azurite, and the pool that trusts it.
func mustCertify(t *testing.T) (certFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(cert)
	if err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AddCert(parsed)
	return mustWritePEM(t, "CERTIFICATE", cert), mustWritePEM(t, "PRIVATE KEY", pkcs8), roots
}

func mustWritePEM(t *testing.T, kind string, der []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// unsignedToken returns a JWT like those of Microsoft Entra, with an invalid signature.
func unsignedToken(audience string) string {
	const tenant = "72f988bf-86f1-41af-91ab-2d7cd011db47"
	now := time.Now()
	claims := fmt.Sprintf(`{"aud":%q,"iss":"https://sts.windows.net/%s/","iat":%d,"nbf":%d,"exp":%d}`,
		audience, tenant, now.Add(-time.Minute).Unix(), now.Add(-time.Minute).Unix(), now.Add(time.Hour).Unix())
	part := base64.RawURLEncoding.EncodeToString
	return part([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + part([]byte(claims)) + "." + part([]byte("signature"))
}
