package storagetest

import (
	"fmt"
	"strings"
	"time"

	"asynccaller/handler/internal/storage"
)

func testPutResult(a *account) {
	name := a.create("put")
	put := a.put(name, storage.Item{Text: "text"})
	if put.ID == "" || put.PopReceipt == "" || put.Text != "" || put.DequeueCount != 0 {
		a.t.Errorf("put %+v, want id and pop receipt, but neither text nor dequeue count", put)
	}
	age := time.Since(put.InsertedAt).Abs()
	if age > time.Minute || !put.NextVisibleAt.Equal(put.InsertedAt) || put.Expires() {
		a.t.Errorf("put %+v, want it to be inserted now, visible at once, and never to expire", put)
	}
	got := a.receive(name, hour)
	if got.ID != put.ID || !got.InsertedAt.Equal(put.InsertedAt) || !got.ExpiresAt.Equal(put.ExpiresAt) {
		a.t.Errorf("received %+v, want what was put: %+v", got, put)
	}
}

func testPutDelayBounds(a *account) {
	name := a.create("bounds")
	for delay, want := range map[time.Duration]time.Duration{
		-hour:                0,
		time.Nanosecond:      time.Second,
		fraction:             2 * time.Second,
		hour:                 hour,
		storage.MaxDelay:     storage.MaxDelay,
		storage.MaxDelay + 1: storage.MaxDelay,
		365 * 24 * time.Hour: storage.MaxDelay,
		1<<63 - 1:            storage.MaxDelay,
	} {
		put := a.put(name, storage.Item{Text: "x", Delay: delay})
		if got := put.NextVisibleAt.Sub(put.InsertedAt); got != want {
			a.t.Errorf("delay of %s became %s, want %s", delay, got, want)
		}
	}
}

// The delays and leases of a fraction of a second do not end early.

func testFractionOfPut(a *account) {
	name := a.create("fraction-put")
	begin := time.Now()
	a.put(name, storage.Item{Text: "later", Delay: fraction})
	msg := a.receiveAfter(name, begin)
	if msg.Text != "later" || msg.DequeueCount != 1 {
		a.t.Errorf("received %+v, want it unchanged, for the first time", msg)
	}
}

func testFractionOfUpdate(a *account) {
	name, msg := a.putOne("fraction-update", hour)
	begin := time.Now()
	a.update(name, msg, "later", fraction)
	a.receiveAfter(name, begin)
}

func testFractionOfLease(a *account) {
	name := a.create("fraction-lease")
	a.put(name, storage.Item{Text: "x"})
	begin := time.Now()
	a.receive(name, fraction)
	a.receiveAfter(name, begin)
}

// receiveAfter waits for a message that must stay invisible for a fraction of a second.
func (a *account) receiveAfter(name string, begin time.Time) storage.Message {
	a.t.Helper()
	msg := a.receive(name, hour)
	if took := time.Since(begin); took < fraction {
		a.t.Errorf("visible after %s, want at least %s", took, fraction)
	}
	return msg
}

func testPutTTL(a *account) {
	name := a.create("ttl")
	put := a.put(name, storage.Item{Text: "short-lived", TTL: 1500 * time.Millisecond})
	if got := put.ExpiresAt.Sub(put.InsertedAt); got != 2*time.Second {
		a.t.Errorf("time-to-live is %s, want it rounded up to 2s", got)
	}
	put = a.put(name, storage.Item{Text: "long-lived", TTL: 30 * 24 * time.Hour})
	a.eventually("the short-lived message to expire", func() bool {
		left := a.peek(name)
		return len(left) == 1 && left[0].Text == "long-lived"
	})
	msg := a.receive(name, hour)
	a.update(name, msg, "y", 0)
	if got := a.receive(name, hour); !got.ExpiresAt.Equal(put.ExpiresAt) {
		a.t.Errorf("expires at %s after an update, want no change: %s", got.ExpiresAt, put.ExpiresAt)
	}
}

func testPutDelayWithinTTL(a *account) {
	name := a.create("within")
	for _, item := range []storage.Item{
		{Text: "x", Delay: 5 * time.Second, TTL: 5 * time.Second},
		{Text: "x", Delay: 6 * time.Second, TTL: 5 * time.Second},
		{Text: "x", TTL: -time.Second},
	} {
		a.mustBe(storage.ErrRefused, errorOf(a.Put(a.t.Context(), name, item)),
			fmt.Sprintf("put with delay %s, time-to-live %s", item.Delay, item.TTL))
	}
	a.put(name, storage.Item{Text: "x", Delay: 5 * time.Second, TTL: 6 * time.Second})
	a.put(name, storage.Item{Text: "x", Delay: storage.MaxDelay}) // never expires
}

func testTextKept(a *account) {
	name := a.create("text")
	for _, text := range []string{
		"", " ", "\n", "\r", "\r\n", "\t", "  leading and trailing  ", "line one\nline two\r\nline three\n",
		"<&>\"'", "<QueueMessage>&amp;&#10;</QueueMessage>", "]]>", "<![CDATA[x]]>",
		"grüß dich", "日本語", "🙂👩‍👩‍👧", "\ufeffbyte order mark", "\u00a0\u2028\u0085\u007f", "a+b%20c", "QWJj\nQWJj==",
	} {
		a.put(name, storage.Item{Text: text})
		if peeked := a.peek(name); len(peeked) != 1 || peeked[0].Text != text {
			a.t.Errorf("put %q, peeked %+v", text, peeked)
		}
		msg := a.receive(name, hour)
		a.update(name, msg, text+text, 0)
		updated := a.receive(name, hour)
		if msg.Text != text || updated.Text != text+text {
			a.t.Errorf("put %q, received %q and, doubled by an update, %q", text, msg.Text, updated.Text)
		}
		a.remove(name, updated.ID, updated.PopReceipt)
	}
}

// mustRefuse checks that neither Put nor Update accepts the text.
func (a *account) mustRefuse(name string, msg storage.Message, text string) {
	a.t.Helper()
	a.mustBe(storage.ErrRefused, errorOf(a.Put(a.t.Context(), name, storage.Item{Text: text})),
		fmt.Sprintf("put of %.20q", text))
	a.mustBe(storage.ErrRefused, errorOf(a.Update(a.t.Context(), name, msg.ID, msg.PopReceipt, text, 0)),
		fmt.Sprintf("update to %.20q", text))
}

func testTextLimit(a *account) {
	name := a.create("limit")
	// ASCII, because Azurite 3.36 damages a character that two chunks of the request's body share.
	largest := strings.Repeat("a", storage.MaxTextBytes)
	a.put(name, storage.Item{Text: largest})
	msg := a.receive(name, hour)
	if msg.Text != largest {
		a.t.Errorf("received %d bytes, not what was put", len(msg.Text))
	}
	msg.PopReceipt = a.update(name, msg, largest, hour)
	a.mustRefuse(name, msg, largest+"a")
	a.mustRefuse(name, msg, strings.Repeat("é", storage.MaxTextBytes/2+1)) // bytes count, not characters
	a.mustCount(name, 1)
	a.remove(name, msg.ID, msg.PopReceipt)
}

func testTextBeyondXML(a *account) {
	name, msg := a.putOne("xml", hour)
	for _, text := range []string{"\x00", "a\x01b", "\x1b[0m", "\xff", "cut off \xe2\x82", "\ufffe", "\uffff"} {
		a.mustRefuse(name, msg, text)
	}
}

func testTextNotInErrors(a *account) {
	const canary = "canary-in-the-text"
	name := a.create("canary")
	put := func(name, text string) error { return errorOf(a.Put(a.t.Context(), name, storage.Item{Text: text})) }
	for what, err := range map[string]error{
		"missing queue": put(a.prefix+"nowhere", canary),
		"too large":     put(name, canary+strings.Repeat("x", storage.MaxTextBytes)),
		"beyond XML":    put(name, canary+"\x01"),
		"stale":         errorOf(a.Update(a.t.Context(), name, unknownID, unknownReceipt, canary, 0)),
	} {
		if err == nil || strings.Contains(err.Error(), canary) || strings.Contains(err.Error(), "\n") {
			a.t.Errorf("%s: error %q, want one line without the text", what, err)
		}
	}
}
