package delivery_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/rules/decision"
)

// TestAge: the line about the end of a delivery says how long it took in all, from its creation or notBefore.
func TestAge(t *testing.T) {
	for name, test := range map[string]struct {
		outcome decision.Outcome
		members string
		want    string
	}{
		"delivered": {
			decision.Outcome{Status: 200, Took: time.Second}, `,"createdAt":"1999-12-31T23:00:00Z"`, `"age":3601000,`,
		},
		"not_before": {
			decision.Outcome{Status: 200, Took: time.Second},
			`,"createdAt":"1999-12-31T23:00:00Z","notBefore":"1999-12-31T23:59:00Z"`, `"age":61000,`,
		},
		"given_up": {
			decision.Outcome{Status: 400, Took: time.Second}, `,"createdAt":"1999-12-31T23:59:59Z"`, `"age":2000,`,
		},
		"goes_on": {decision.Outcome{Status: 503}, `,"createdAt":"1999-12-31T23:00:00Z"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, answers(test.outcome))
				b.Deliver(b.ctx, delivery.Message{
					Message: decision.Message{Queue: mainQueue, ID: messageID},
					Content: fmt.Appendf(nil,
						`{"asyncCaller":1,"call":{"url":"https://target.example:8443/orders"}%s}`, test.members),
				})
				hasAge := strings.Contains(b.log.String(), `"age":`)
				if !strings.Contains(b.log.String(), test.want) || hasAge != (test.want != "") {
					t.Errorf("want %s in %s", test.want, b.log)
				}
			})
		})
	}
}
