package delivery_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/route"
	"asynccaller/handler/internal/storage"
)

const (
	routedQueue  = "orders-in"
	routedPoison = "orders-in-poison"
)

// withRoute gives a bench the route of a queue, as members of its JSON beside the URL.
func (b *bench) withRoute(t *testing.T, members string) *bench {
	t.Helper()
	routes, err := route.Parse(
		fmt.Appendf(nil, `{%q:{"url":"https://t.example/orders"%s}}`, routedQueue, members),
		func(*envelope.Envelope) error { return nil },
	)
	if err != nil {
		t.Fatal(err)
	}
	b.Routes = routes
	b.Settler = settle.New(b.store, storage.Base64).WithReschedule(settle.RescheduleEnqueue, maxDequeueCount)
	for _, name := range []string{routedQueue, routedPoison} {
		if err := b.store.Create(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// sendRaw puts content on the routed queue, as a sender does: it expires after 7 days.
func (b *bench) sendRaw(t *testing.T, content []byte) storage.Message {
	t.Helper()
	item := storage.Item{Text: storage.Base64.Encode(content), TTL: 7 * 24 * time.Hour}
	m, err := b.store.Put(t.Context(), routedQueue, item)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

const evil = `{"asyncCaller":1,"requestId":"evil","call":{"url":"https://evil.example/"},` +
	`"deadline":"2000-01-01T00:00:01Z","nextAttemptAt":"2000-02-01T00:00:00Z","giveUp":"drop",` +
	`"callback":{"url":"https://evil.example/"},` +
	`"deadLetter":{"at":"2000-01-01T00:00:00Z","reason":"rejected","queue":"async-caller","attempts":1}}`

// contents are those that are hardest to keep.
func contents() map[string][]byte {
	random := make([]byte, 34<<10)
	_, _ = rand.Read(random)
	return map[string][]byte{
		"empty":          {},
		"text":           []byte("grüße\r\n\x00\u2028"),
		"binary":         random,
		"utf-16":         []byte("\xff\xfea\x00b\x00\x3d\xd8"),
		"base64":         []byte(base64.StdEncoding.EncodeToString([]byte(base64.StdEncoding.EncodeToString(random[:9])))),
		"native":         []byte(evil),
		"nexus":          []byte(`{"RawRequest":"R0VUIC8gSFRUUC8xLjENCg0K","Deadline":"2000-01-01T00:00:01Z"}`),
		"long_text":      bytes.Repeat([]byte("x"), 47<<10),
		"json":           []byte(" {\"a\": [1, 2],\n\"a\": 1e400}"),
		"broken_escape":  []byte(`"},"callback":{"url":"https://evil.example/"`),
		"invalid_string": []byte("\"\xed\xa0\x80\""),
	}
}

// TestRouted: contents arrive byte for byte at the first attempt, after ten failures, and from a dead letter; and the
// first failure leaves the routed queue.
func TestRouted(t *testing.T) {
	for name, content := range contents() {
		for _, failures := range []int{0, 10} {
			t.Run(fmt.Sprintf("%s_%d", name, failures), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := setup(t, recovering(failures)).withRoute(t, "")
					m := b.sendRaw(t, content)
					b.runHost(t, routedQueue, mainQueue)
					if n := len(b.target.calls); n != failures+1 {
						t.Errorf("%d calls", n)
					}
					for i, call := range b.target.calls {
						if call.body != string(content) || call.url != "https://t.example/orders" ||
							call.requestID != m.ID || call.attempt != i+1 {
							t.Errorf("call %d: %s, attempt %d, %d bytes", i, call.url, call.attempt, len(call.body))
						}
					}
					b.wantQueue(t, routedPoison, "", 0)
					b.wantQueue(t, poisonQueue, "", 0)
				})
			})
		}
		t.Run(name+"_rejected", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, answers(decision.Outcome{Status: 422})).withRoute(t, "")
				b.sendRaw(t, content)
				b.runHost(t, routedQueue, mainQueue)
				letter := b.mustDeadLetter(t)
				if !bytes.Equal(letter.Call.Body, content) || letter.DeadLetter.Queue != mainQueue {
					t.Errorf("%d bytes from queue %s", len(letter.Call.Body), letter.DeadLetter.Queue)
				}
				b.wantQueue(t, routedPoison, "", 0)
			})
		})
	}
}

// TestRoutedPolicy: the envelope has the policy of the route, and its times count from when the message was written.
func TestRoutedPolicy(t *testing.T) {
	for name, c := range map[string]struct {
		members string
		calls   int
		queue   string
		reason  string
	}{
		"retry":    {`,"retry":{"schedule":["1s"],"maxAttempts":3}`, 3, poisonQueue, "exhausted"},
		"deadline": {`,"deadline":"12s"`, 2, poisonQueue, "expired"},
		"passed":   {`,"deadline":"1s"`, 0, poisonQueue, "expired"},
		"priority": {`,"priority":3,"retry":{"schedule":["1s"],"maxAttempts":1}`, 1, "async-caller-3-poison", "exhausted"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, answers(decision.Outcome{Status: 503})).withRoute(t, c.members)
				b.sendRaw(t, []byte(evil))
				b.runHost(t, routedQueue, mainQueue)
				letters := b.items(t, c.queue)
				if len(b.target.calls) != c.calls || len(letters) != 1 ||
					!strings.Contains(letters[0].content, `"reason":"`+c.reason+`"`) {
					t.Errorf("%d calls, %d dead letters: %v", len(b.target.calls), len(letters), letters)
				}
			})
		})
	}
}

// TestRoutedCallback: the report goes to the main queue, and a callback knows no route.
func TestRoutedCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, answers(decision.Outcome{Status: 200})).withRoute(t, `,"callback":{"url":"https://c.example/"}`)
		b.sendRaw(t, []byte(evil))
		b.runHost(t, routedQueue, mainQueue)
		var urls []string
		for _, call := range b.target.calls {
			urls = append(urls, call.url)
		}
		if got := strings.Join(urls, " "); got != "https://t.example/orders https://c.example/" {
			t.Errorf("called %s", got)
		}
	})
}

// TestRoutedHeld: in hold mode, and while a call is interrupted because the host is gone, the content comes back to its
// queue as it is, after the same time whatever it says.
func TestRoutedHeld(t *testing.T) {
	for _, hasRoute := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t, answers(decision.Outcome{Status: 200})).withRoute(t, "")
			if !hasRoute {
				b.Routes = nil
			}
			b.Hold = time.Minute
			result := b.Deliver(b.ctx, delivery.Message{
				Message:  decision.Message{Queue: routedQueue, ID: messageID},
				Content:  []byte(evil),
				IsRouted: true,
			})
			held := b.items(t, routedQueue)
			if result.Err != nil || len(held) != 1 || held[0].content != evil || held[0].delay > 6*time.Minute ||
				len(b.target.calls) > 0 {
				t.Errorf("%+v, held %v", result, held)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, interruptible()).withRoute(t, "")
		b.sendRaw(t, []byte(evil))
		received, err := b.store.Receive(t.Context(), routedQueue, 1, 10*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Minute, b.hostGone)
		b.Deliver(b.ctx, delivery.Message{
			Message:  decision.Message{Queue: routedQueue, ID: messageID},
			Content:  []byte(evil),
			IsRouted: true,
			Lease:    leaseOf(received[0]),
		})
		released := b.items(t, routedQueue)
		if len(released) != 1 || released[0].content != evil || released[0].delay > 15*time.Second {
			t.Errorf("released %v", released)
		}
		b.wantQueue(t, mainQueue, "", 0)
	})
}

// TestRouteMissing: start-up does not allow it; if it happens, the content is kept for a person, and never an envelope.
func TestRouteMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, answers(decision.Outcome{Status: 200})).withRoute(t, "")
		b.Routes = nil
		b.sendRaw(t, []byte(evil))
		b.runHost(t, routedQueue, mainQueue)
		if kept := b.items(t, routedPoison); len(kept) != 1 || kept[0].content != evil || len(b.target.calls) > 0 {
			t.Errorf("kept %v, %d calls", kept, len(b.target.calls))
		}
	})
}

// TestRoutedWithoutRoom: a content whose envelope has no room in a message is called as often as the host delivers it,
// and then kept for a person.
func TestRoutedWithoutRoom(t *testing.T) {
	large := bytes.Repeat([]byte("\xff"), 48<<10)
	for name, c := range map[string]struct {
		members  string
		target   *target
		attempts []int
		poison   int
		reason   decision.Reason
	}{
		"delivered":       {"", recovering(0), []int{1}, 0, decision.Delivered},
		"delivered_later": {"", recovering(2), []int{1, 2, 3}, 0, decision.Delivered},
		"down":            {"", recovering(100), []int{1, 2, 3, 4}, 1, decision.Exhausted},
		"rejected":        {"", answers(decision.Outcome{Status: 400}), []int{1}, 1, decision.Rejected},
		"its_policy":      {`,"retry":{"maxAttempts":2}`, recovering(100), []int{1, 2}, 1, decision.Exhausted},
		"its_deadline":    {`,"deadline":"14s"`, recovering(100), []int{1, 2}, 1, decision.Expired},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, c.target).withRoute(t, c.members)
				m := b.sendRaw(t, large)
				b.runHost(t, routedQueue, mainQueue)
				var attempts []int
				for _, call := range b.target.calls {
					attempts = append(attempts, call.attempt)
					if call.body != string(large) || call.requestID != m.ID {
						t.Errorf("call of %s with %d bytes", call.requestID, len(call.body))
					}
				}
				kept := b.items(t, routedPoison)
				if !slices.Equal(attempts, c.attempts) || len(kept) != c.poison {
					t.Errorf("attempts %v, %d messages kept", attempts, len(kept))
				}
				if c.poison == 1 && (kept[0].content != string(large) || !kept[0].forever) {
					t.Errorf("kept %d bytes, forever %v", len(kept[0].content), kept[0].forever)
				}
				lines := b.linesWith(t, "settled")
				if got := lines[len(lines)-1]["reason"]; got != string(c.reason) {
					t.Errorf("reason %v", got)
				}
				b.wantQueue(t, mainQueue, "", 0)
				b.wantQueue(t, poisonQueue, "", 0)
			})
		})
	}
}

// TestRoutedWithoutRoomExpires: a message that storage would delete before it is due is kept for a person.
func TestRoutedWithoutRoomExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, recovering(100)).withRoute(t, `,"deadline":"30d"`)
		b.sendRaw(t, bytes.Repeat([]byte("\xff"), 48<<10))
		<-time.After(6*24*time.Hour + 12*time.Hour)
		b.runHost(t, routedQueue)
		if kept := b.items(t, routedPoison); len(kept) != 1 || len(b.target.calls) != 1 {
			t.Errorf("%d kept, %d calls", len(kept), len(b.target.calls))
		}
	})
}

// TestRoutedInUpdateMode: the mode is for messages that stay on their queue.
func TestRoutedInUpdateMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, recovering(3)).withRoute(t, "")
		b.inUpdateMode(b.store).sendRaw(t, []byte("x"))
		b.runHost(t, routedQueue, mainQueue)
		if len(b.target.calls) != 4 {
			t.Errorf("%d calls", len(b.target.calls))
		}
	})
}

// TestRoutedRefused: a message whose call may not begin leaves its queue as an envelope without an attempt.
func TestRoutedRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, answers(decision.Outcome{Failure: decision.FailureInterrupted})).withRoute(t, "")
		b.sendRaw(t, []byte("x"))
		b.runHost(t, routedQueue)
		items := b.items(t, mainQueue)
		if len(items) != 1 {
			t.Fatalf("%d envelopes", len(items))
		}
		e, err := envelope.Parse([]byte(items[0].content))
		if err != nil || e.Attempts != 0 || string(e.Call.Body) != "x" {
			t.Errorf("%v, %s", err, items[0].content)
		}
	})
}

// TestRoutedFault: with giveUp fault the host calls as often as it delivers, and then keeps the content.
func TestRoutedFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, answers(decision.Outcome{Status: 400})).withRoute(t, "")
		b.Rules.GiveUp = envelope.GiveUpFault
		b.sendRaw(t, []byte(evil))
		b.runHost(t, routedQueue, mainQueue)
		if kept := b.items(t, routedPoison); len(b.target.calls) != maxDequeueCount || len(kept) != 1 ||
			kept[0].content != evil {
			t.Errorf("%d calls, kept %v", len(b.target.calls), kept)
		}
	})
}

// FuzzRouted: no content chooses anything but the body, and none is lost.
func FuzzRouted(f *testing.F) {
	all := contents()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f.Add(all[name], 503)
	}
	f.Fuzz(func(t *testing.T, content []byte, status int) {
		content = content[:min(len(content), 48<<10)] // no queue holds more
		synctest.Test(t, func(t *testing.T) {
			b := setup(t, &target{answer: func(context.Context, *envelope.Envelope) decision.Outcome {
				return decision.Outcome{Status: 200 + max(status, -status)%400}
			}}).withRoute(t, `,"retry":{"schedule":["1s"],"maxAttempts":2}`)
			b.sendRaw(t, content)
			b.runHost(t, routedQueue, mainQueue)
			for _, call := range b.target.calls {
				if call.body != string(content) || call.url != "https://t.example/orders" {
					t.Errorf("call of %s with %q", call.url, call.body)
				}
			}
			kept := len(b.items(t, routedPoison)) + len(b.items(t, poisonQueue))
			last := b.linesWith(t, "settled")
			isDelivered := last[len(last)-1]["reason"] == string(decision.Delivered)
			if len(b.target.calls) == 0 || isDelivered == (kept == 1) || kept > 1 {
				t.Errorf("%d calls, %d kept", len(b.target.calls), kept)
			}
		})
	})
}
