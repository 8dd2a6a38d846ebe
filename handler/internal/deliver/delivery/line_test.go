package delivery_test

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/deliver/logs"
	"asynccaller/handler/internal/rules/decision"
)

// TestLineOfADelivery: a message that is delivered adds at most 500 bytes to the log, which is billed by its size.
func TestLineOfADelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, answers(decision.Outcome{Status: 200, Took: 87 * time.Millisecond}))
		var log bytes.Buffer
		b.Log = logs.New(&log, zerolog.InfoLevel)
		b.Deliver(t.Context(), delivery.Message{
			Message: decision.Message{
				Function: "AC-standard", InvocationID: messageID, Queue: mainQueue, ID: messageID, DequeueCount: 1,
			},
			Content: fmt.Appendf(nil, `{"asyncCaller":1,"requestId":%q,"createdAt":"1999-12-31T23:59:58Z",`+
				`"call":{"url":"https://crm.example.com/orders"}}`, messageID),
		})
		if log.Len() < 400 || log.Len() > 500 {
			t.Errorf("%d bytes, want 400 to 500: %s", log.Len(), &log)
		}
	})
}
