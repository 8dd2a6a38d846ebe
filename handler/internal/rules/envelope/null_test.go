package envelope_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"asynccaller/handler/internal/rules/envelope"
)

// TestNullIsAbsent: an envelope with null in a place means the same as one without it, and keeps its bytes.
func TestNullIsAbsent(t *testing.T) {
	const call = `"call":{"url":"https://t.example/a"}`
	callOut := base64.StdEncoding.EncodeToString([]byte("GET /a HTTP/1.1\r\nHost: t.example\r\n\r\n"))
	raw := fmt.Sprintf(`{"Id":"r1","CallOut":%q}`, callOut)
	for name, c := range map[string]struct{ with, without string }{
		"header": {
			`{"asyncCaller":1,"call":{"url":"https://t.example/a","headers":{"X-Correlation-ID":null,"A":"b"}}}`,
			`{"asyncCaller":1,"call":{"url":"https://t.example/a","headers":{"A":"b"}}}`,
		},
		"header_host": {
			`{"asyncCaller":1,"call":{"url":"https://t.example/a","headers":{"Host":null}}}`,
			`{"asyncCaller":1,"call":{"url":"https://t.example/a","headers":{}}}`,
		},
		"header_json": {
			`{"asyncCaller":1,"call":{"url":"https://t.example/a","headers":{"json":null,"not a name":null}}}`,
			`{"asyncCaller":1,"call":{"url":"https://t.example/a","headers":{}}}`,
		},
		"content_type": {
			`{"asyncCaller":1,"call":{"url":"https://t.example/a","headers":{"Content-Type":null},"json":null}}`,
			`{"asyncCaller":1,"call":{"url":"https://t.example/a","json":null}}`,
		},
		"element": {
			`{"asyncCaller":1,"call":{"url":"https://t.example/a","headers":{"A":[null,"b",null,"c"]}}}`,
			`{"asyncCaller":1,"call":{"url":"https://t.example/a","headers":{"A":["b","c"]}}}`,
		},
		"only_elements": {
			`{"asyncCaller":1,"call":{"url":"https://t.example/a","headers":{"A":[null]}}}`,
			`{"asyncCaller":1,"call":{"url":"https://t.example/a","headers":{"A":[]}}}`,
		},
		"call": {
			`{"asyncCaller":1,"call":{"url":"https://t.example/a","method":null,"headers":null,"body":null,` +
				`"bodyBase64":null,"timeout":null}}`,
			`{"asyncCaller":1,` + call + `}`,
		},
		"callback": {
			`{"asyncCaller":1,` + call + `,"callback":{"url":"https://c.example/","method":null,"headers":{"A":null}}}`,
			`{"asyncCaller":1,` + call + `,"callback":{"url":"https://c.example/","headers":{}}}`,
		},
		"trace": {`{"asyncCaller":1,` + call + `,"trace":{"traceparent":null}}`, `{"asyncCaller":1,` + call + `}`},
		"trail": {
			`{"asyncCaller":1,` + call + `,"trail":[null,{"at":null,"status":503,"error":null,"tookMs":null},null]}`,
			`{"asyncCaller":1,` + call + `,"trail":[{"status":503}]}`,
		},
		"dead_letter": {
			`{"asyncCaller":1,` + call + `,"deadLetter":{"at":null,"reason":"expired","detail":null,"queue":null,` +
				`"attempts":null,"answer":null}}`,
			`{"asyncCaller":1,` + call + `,"deadLetter":{"reason":"expired"}}`,
		},
		"members": {
			`{"asyncCaller":1,` + call + `,"requestId":null,"callback":null,"priority":null,"notBefore":null,` +
				`"deadline":null,"retry":null,"giveUp":null,"attempts":null,"createdAt":null,"latestAttemptAt":null,` +
				`"nextAttemptAt":null,"trail":null,"run":null,"reserved":null,"trace":null,"deadLetter":null}`,
			`{"asyncCaller":1,` + call + `}`,
		},
		"other_marker": {`{"asyncCaller":1,"rawRequest":null,` + call + `}`, `{"asyncCaller":1,` + call + `}`},
		"nexus": {
			`{"Organization":null,"CreatedAt":null,"Trail":[null,{"At":null,"Status":500}],"DeadLetter":null,` +
				`"asyncCaller":null,"RawRequest":` + strings.TrimSuffix(raw, "}") +
				`,"Context":null,"CallBack":null,"Title":null}}`,
			`{"Trail":[{"Status":500}],"RawRequest":` + raw + `}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			parse := func(content string) *envelope.Envelope {
				t.Helper()
				e, err := envelope.Parse([]byte(content))
				if err != nil {
					t.Fatalf("%s: %v", content, err)
				}
				return e
			}
			got, want := parse(c.with), parse(c.without)
			options := []cmp.Option{
				cmpopts.IgnoreUnexported(envelope.Envelope{}), cmpopts.EquateEmpty(),
			}
			if diff := cmp.Diff(want, got, options...); diff != "" {
				t.Errorf("-without +with:\n%s", diff)
			}
			now := time.Date(2026, time.January, 31, 12, 0, 0, 0, time.UTC)
			if err := got.Accept(now, "m", 48<<10); err != nil {
				t.Fatal(err)
			}
			successor, err := got.Successor(48 << 10)
			if err != nil {
				t.Fatal(err)
			}
			for _, member := range []string{"call", "callback", "RawRequest"} {
				var members map[string]json.RawMessage
				if err := json.Unmarshal([]byte(c.with), &members); err != nil {
					t.Fatal(err)
				}
				if value := string(members[member]); !strings.Contains(string(successor.Bytes), value) {
					t.Errorf("%s is not the same in %s", member, successor.Bytes)
				}
			}
			if _, err := envelope.Parse(successor.Bytes); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestNullMarker: a marker that is null marks no envelope.
func TestNullMarker(t *testing.T) {
	for _, content := range []string{
		`{"asyncCaller":null,"call":{"url":"https://t.example/"}}`,
		`{"RawRequest":null}`, `{"asyncCaller":null,"RawRequest":null}`,
	} {
		if _, err := envelope.Parse([]byte(content)); !errors.Is(err, envelope.ErrNotEnvelope) {
			t.Errorf("%s: %v", content, err)
		}
	}
}
