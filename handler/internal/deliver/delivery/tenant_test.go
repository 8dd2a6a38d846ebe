package delivery_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/rules/decision"
)

// TestTenantInEveryLogLine: whoever reads the log can tell whose call a line is about, and follow it by the
// correlation id that the call carries, whatever became of it.
func TestTenantInEveryLogLine(t *testing.T) {
	callOut := func(header string) string {
		return base64.StdEncoding.EncodeToString([]byte("GET /?code=C4nary HTTP/1.1\r\nHost: t.example\r\n" +
			header + "\r\n"))
	}
	const form = `{"Organization":"acme","Environment":"prd","OriginalRequestId":"o1","RawRequest":{"Id":"r1",` +
		`"CallOut":%q}}`
	for name, c := range map[string]struct {
		content     string
		outcome     decision.Outcome
		lines       int
		correlation any
	}{
		"delivered": {
			fmt.Sprintf(form, callOut("X-Correlation-ID: c-7\r\n")),
			decision.Outcome{Status: 200},
			1, "c-7",
		},
		"gave_up": {
			fmt.Sprintf(form, callOut("x-correlation-id: c-7\r\n")),
			decision.Outcome{Status: 400},
			2, "c-7",
		},
		"ignored": {
			fmt.Sprintf(form, callOut("")),
			decision.Outcome{Status: 503, Header: http.Header{"Retry-After": {"soon"}}},
			2, nil,
		},
		"no_id":     {fmt.Sprintf(form, callOut("X-Correlation-ID: a b\r\n")), decision.Outcome{Status: 200}, 1, nil},
		"malformed": {fmt.Sprintf(form, "%%%"), decision.Outcome{}, 1, nil},
		"too_full": {
			fmt.Sprintf(form, callOut("X-Long: "+strings.Repeat("x", 48<<10)+"\r\n")),
			decision.Outcome{},
			1, nil,
		},
		"no_callout": {
			`{"Organization":"acme","Environment":"prd","RawRequest":{"Id":"r1"}}`,
			decision.Outcome{},
			1, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				<-time.After(time.Until(midnight))
				b := setup(t, answers(c.outcome))
				b.deliver(c.content)
				lines := b.lines(t)
				if len(lines) != c.lines {
					t.Fatalf("%d lines, want %d: %s", len(lines), c.lines, b.log)
				}
				for _, line := range lines {
					if line["organization"] != "acme" || line["environment"] != "prd" ||
						line["correlation_id"] != c.correlation {
						t.Errorf("line %v", line)
					}
				}
			})
		})
	}
}
