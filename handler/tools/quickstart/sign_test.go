package quickstart

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/deliver/outbound"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/guard"
	"asynccaller/handler/internal/rules/targets"
)

// signedRequest is what verify.mjs reads of a request.
type signedRequest struct {
	Secret  string            `json:"secret"`
	Headers map[string]string `json:"headers"`
	Body    []byte            `json:"body"`
}

// TestSignaturesInNode: the library of Standard Webhooks for Node.js verifies a retry, a callback, a body of zero bytes
// and one of 48 KiB by either secret, and refuses another body.
func TestSignaturesInNode(t *testing.T) {
	checkInstalled(t)
	secrets := map[string]string{
		"NEW": "whsec_" + strings.Repeat("bmV3", 8), "OLD": "whsec_" + strings.Repeat("b2xk", 21) + "IQ==",
	}
	var requests []signedRequest
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		headers := map[string]string{}
		for name := range r.Header {
			headers[name] = r.Header.Get(name)
		}
		for _, secret := range secrets {
			requests = append(requests,
				signedRequest{secret, headers, body}, signedRequest{secret, headers, append(bytes.Clone(body), 'x')})
		}
	}))
	t.Cleanup(server.Close)
	allow, err := guard.ParseAllow("127.0.0.1")
	must(t, err)
	profiles, err := targets.Parse([]byte(`{"127.0.0.1":{"sign":["$NEW","$OLD"]}}`), nil,
		func(name string) string { return secrets[name] })
	must(t, err)
	client := outbound.New(time.Minute, guard.Rules{Allow: allow}, outbound.Proxy{}).WithProfiles(profiles)
	t.Cleanup(client.Close)
	for _, members := range []string{
		`"requestId":"r1","call":{"url":"%","json":{"a":"é"}}`,
		`"requestId":"r1","attempts":3,"call":{"url":"%","body":"text"}`,
		`"requestId":"r1.callback","call":{"url":"%","method":"POST","json":{"Id":"r1","StatusCode":200}}`,
		`"requestId":"r2","call":{"url":"%","method":"POST","body":""}`,
		`"requestId":"r3","call":{"url":"%","body":"` + strings.Repeat("0123456789.abcde", 3<<10) + `"}`,
	} {
		e, err := envelope.Parse([]byte(`{"asyncCaller":1,` + strings.Replace(members, "%", server.URL, 1) + `}`))
		must(t, err)
		outcome := client.Do(t.Context(), e)
		if outcome.Status != http.StatusOK {
			t.Errorf("the call ended with %d, %s", outcome.Status, outcome.Detail)
		}
	}
	server.Close() // it waits for the requests

	input, err := json.Marshal(requests)
	must(t, err)
	var problems bytes.Buffer
	command := exec.CommandContext(t.Context(), "node", "verify.mjs")
	command.Stdin, command.Stderr = bytes.NewReader(input), &problems
	output, err := command.Output()
	if err != nil {
		t.Fatalf("node verify.mjs: %v\n%s", err, &problems)
	}
	var refusals []string
	must(t, json.Unmarshal(output, &refusals))
	if len(refusals) != 20 {
		t.Fatalf("%d answers", len(refusals))
	}
	for i, refusal := range refusals {
		want := ""
		if i%2 == 1 {
			want = "No matching signature found"
		}
		if refusal != want {
			t.Errorf("request %d, with %d bytes: %q, want %q", i, len(requests[i].Body), refusal, want)
		}
	}
}
