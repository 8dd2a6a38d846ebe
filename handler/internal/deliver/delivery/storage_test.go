package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
)

var errDown = errors.New("503 ServerBusy")

// TestStorageFault: a settle write is retried on a time of its own; where it cannot be made the result
// says so, nothing was written, and the log does not call it settled.
func TestStorageFault(t *testing.T) {
	downFor := func(d time.Duration) func(context.Context) error {
		return func(context.Context) error {
			if time.Since(midnight) < d {
				return errDown
			}
			return nil
		}
	}
	hangingFor := func(d time.Duration) func(context.Context) error {
		return func(ctx context.Context) error {
			if time.Since(midnight) < d {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
	}
	rows := map[string]struct {
		fault    func(context.Context) error
		earliest time.Duration // when the delivery ends
		latest   time.Duration
		err      error // what it ends with, or nil when it is settled
	}{
		"down_30s":   {downFor(30 * time.Second), 30 * time.Second, 41 * time.Second, nil},
		"down_2min":  {downFor(2 * time.Minute), time.Minute, time.Minute, errDown},
		"hangs_once": {hangingFor(time.Second), 10 * time.Second, 11 * time.Second, nil},
		"hangs":      {hangingFor(time.Hour), time.Minute, time.Minute, context.DeadlineExceeded},
		"refused":    {func(context.Context) error { return storage.ErrRefused }, 0, 0, storage.ErrRefused},
	}
	for name, row := range rows {
		for action, message := range map[string]struct {
			from    string
			content string
			status  int
			queue   string
		}{
			"reschedule":         {mainQueue, fmt.Sprintf(plain, ""), 500, mainQueue},
			"callback":           {mainQueue, fmt.Sprintf(plain, callback), 200, mainQueue},
			"dead_letter":        {mainQueue, fmt.Sprintf(plain, ""), 400, poisonQueue},
			"malformed":          {mainQueue, "hello", 0, poisonQueue},
			"routed":             {routedQueue, "hello", 500, mainQueue},
			"routed_dead_letter": {routedQueue, "hello", 400, poisonQueue},
			"routed_raw":         {routedQueue, strings.Repeat("\xff", 48<<10), 400, routedPoison},
		} {
			t.Run(name+"/"+action, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := setup(t, answers(decision.Outcome{Status: message.status})).withRoute(t, "")
					b.Settler = settle.New(failing{b.store, row.fault}, storage.Base64)

					result := b.Deliver(b.ctx, delivery.Message{
						Message:  decision.Message{Queue: message.from, ID: messageID},
						Content:  []byte(message.content),
						IsRouted: message.from == routedQueue,
					})

					if !errors.Is(result.Err, row.err) || (result.Err == nil) != (row.err == nil) {
						t.Errorf("error %v, want %v", result.Err, row.err)
					}
					if took := time.Since(midnight); took < row.earliest || took > row.latest {
						t.Errorf("it took %v, want %v to %v", took, row.earliest, row.latest)
					}
					written := 0
					if row.err == nil {
						written = 1
					}
					if got := len(b.items(t, message.queue)); got != written {
						t.Errorf("%s holds %d messages, want %d", message.queue, got, written)
					}
					b.wantOneEnd(t, row.err == nil)
					if message.queue == mainQueue && message.status == 500 && row.err == nil {
						b.wantNextAttempt(t)
					}
				})
			})
		}
	}
}

// wantNextAttempt checks that the log says when the message on the queue becomes visible, which cannot be before it was
// written, even if its delay had passed by then.
func (b *bench) wantNextAttempt(t *testing.T) {
	t.Helper()
	line, visible := b.linesWith(t, "settled")[0], time.Now().Add(b.items(t, mainQueue)[0].delay)
	next, err := time.Parse(time.RFC3339, fmt.Sprint(line["next_attempt_at"]))
	if err != nil || visible.Sub(next).Abs() > time.Second {
		t.Errorf("the next attempt is at %v, and the message visible at %v", line["next_attempt_at"], visible)
	}
}

// wantOneEnd checks that the log says once how the message ended.
func (b *bench) wantOneEnd(t *testing.T, isSettled bool) {
	t.Helper()
	want, never := "settled", "not settled"
	if !isSettled {
		want, never = never, want
	}
	if len(b.linesWith(t, want)) != 1 || len(b.linesWith(t, never)) != 0 {
		t.Errorf("want one line %q and none %q in\n%s", want, never, b.log)
	}
	if !isSettled {
		if line := b.linesWith(t, want)[0]; line["level"] != "error" || line["error"] == nil {
			t.Errorf("want level error and the error in %v", line)
		}
	}
}

// TestOutageLosesNothing: while storage is away the host hands its message over again and again; when
// it is back the message goes on where it was.
func TestOutageLosesNothing(t *testing.T) {
	t.Run("envelope", func(t *testing.T) { outageLosesNothing(t, mainQueue, fmt.Sprintf(plain, "")) })
	t.Run("routed", func(t *testing.T) { outageLosesNothing(t, routedQueue, "hello") })
}

func outageLosesNothing(t *testing.T, queue, content string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, &target{}).withRoute(t, "")
		b.target.answer = func(context.Context, *envelope.Envelope) decision.Outcome {
			if len(b.target.calls) < 4 {
				return decision.Outcome{Status: 503}
			}
			return decision.Outcome{Status: 200}
		}
		b.Settler = settle.New(failing{b.store, func(context.Context) error {
			if time.Since(midnight) < 140*time.Second {
				return errDown
			}
			return nil
		}}, storage.Base64)
		item := storage.Item{Text: storage.Base64.Encode([]byte(content))}
		if _, err := b.store.Put(t.Context(), queue, item); err != nil {
			t.Fatal(err)
		}

		b.runHost(t, queue, mainQueue)

		var attempts []int
		for _, made := range b.target.calls {
			attempts = append(attempts, made.attempt)
		}
		if got := fmt.Sprint(attempts); got != "[1 1 2 3]" {
			t.Errorf("attempts %v; the one whose successor could not be written is made again", got)
		}
		b.wantQueue(t, poisonQueue, "", 0)
	})
}

// TestLostAcknowledgement: a write that storage made but did not acknowledge is made again. Twice is the
// price of never being lost.
func TestLostAcknowledgement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, answers(decision.Outcome{Status: 500}))
		b.Settler = settle.New(&deaf{b: b}, storage.Base64)

		if result := b.deliver(fmt.Sprintf(plain, "")); result.Err != nil {
			t.Fatal(result.Err)
		}
		items := b.items(t, mainQueue)
		if len(items) != 2 || items[0].content != items[1].content {
			t.Errorf("the queue holds %v, want the same successor twice", items)
		}
	})
}

// deaf does not hear the first acknowledgement.
type deaf struct {
	b     *bench
	heard bool
}

func (d *deaf) Create(ctx context.Context, name string) error { return d.b.store.Create(ctx, name) }

func (d *deaf) Put(ctx context.Context, name string, item storage.Item) (storage.Message, error) {
	message, err := d.b.store.Put(ctx, name, item)
	if !d.heard {
		d.heard = true
		return storage.Message{}, errDown
	}
	return message, err
}

func (d *deaf) Update(ctx context.Context, name, id, receipt, text string, delay time.Duration) (string, error) {
	return d.b.store.Update(ctx, name, id, receipt, text, delay)
}

// TestHostHangsUp: a host that does not wait for the answer costs nothing. The call goes on, and what
// comes of it is settled.
func TestHostHangsUp(t *testing.T) {
	for name, hangUp := range map[string]time.Duration{
		"before": 0, "during_call": 500 * time.Millisecond,
		"during_settle": 5 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ended error
				b := setup(t, &target{answer: func(ctx context.Context, _ *envelope.Envelope) decision.Outcome {
					<-time.After(time.Second)
					ended = ctx.Err()
					return decision.Outcome{Status: 500}
				}})
				b.Settler = settle.New(failing{b.store, func(context.Context) error {
					if time.Since(midnight) < 10*time.Second {
						return errDown
					}
					return nil
				}}, storage.Base64)
				ctx, cancel := context.WithTimeout(b.ctx, hangUp)
				defer cancel()

				result := b.Deliver(ctx, on(mainQueue, fmt.Sprintf(plain, "")))

				if ended != nil || result.Err != nil {
					t.Fatalf("call ended with %v, delivery with %v", ended, result.Err)
				}
				if items := b.items(t, mainQueue); len(items) != 1 {
					t.Errorf("the queue holds %v, want the successor", items)
				}
				b.wantOneEnd(t, true)
			})
		})
	}
}
