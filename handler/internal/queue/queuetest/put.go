package queuetest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/queue"
)

func testPutResult(t *testing.T, a *account) {
	name := a.mustCreate(t, "put")
	put := a.mustPut(t, name, queue.Item{Text: "text"})
	if put.ID == "" || put.PopReceipt == "" {
		t.Errorf("id %q, pop receipt %q: want both", put.ID, put.PopReceipt)
	}
	if put.Text != "" || put.DequeueCount != 0 {
		t.Errorf("text %q, dequeue count %d: want neither", put.Text, put.DequeueCount)
	}
	if age := time.Since(put.InsertedAt).Abs(); age > time.Minute {
		t.Errorf("inserted at %s, %s from now", put.InsertedAt, age)
	}
	if put.ExpiresAt.Year() != 9999 {
		t.Errorf("expires at %s, want the year 9999", put.ExpiresAt)
	}
	if !put.NextVisibleAt.Equal(put.InsertedAt) {
		t.Errorf("visible at %s, want at once: %s", put.NextVisibleAt, put.InsertedAt)
	}
	got := a.mustReceive(t, name, hour)
	if got.ID != put.ID || !got.InsertedAt.Equal(put.InsertedAt) || !got.ExpiresAt.Equal(put.ExpiresAt) {
		t.Errorf("received %+v, want what was put: %+v", got, put)
	}
}

func testPutDelayed(t *testing.T, a *account) {
	// A service that counts whole seconds and cuts off the fraction would show the message too early.
	const delay = 1200 * time.Millisecond
	name := a.mustCreate(t, "delayed")
	start := time.Now()
	put := a.mustPut(t, name, queue.Item{Text: "later", Delay: delay})
	if got := put.NextVisibleAt.Sub(put.InsertedAt); got != 2*time.Second {
		t.Errorf("delay is %s, want 2s", got)
	}
	msg := a.mustReceive(t, name, hour)
	if took := time.Since(start); took < delay {
		t.Errorf("visible after %s, before its delay of %s", took, delay)
	}
	if msg.Text != "later" || msg.DequeueCount != 1 {
		t.Errorf("received %q for the %d. time, want it unchanged for the first", msg.Text, msg.DequeueCount)
	}
}

func testPutDelayBounds(t *testing.T, a *account) {
	name := a.mustCreate(t, "bounds")
	for delay, want := range map[time.Duration]time.Duration{
		-hour:                0,
		time.Nanosecond:      time.Second,
		hour:                 hour,
		queue.MaxDelay:       queue.MaxDelay,
		queue.MaxDelay + 1:   queue.MaxDelay,
		365 * 24 * time.Hour: queue.MaxDelay,
		1<<63 - 1:            queue.MaxDelay,
	} {
		put := a.mustPut(t, name, queue.Item{Text: "x", Delay: delay})
		if got := put.NextVisibleAt.Sub(put.InsertedAt); got != want {
			t.Errorf("delay of %s became %s, want %s", delay, got, want)
		}
	}
}

func testPutTTL(t *testing.T, a *account) {
	name := a.mustCreate(t, "ttl")
	put := a.mustPut(t, name, queue.Item{Text: "short-lived", TTL: 1500 * time.Millisecond})
	if got := put.ExpiresAt.Sub(put.InsertedAt); got != 2*time.Second {
		t.Errorf("time-to-live is %s, want it rounded up to 2s", got)
	}
	a.mustPut(t, name, queue.Item{Text: "long-lived", TTL: 30 * 24 * time.Hour})
	a.eventually(t, "the short-lived message to expire", func() bool {
		left := a.peeked(t, name)
		return len(left) == 1 && left[0].Text == "long-lived"
	})
}

func testPutDelayWithinTTL(t *testing.T, a *account) {
	name := a.mustCreate(t, "within")
	for _, item := range []queue.Item{
		{Text: "x", Delay: 5 * time.Second, TTL: 5 * time.Second},
		{Text: "x", Delay: 6 * time.Second, TTL: 5 * time.Second},
		{Text: "x", TTL: -time.Second},
	} {
		if _, err := a.Put(t.Context(), name, item); !errors.Is(err, queue.ErrRefused) {
			t.Errorf("put with delay %s, time-to-live %s: %v, want ErrRefused", item.Delay, item.TTL, err)
		}
	}
	a.mustPut(t, name, queue.Item{Text: "x", Delay: 5 * time.Second, TTL: 6 * time.Second})
	a.mustPut(t, name, queue.Item{Text: "x", Delay: queue.MaxDelay}) // never expires
}

func testTextKept(t *testing.T, a *account) {
	name := a.mustCreate(t, "text")
	for _, text := range []string{
		"", " ", "\n", "\r", "\r\n", "\t", "  leading and trailing  ", "line one\nline two\r\nline three\n",
		"<&>\"'", "<QueueMessage>&amp;&#10;</QueueMessage>", "]]>", "<![CDATA[x]]>",
		"grüß dich", "日本語", "🙂👩‍👩‍👧", "\ufeffbyte order mark", "\u00a0\u2028\u0085\u007f", "a+b%20c", "QWJj\nQWJj==",
	} {
		a.mustPut(t, name, queue.Item{Text: text})
		if peeked := a.peeked(t, name); len(peeked) != 1 || peeked[0].Text != text {
			t.Errorf("put %q, peeked %+v", text, peeked)
		}
		msg := a.mustReceive(t, name, hour)
		if diff := cmp.Diff(text, msg.Text); diff != "" {
			t.Errorf("put and received (-want +got):\n%s", diff)
		}
		msg.PopReceipt = a.mustUpdate(t, name, msg, text+text, 0)
		msg = a.mustReceive(t, name, hour)
		if diff := cmp.Diff(text+text, msg.Text); diff != "" {
			t.Errorf("updated and received (-want +got):\n%s", diff)
		}
		if err := a.Delete(t.Context(), name, msg.ID, msg.PopReceipt); err != nil {
			t.Fatal(err)
		}
	}
}

func testTextLimit(t *testing.T, a *account) {
	name := a.mustCreate(t, "limit")
	// ASCII, because Azurite 3.36 spoils a character that two chunks of the request's body share.
	largest := strings.Repeat("a", queue.MaxTextBytes)
	a.mustPut(t, name, queue.Item{Text: largest})
	msg := a.mustReceive(t, name, hour)
	if msg.Text != largest {
		t.Errorf("received %d bytes, not what was put", len(msg.Text))
	}
	msg.PopReceipt = a.mustUpdate(t, name, msg, largest, hour)

	for _, text := range []string{
		largest + "a",
		strings.Repeat("é", queue.MaxTextBytes/2+1), // bytes count, not characters
	} {
		if _, err := a.Put(t.Context(), name, queue.Item{Text: text}); !errors.Is(err, queue.ErrRefused) {
			t.Errorf("put of %d bytes: %v, want ErrRefused", len(text), err)
		}
		_, err := a.Update(t.Context(), name, msg.ID, msg.PopReceipt, text, 0)
		if !errors.Is(err, queue.ErrRefused) {
			t.Errorf("update to %d bytes: %v, want ErrRefused", len(text), err)
		}
	}
	a.mustCount(t, name, 1)
	if err := a.Delete(t.Context(), name, msg.ID, msg.PopReceipt); err != nil {
		t.Errorf("delete after the refused update: %v", err)
	}
}

func testTextBeyondXML(t *testing.T, a *account) {
	name := a.mustCreate(t, "xml")
	a.mustPut(t, name, queue.Item{Text: "fine"})
	msg := a.mustReceive(t, name, hour)
	for _, text := range []string{"\x00", "a\x01b", "\x1b[0m", "\xff", "cut off \xe2\x82", "\ufffe", "\uffff"} {
		if _, err := a.Put(t.Context(), name, queue.Item{Text: text}); !errors.Is(err, queue.ErrRefused) {
			t.Errorf("put of %q: %v, want ErrRefused", text, err)
		}
		if _, err := a.Update(t.Context(), name, msg.ID, msg.PopReceipt, text, 0); !errors.Is(err, queue.ErrRefused) {
			t.Errorf("update to %q: %v, want ErrRefused", text, err)
		}
	}
}

func testTextNotInErrors(t *testing.T, a *account) {
	const canary = "canary-in-the-text"
	name := a.mustCreate(t, "canary")
	for what, err := range map[string]error{
		"missing queue": putError(t, a, a.prefix+"nowhere", canary),
		"too large":     putError(t, a, name, canary+strings.Repeat("x", queue.MaxTextBytes)),
		"beyond XML":    putError(t, a, name, canary+"\x01"),
		"stale":         updateError(t, a, name, canary),
	} {
		if err == nil || strings.Contains(err.Error(), canary) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %q, want one line without the text", what, err)
		}
	}
}

func putError(t *testing.T, a *account, name, text string) error {
	t.Helper()
	_, err := a.Put(t.Context(), name, queue.Item{Text: text})
	return err
}

func updateError(t *testing.T, a *account, name, text string) error {
	t.Helper()
	_, err := a.Update(t.Context(), name, "6f1bbb3e-8a0c-4a5c-a7c6-2a4b5b1f0f57", "AgAAAAMAAAAAAAAA", text, 0)
	return err
}
