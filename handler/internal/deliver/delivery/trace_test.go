package delivery_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
)

// TestTrace: one trace id finds a call over three attempts, its callback and its dead letter in the log, also if the
// first attempt could not be settled, and each delivery has a span of its own.
func TestTrace(t *testing.T) {
	const own = "0af7651916cd43dd8448eb211c80319c"
	native := `{"asyncCaller":1,"requestId":"r1","call":{"url":"https://target.example/"},"retry":{"schedule":["5s"],` +
		`"maxAttempts":3}%s}`
	nexus := func(host, header string) string {
		return base64.StdEncoding.EncodeToString([]byte("POST / HTTP/1.1\r\nHost: " + host + "\r\n" + header + "\r\n"))
	}
	header := "traceparent: 00-" + own + "-00f067aa0ba902b7-01\r\n"
	wrapped := `{"Organization":"acme","Environment":"prd","OriginalRequestId":"o1",` +
		`"CreatedAt":"2000-01-01T00:00:00+00:00",` +
		`"DeadlineAt":"2000-01-01T00:01:30+00:00","RawRequest":{"Id":"o1","CallOutUriScheme":"https","CallOut":%q,` +
		`"CallBack":%s}}`
	callback := `"` + nexus("sender.example", "") + `"`
	tests := map[string]struct {
		content string
		want    string // empty for any
		ended   int    // messages on the poison queue
	}{
		"callback":    {fmt.Sprintf(native, `,"callback":{"url":"https://sender.example/"}`), "", 0},
		"dead_letter": {fmt.Sprintf(native, ""), "", 1},
		"own_dead_letter": {
			fmt.Sprintf(native, `,"trace":{"traceparent":"00-`+own+`-00f067aa0ba902b7-01"}`),
			own, 1,
		},
		"nexus_callback":       {fmt.Sprintf(wrapped, nexus("target.example", ""), callback), "", 0},
		"nexus_dead_letter":    {fmt.Sprintf(wrapped, nexus("target.example", ""), "null"), "", 1},
		"own_nexus_callback":   {fmt.Sprintf(wrapped, nexus("target.example", header), callback), own, 0},
		"own_nexus_deadletter": {fmt.Sprintf(wrapped, nexus("target.example", header), "null"), own, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				spans := map[string]bool{}
				b := setup(t, &target{answer: func(_ context.Context, e *envelope.Envelope) decision.Outcome {
					spans[e.Trace.Traceparent()] = true
					if e.Call.Target.Host == "sender.example" {
						return decision.Outcome{Status: 200}
					}
					return decision.Outcome{Status: 503}
				}})
				crashes := 1
				b.Settler = settle.New(failing{b.store, func(context.Context) error {
					crashes--
					if crashes >= 0 {
						return errors.New("no storage")
					}
					return nil
				}}, storage.Base64)
				if _, err := b.store.Put(t.Context(), mainQueue,
					storage.Item{Text: storage.Base64.Encode([]byte(test.content))}); err != nil {
					t.Fatal(err)
				}
				b.runHost(t)

				if len(spans) < 3 || len(spans) != len(b.target.calls) {
					t.Errorf("%d spans for %d calls", len(spans), len(b.target.calls))
				}
				var seen string
				for line := range strings.Lines(b.log.String()) {
					var fields map[string]any
					if err := json.Unmarshal([]byte(line), &fields); err != nil {
						t.Fatal(err)
					}
					id, _ := fields["trace_id"].(string)
					if len(id) != 32 || seen != "" && id != seen || test.want != "" && id != test.want {
						t.Errorf("trace id %q, want %q, in %s", id, seen, line)
					}
					seen = id
				}
				for span := range spans {
					if !strings.HasPrefix(span, "00-"+seen+"-") {
						t.Errorf("sent %s", span)
					}
				}
				dead := b.items(t, poisonQueue)
				if len(dead) != test.ended {
					t.Fatalf("%d dead letters", len(dead))
				}
				for _, message := range dead {
					e, err := envelope.Parse([]byte(message.content))
					if err != nil {
						t.Fatal(err)
					}
					if err := e.Accept(midnight, "moved-back", 48<<10); err != nil || e.Trace.ID != seen {
						t.Errorf("the dead letter has the trace %s, %v", e.Trace.ID, err)
					}
				}
			})
		})
	}
}
