package ingress_test

import (
	"context"
	"errors"
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

// TestUpdateNeedsTheHostsWord: the handler reschedules a message in place only if the host itself identifies it. In
// text mode the sender can forge the metadata, so the same metadata is not enough.
func TestUpdateNeedsTheHostsWord(t *testing.T) {
	for name, row := range map[string]struct {
		body func(t *testing.T, content, metadata string) string
		// metadata returns the metadata of the message, perhaps changed.
		metadata func(storage.Message) string
		mode     string
	}{
		"binary": {inBinary, metadataOf, "update"},
		"text":   {inText, metadataOf, "enqueue"},
		"manual_run": {inBinary, func(storage.Message) string {
			return `{"DequeueCount":"0","ExpirationTime":"9999-12-31T23:59:59+00:00"}`
		}, "enqueue"},
		"no_metadata": {inBinary, func(storage.Message) string { return `{}` }, "enqueue"},
		"no_receipt": {
			inBinary, func(m storage.Message) string { m.PopReceipt = ""; return metadataOf(m) },
			"enqueue",
		},
		"no_id": {inBinary, func(m storage.Message) string { m.ID = ""; return metadataOf(m) }, "enqueue"},
		"no_count": {
			inBinary, func(m storage.Message) string { m.DequeueCount = 0; return metadataOf(m) },
			"enqueue",
		},
		"late_count": {
			inBinary, func(m storage.Message) string { m.DequeueCount = 4; return metadataOf(m) },
			"enqueue",
		},
		"expires_soon": {inBinary, func(m storage.Message) string {
			m.ExpiresAt = time.Now().UTC().
				Add(time.Hour)
			return metadataOf(m)
		}, "enqueue"},
		"expires_late": {inBinary, func(m storage.Message) string {
			m.ExpiresAt = time.Now().UTC().Add(168 * time.Hour)
			return metadataOf(m)
		}, "update"},
		"no_expiry": {inBinary, func(m storage.Message) string {
			return fmt.Sprintf(`{"DequeueCount":"1","Id":"\"%s\"","PopReceipt":"\"%s\""}`, m.ID, m.PopReceipt)
		}, "enqueue"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newApp(t, answers(503)).inUpdateMode()
			m := a.received(t, anEnvelope(""))

			post(t, a.start(t), row.body(t, anEnvelope(""), row.metadata(m))).wantStatus(t, http.StatusOK)

			if line := a.mustOneLine(t); line["reschedule"] != row.mode {
				t.Errorf("reschedule by %v, want %s", line["reschedule"], row.mode)
			}
			err := a.store.Delete(t.Context(), mainQueue, m.ID, m.PopReceipt) // the host's
			if updated := errors.Is(err, storage.ErrStale); updated != (row.mode == "update") {
				t.Errorf("the host's delete: %v", err)
			}
			if contents := a.contents(t, mainQueue); len(contents) != 1 || contents[0] == anEnvelope("") {
				t.Errorf("the queue holds %q, want one message, with its attempt", contents)
			}
		})
	}
}

func inBinary(_ *testing.T, content, metadata string) string { return binary(content, metadata) }

func inText(t *testing.T, content, metadata string) string {
	t.Helper()
	return text(t, content, metadata)
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

// TestUnknownAnswerKeepsTheMessage: if it is unknown whether storage rescheduled a message, the host keeps it.
func TestUnknownAnswerKeepsTheMessage(t *testing.T) {
	a := newApp(t, answers(503)).inUpdateMode()
	m := a.received(t, anEnvelope(""))
	server := a.start(t)
	a.deliverer.Settler = settle.New(&unanswered{faulty: faulty{Queues: a.store}}, storage.Base64).
		WithReschedule(settle.RescheduleUpdate, 5)

	post(t, server, binary(anEnvelope(""), metadataOf(m))).wantStatus(t, http.StatusInternalServerError)

	if _, err := a.store.Update(t.Context(), mainQueue, m.ID, m.PopReceipt, m.Text, 0); !errors.Is(err,
		storage.ErrStale) {
		t.Errorf("the host's release: %v, want it to be refused", err)
	}
	if contents := a.contents(t, mainQueue); len(contents) != 1 || contents[0] == anEnvelope("") {
		t.Errorf("the queue holds %q, want one message, with its attempt", contents)
	}
}

// unanswered carries out updates but returns an error.
type unanswered struct{ faulty }

func (u *unanswered) Update(ctx context.Context, name, id, receipt, text string, delay time.Duration) (string, error) {
	if _, err := u.Queues.Update(ctx, name, id, receipt, text, delay); err != nil {
		return "", err
	}
	return "", errors.New("503 ServerBusy")
}
