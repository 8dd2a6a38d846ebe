package secret_test

import (
	"testing"

	"asynccaller/handler/internal/plain/secret"
)

// TestIs finds secret names in every spelling.
func TestIs(t *testing.T) {
	for name, want := range map[string]bool{
		"Authorization": true, "Proxy-Authorization": true, "Proxy-Connection": true, "Cookie": true,
		"Set-Cookie": true, "X-Api-Key": true,
		"x-functions-key": true, "Ocp-Apim-Subscription-Key": true, "access_token": true, "client_secret": true,
		"clientSecret": true,
		"PASSWORD":     true, "Passwd": true, "user-pwd": true, "X-Hub-Signature-256": true, "credentials": true,
		"SessionId": true, "X-Auth": true,
		"connection.string": true, "sig": true, "SAS": true, "pin": true, "pass": true, "to\u212aen": true,
		"X-Sig": true, "X-Clientsig": true, "X-Blobsas": true, "X-Sasuri": true, "x_sas": true, "sasUrl": true,
		"clientSig": true, "clientSIG256": true, "SASToken": true, "X-SAS-2": true, "DPoP": true,
		"X-DPoP-Proof": true, "X-JWT-Assertion": true, "client_assertion": true, "SAMLResponse": true,
		"X-ConnectionString":  true,
		"X-Connection-String": true, "connStr": true, "X-HMAC-SHA256": true, "X-One-Time-PIN": true, "otp": true,
		"X-Passcode": true,
		"X-SID":      true, "PHPSESSID": true, "db_pw": true, "X-PSK": true, "residence": false, "X-Inside": false,
		"accountKey": true, "sharedaccesskey": true, "X-Authz": true, "authorisation": true, "Author-Token": true,
		"X-Pass-Word":            true,
		"Idempotency-Key-Secret": true,
		"X-Design":               false, "X-Assigned-To": false, "X-Shipping": false, "X-Sasquatch": false,
		"X-Signal": false, "X-Passenger": false,
		"X-Bypass": false, "pinned": false, "Mapping": false, "spinAngle": false, "author": false,
		"X-Authored-By": false, "keywords": false,
		"X-Idempotency-Key": false, "Traceparent": false, "ETag": false, "X-Request-Id": false, "hotPotato": false,
		"X-Cosign-Id":     false,
		"Idempotency-Key": false, "idempotencyKey": false, "Content-Type": false, "requestId": false, "design": false,
		"shipping": false,
		"compass":  false, "X-Correlation-ID": false, "": false,
	} {
		if got := secret.Is(name); got != want {
			t.Errorf("%q is secret: %t, want %t", name, got, want)
		}
	}
}
