package secret_test

import (
	"testing"

	"asynccaller/handler/internal/secret"
)

// TestIs finds secret names in every spelling.
func TestIs(t *testing.T) {
	for name, want := range map[string]bool{
		"Authorization": true, "Proxy-Authorization": true, "Proxy-Connection": true, "Cookie": true, "Set-Cookie": true, "X-Api-Key": true,
		"x-functions-key": true, "Ocp-Apim-Subscription-Key": true, "access_token": true, "client_secret": true, "clientSecret": true,
		"PASSWORD": true, "Passwd": true, "user-pwd": true, "X-Hub-Signature-256": true, "credentials": true, "SessionId": true, "X-Auth": true,
		"connection.string": true, "sig": true, "SAS": true, "pin": true, "pass": true, "to\u212aen": true,
		"Idempotency-Key": false, "idempotencyKey": false, "Content-Type": false, "requestId": false, "design": false, "shipping": false,
		"compass": false, "X-Correlation-ID": false, "": false,
	} {
		if got := secret.Is(name); got != want {
			t.Errorf("%q is secret: %t, want %t", name, got, want)
		}
	}
}
