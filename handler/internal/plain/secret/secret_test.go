package secret_test

import (
	"testing"

	"asynccaller/handler/internal/plain/secret"
)

// TestIs finds secret names in every spelling.
func TestIs(t *testing.T) {
	for want, names := range map[bool][]string{
		true: {
			"Authorization", "Proxy-Authorization", "Proxy-Connection", "Cookie", "Set-Cookie", "X-Api-Key",
			"x-functions-key", "Ocp-Apim-Subscription-Key", "access_token", "client_secret", "clientSecret", "PASSWORD",
			"Passwd", "user-pwd", "X-Hub-Signature-256", "credentials", "SessionId", "X-Auth", "connection.string",
			"sig", "SAS", "pin", "pass", "to\u212aen", "X-Sig", "X-Clientsig", "X-Blobsas", "X-Sasuri", "x_sas",
			"sasUrl", "clientSig", "clientSIG256", "SASToken", "X-SAS-2", "DPoP", "X-DPoP-Proof", "X-JWT-Assertion",
			"client_assertion", "SAMLResponse", "X-ConnectionString", "X-Connection-String", "connStr", "X-HMAC-SHA256",
			"X-One-Time-PIN", "otp", "X-Passcode", "X-SID", "PHPSESSID", "db_pw", "X-PSK", "accountKey",
			"sharedaccesskey", "X-Authz", "authorisation", "Author-Token", "X-Pass-Word", "Idempotency-Key-Secret",
		},
		false: {
			"residence", "X-Inside", "X-Design", "X-Assigned-To", "X-Shipping", "X-Sasquatch", "X-Signal",
			"X-Passenger", "X-Bypass", "pinned", "Mapping", "spinAngle", "author", "X-Authored-By", "keywords",
			"X-Idempotency-Key", "Traceparent", "ETag", "X-Request-Id", "hotPotato", "X-Cosign-Id", "Idempotency-Key",
			"idempotencyKey", "Content-Type", "requestId", "design", "shipping", "compass", "X-Correlation-ID", "",
		},
	} {
		for _, name := range names {
			if got := secret.Is(name); got != want {
				t.Errorf("%q is secret: %t, want %t", name, got, want)
			}
		}
	}
}
