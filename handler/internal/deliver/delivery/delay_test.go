package delivery_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/storage"
)

// TestLastAttemptAfterOutage: time that the settle write took is not added to the wait.
func TestLastAttemptAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, answers(decision.Outcome{Status: 500}))
		b.Settler = settle.New(failing{b.store, func(context.Context) error {
			if time.Since(midnight) < 30*time.Second {
				return errDown
			}
			return nil
		}}, storage.Base64)
		b.send(
			t,
			`{"asyncCaller":1,"requestId":"r1","call":{"url":"https://t.example/"},"deadline":"2000-01-01T00:01:00Z",`+
				`"retry":{"schedule":["5s","1h"]},"attempts":1}`,
		)
		b.runHost(t)
		if len(b.target.calls) != 2 {
			t.Errorf("%d calls, want the last attempt at 50 s too", len(b.target.calls))
		}
	})
}

// TestDelayInDays: the successor states the delays as the sender wrote them.
func TestDelayInDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, answers(decision.Outcome{Status: 500}))
		const call = `"call":{"url":"https://t.example/","timeout":"1d"}`
		const policy = `"retry":{"schedule":["1d12h"]}`
		b.deliver(`{"asyncCaller":1,"requestId":"r1",` + call + `,` + policy + `}`)
		items := b.items(t, mainQueue)
		if len(items) != 1 || items[0].delay != 36*time.Hour ||
			!strings.Contains(items[0].content, call) || !strings.Contains(items[0].content, policy) {
			t.Errorf("got %v, want one successor in 36h", items)
		}
	})
}
