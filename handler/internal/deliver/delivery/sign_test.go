package delivery_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"asynccaller/handler/internal/rules/targets"
)

// TestSignedCalls: a target verifies each attempt at a call and its callback, in both formats, by either secret, also
// if the call has moved. The ids are those of the call and of the callback, and no secret gets out.
func TestSignedCalls(t *testing.T) {
	const form = `{"OriginalRequestId":"o1","RawRequest":{"Id":"n1","CallOutUriScheme":"http","CallOut":"%s",` +
		`"CallBackUriScheme":"http","CallBack":"%s"}}`
	request := func(path, more string) string {
		const head = `POST /%s HTTP/1.1\r\nHost: old.example\r\nwebhook-id: mine\r\n\r\n`
		return expand(fmt.Sprintf("{{"+head+"%s}}", path, more))
	}
	for name, content := range map[string]string{
		"native": `{"asyncCaller":1,"requestId":"r1","call":{"url":"http://old.example/call","json":{"a":"é"},` +
			`"headers":{"WEBHOOK-ID":"mine"}},"callback":{"url":"http://old.example/done"}}`,
		"nexus": fmt.Sprintf(form, request("call", "x"), request("done", "")),
	} {
		t.Run(name, func(t *testing.T) {
			newSecret, oldSecret := "whsec_"+strings.Repeat("bmV3", 8), "whsec_"+strings.Repeat("b2xk", 8)
			var ids []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				for _, secret := range []string{newSecret, oldSecret} {
					webhook, err := standardwebhooks.NewWebhook(secret)
					if err == nil {
						err = webhook.Verify(body, r.Header)
					}
					if err != nil {
						t.Errorf("%s with %q and %v: %v", r.URL, body, r.Header, err)
					}
				}
				ids = append(ids, r.Header.Get("Webhook-Id"))
				if len(ids) == 1 {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			}))
			t.Cleanup(server.Close)
			profiles, err := targets.Parse(fmt.Appendf(nil,
				`{"old.example:80":{"to":%q},"127.0.0.1":{"sign":["$NEW","$OLD"]}}`, server.URL), nil,
				func(name string) string { return map[string]string{"NEW": newSecret, "OLD": oldSecret}[name] })
			if err != nil {
				t.Fatal(err)
			}
			b := setup(t, nil)
			b.Rules.Profiles = profiles
			b.Caller = newClient(t).WithProfiles(profiles)
			now := noon
			b.Now = func() time.Time { return now }
			taken := map[string]bool{}
			for content != "" {
				b.deliver(content)
				now, content = now.Add(time.Minute), ""
				for _, waiting := range b.store.All(mainQueue) {
					if !taken[waiting.ID] {
						content = string(mustDecode(t, b.encoding, waiting.Text))
					}
					taken[waiting.ID] = true
				}
				if strings.Contains(content, "whsec_") || strings.Contains(content, "msg_") {
					t.Errorf("the message has what belongs to the signature: %s", content)
				}
			}
			server.Close() // it waits for the requests
			isRight := len(ids) == 3 && ids[0] == ids[1] && ids[1] != ids[2]
			if !isRight || strings.Contains(b.log.String(), newSecret[6:]) {
				t.Errorf("ids %q, log:\n%s", ids, b.log)
			}
		})
	}
}
