package ingress_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
)

// inUpdateMode makes the app reschedule messages in place.
func (a *app) inUpdateMode() *app {
	a.deliverer.Settler = a.deliverer.Settler.WithReschedule(settle.RescheduleUpdate, 5)
	return a
}

// received puts content on the main queue and receives it, as the host does.
func (a *app) received(t *testing.T, content string) storage.Message {
	t.Helper()
	if _, err := a.store.Put(t.Context(), mainQueue,
		storage.Item{Text: storage.Base64.Encode([]byte(content))}); err != nil {
		t.Fatal(err)
	}
	messages, err := a.store.Receive(t.Context(), mainQueue, 1, 10*time.Minute)
	if err != nil || len(messages) != 1 {
		t.Fatalf("received %d messages: %v", len(messages), err)
	}
	return messages[0]
}

// metadataOf returns the host's metadata of a message.
func metadataOf(m storage.Message) string {
	return fmt.Sprintf(`{"DequeueCount":"%d","ExpirationTime":%q,"Id":"\"%s\"","PopReceipt":"\"%s\""}`,
		m.DequeueCount, m.ExpiresAt.Format("2006-01-02T15:04:05+00:00"), m.ID, m.PopReceipt)
}

// TestForgedReceipt: a sender cannot overwrite another message, even with its receipt. In text mode the host copies the
// sender's members into the metadata; in binary mode it does not.
func TestForgedReceipt(t *testing.T) {
	for _, mode := range []string{"text", "binary"} {
		t.Run(mode, func(t *testing.T) {
			a := newApp(t, answers(503)).inUpdateMode()
			victim := a.received(t, "the victim's")
			forged := fmt.Sprintf(
				`{"asyncCaller":1,"requestId":"evil","Id":%q,"PopReceipt":%q,"DequeueCount":"1",`+
					`"ExpirationTime":"9999-12-31T23:59:59+00:00","call":{"url":"https:`+
					`//t.example/"}}`,
				victim.ID,
				victim.PopReceipt,
			)
			own := a.received(t, forged)
			body := binary(forged, metadataOf(own))
			if mode == "text" {
				body = text(t, forged, metadataOf(victim))
			}

			post(t, a.start(t), body).wantStatus(t, http.StatusOK)

			if err := a.store.Delete(t.Context(), mainQueue, victim.ID, victim.PopReceipt); err != nil {
				t.Errorf("the victim's message was changed: %v", err)
			}
			_ = a.store.Delete(t.Context(), mainQueue, own.ID, own.PopReceipt) // the host's
			contents := a.contents(t, mainQueue)
			if len(contents) != 1 {
				t.Fatalf("the queue holds %q, want the sender's own message", contents)
			}
			if e, err := envelope.Parse([]byte(contents[0])); err != nil || e.RequestID != "evil" || e.Attempts != 1 {
				t.Errorf("reschedule %s: %v", contents[0], err)
			}
		})
	}
}
