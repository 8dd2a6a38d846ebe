package send_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/operate/send"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/dotnet"
	"asynccaller/handler/internal/rules/retry"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

func newSender() (*send.Sender, *memory.Queues) {
	store := memory.New()
	return &send.Sender{
		Store: store, Encoding: storage.Base64,
		Rules: decision.Rules{Expiration: time.Hour, Retry: retry.Default()},
	}, store
}

// TestSend checks that a draft arrives on the queue of its priority, which is created, with its delay.
func TestSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, encoding := range []storage.Encoding{storage.Base64, storage.None} {
			sender, store := newSender()
			sender.Encoding = encoding
			draft := send.Draft{Priority: 3}
			draft.Call.URL = "https://t.example/orders?a=1&b=<2>"
			draft.Call.SetBody([]byte("text"))
			content, err := draft.Encode()
			if err != nil {
				t.Fatal(err)
			}
			due := time.Now().Add(10 * time.Minute).Format(time.RFC3339)
			content = append([]byte(`{"notBefore":"`+due+`",`), content[1:]...)
			message, err := sender.Prepare(content)
			if err != nil {
				t.Fatal(err)
			}
			receipt, err := sender.Send(t.Context(), message)
			if err != nil {
				t.Fatal(err)
			}
			sent := store.All("async-caller-3")
			if len(sent) != 1 || receipt != (send.Receipt{
				RequestID: message.RequestID, Queue: "async-caller-3",
				MessageID: sent[0].ID,
			}) {
				t.Fatalf("%+v, %+v", receipt, sent)
			}
			if got := time.Until(sent[0].NextVisibleAt); got != 10*time.Minute {
				t.Errorf("delay %v", got)
			}
			decoded, err := encoding.Decode(sent[0].Text)
			if err != nil {
				t.Fatal(err)
			}
			in := sender.Rules.Open(decoded, sent[0].ID, encoding.MaxContentBytes(), time.Now())
			if in.Malformed != nil || in.Envelope.RequestID != receipt.RequestID ||
				string(in.Envelope.Call.Body.Bytes()) != "text" {
				t.Errorf("%s: %v", decoded, in.Malformed)
			}
		}
	})
}

// TestPrepareRefuses checks that an envelope that cannot be delivered is refused before it is sent.
func TestPrepareRefuses(t *testing.T) {
	sender, _ := newSender()
	const call = `"call":{"url":"https://t.example/"}`
	for want, content := range map[string]string{
		"asyncCaller: missing":  `{}`,
		"call.url":              `{"asyncCaller":1,"call":{"url":"t.example"}}`,
		"retry: unknown policy": `{"asyncCaller":1,"retry":"often",` + call + `}`,
		"deadline: is in the past": `{"asyncCaller":1,"deadline":"2020-01-01T00:00:00Z",` +
			call + `}`,
		"a message holds 49152": `{"asyncCaller":1,"call":{"url":"https://t.example/` +
			strings.Repeat("x", 50000) + `"}}`,
		"priority: want a whole number from 1 to 10": `{"asyncCaller":1,"priority":11,` + call + `}`,
		"deadline: is not after notBefore": `{"asyncCaller":1,"notBefore":"2999-01-02T00:00:00Z",` +
			`"deadline":"2999-01-01T00:00:00Z",` + call + `}`,
	} {
		if _, err := sender.Prepare([]byte(content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestPrepareNexus checks that a Nexus message is sent as it is, with a time of creation and a deadline if it has none:
// the C# app would drop it.
func TestPrepareNexus(t *testing.T) {
	const raw = `"RawRequest":{"Id":"r1",` +
		`"CallOut":"R0VUIC8gSFRUUC8xLjENCkhvc3Q6IGgNCkRhdGU6IG5vDQoNCg==","mine":[1.0]}}`
	synctest.Test(t, func(t *testing.T) {
		sender, _ := newSender()
		created, deadline := dotnet.FormatTime(time.Now()), dotnet.FormatTime(time.Now().Add(sender.Rules.Expiration))
		for before, after := range map[string]string{
			`{"organization":"acme",` + raw: `{"organization":"acme",` + strings.TrimSuffix(raw, "}") +
				`,"OriginalRequestId":"r1","Attempts":0,"CreatedAt":"` + created + `","DeadlineAt":"` + deadline + `"}`,
			`{"Attempts":0,"CreatedAt":null,"DeadlineAt":"0001-01-01T00:00:00+00:00",` +
				`"OriginalRequestId":"o",` + raw: "" +
				`{"Attempts":0,"CreatedAt":"` + created + `","DeadlineAt":"` + deadline + `",` +
				`"OriginalRequestId":"o",` + raw,
			`{"Attempts":2,"CreatedAt":"1999-12-31T23:00:00Z","DeadlineAt":"2999-12-31T23:00:00.1234567+01:00",` +
				`"OriginalRequestId":"o",` + raw: "",
		} {
			message, err := sender.Prepare([]byte(before))
			if want := cmp.Or(after, before); err != nil || string(message.Content) != want {
				t.Errorf("got %s, %v, want %s", message.Content, err, want)
			}
			if message.RequestID != "r1" || message.Queue != "async-caller" || len(message.Warnings) != 2 {
				t.Errorf("%+v", message)
			}
		}
	})
}

// TestSetBody checks that a binary body is encoded in base64.
func TestSetBody(t *testing.T) {
	var call send.Call
	call.SetBody([]byte{0xff, 1})
	if text, err := json.Marshal(call); err != nil || string(text) != `{"url":"","bodyBase64":"/wE="}` {
		t.Errorf("%s, %v", text, err)
	}
}

// answers is a store whose puts fail with the given errors first.
type answers struct {
	*memory.Queues
	errs []error
	puts int
}

func (a *answers) Put(ctx context.Context, name string, item storage.Item) (storage.Message, error) {
	a.puts++
	if a.puts > len(a.errs) {
		return a.Queues.Put(ctx, name, item)
	}
	return storage.Message{}, a.errs[a.puts-1]
}

// TestSendRepeats: only a failure that excludes the write is repeated. After any other, the message is perhaps sent.
func TestSendRepeats(t *testing.T) {
	const always = 1000
	lost := errors.New("connection reset")
	for name, test := range map[string]struct {
		errs          []error
		puts          int // 0 for several
		isPerhapsSent bool
		isSent        bool
	}{
		"busy_twice":     {[]error{storage.ErrBusy, storage.ErrBusy}, 3, false, true},
		"always_busy":    {slices.Repeat([]error{storage.ErrBusy}, always), 0, false, false},
		"no_answer":      {[]error{lost}, 1, true, false},
		"busy_then_lost": {[]error{storage.ErrBusy, lost}, 2, true, false},
		"timeout":        {[]error{context.DeadlineExceeded}, 1, true, false},
		"not_sent":       {[]error{storage.ErrNotSent}, 1, false, false},
		"denied":         {[]error{storage.ErrDenied}, 1, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sender, store := newSender()
				if err := store.Create(t.Context(), "async-caller"); err != nil {
					t.Fatal(err)
				}
				fails := &answers{Queues: store, errs: test.errs}
				sender.Store = fails
				message, err := sender.Prepare([]byte(
					`{"asyncCaller":1,"requestId":"r1","call":{"url":"https://t.example/"}}`))
				if err != nil {
					t.Fatal(err)
				}
				receipt, err := sender.Send(t.Context(), message)
				if (err == nil) != test.isSent || receipt.PerhapsSent != test.isPerhapsSent ||
					receipt.RequestID != "r1" {
					t.Errorf("%+v, %v", receipt, err)
				}
				if test.puts == 0 && fails.puts < 3 || test.puts != 0 && fails.puts != test.puts {
					t.Errorf("%d puts", fails.puts)
				}
			})
		})
	}
}

// TestPrepareCompresses: only an envelope that is too large gets its body as gzip.
func TestPrepareCompresses(t *testing.T) {
	sender, _ := newSender()
	for size, compressed := range map[int]bool{10 << 10: false, 200 << 10: true} {
		draft := send.Draft{Call: send.Call{URL: "https://t.example/", JSON: fmt.Appendf(nil, `[%s1]`,
			strings.Repeat("1,", size/2))}}
		content, err := draft.Encode()
		if err != nil {
			t.Fatal(err)
		}
		m, err := sender.Prepare(content)
		if err != nil || m.Compressed != compressed || strings.Contains(string(m.Content), "gzipBody") != compressed {
			t.Errorf("%d bytes: %v, compressed is %t", size, err, m.Compressed)
		}
	}
}
