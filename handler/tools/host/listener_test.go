package host

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/queue"
)

func TestListener_backs_off(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "work", always(succeeded))
		b.create()
		b.start()
		pass(8*time.Second + 50*time.Millisecond)
		b.put(hello)
		pass(2 * time.Second)
		b.stop()
		want := []int64{ // milliseconds
			0, 100, 300, 600, 1100, 2000, 3700, 5700, 7700, // capped at 2 s
			9700, 9700, 9800, 10000, // found one: again at once, then from the shortest wait
		}
		var got []int64
		for _, poll := range b.polls {
			got = append(got, poll.Milliseconds())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("polls (-want +got):\n%s", diff)
		}
	})
}

func TestListener_never_creates_its_queue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "work", always(succeeded))
		b.start()
		pass(time.Minute)
		if _, err := b.store.Count(t.Context(), "work"); !errors.Is(err, queue.ErrNoQueue) {
			t.Errorf("count: %v, want %v", err, queue.ErrNoQueue)
		}
		b.create()
		b.put(hello)
		pass(2 * time.Second)
		if got := b.stop(); got.Succeeded != 1 {
			t.Errorf("stats %+v, want one success", got)
		}
	})
}

func TestListener_concurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var inFlight, most int
		b := newBench(t, "work", func(_ context.Context, _ functionapp.Function, _ queue.Message, content []byte) outcome {
			mu.Lock()
			inFlight++
			most = max(most, inFlight)
			mu.Unlock()
			<-time.After(time.Duration(content[0]) * time.Second)
			mu.Lock()
			inFlight--
			mu.Unlock()
			return succeeded
		})
		b.create()
		for i := range 40 {
			b.put(queue.Base64.Encode([]byte{byte(1 + i%5)}))
		}
		b.start()
		pass(5 * time.Minute)
		if got := b.stop(); got.Succeeded != 40 {
			t.Errorf("stats %+v, want 40 successes", got)
		}
		if most != b.rules.batchSize+b.rules.threshold {
			t.Errorf("%d in flight at most, want batchSize + newBatchThreshold", most)
		}
	})
}

// With maxDequeueCount N a message is invoked N times, visibilityTimeout apart, and then moved.
func TestListener_poison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries []time.Duration
		begin := time.Now()
		b := newBench(t, "work", func(context.Context, functionapp.Function, queue.Message, []byte) outcome {
			tries = append(tries, time.Since(begin).Round(10*time.Second))
			return failedTry
		})
		b.create()
		b.put(hello)
		b.start()
		pass(5 * time.Minute)
		got := b.stop()
		if want := (FunctionStats{Received: 3, Failed: 3, Poisoned: 1, MaxDequeueCount: 3}); got != want {
			t.Errorf("stats %+v, want %+v", got, want)
		}
		if want := []time.Duration{0, 30 * time.Second, time.Minute}; !slices.Equal(tries, want) {
			t.Errorf("tries at %v, want %v", tries, want)
		}
		if left := b.store.All("work"); len(left) != 0 {
			t.Errorf("%d messages left on the queue", len(left))
		}
		wantPoison(t, b, hello)
	})
}

func wantPoison(t *testing.T, b *bench, text string) {
	t.Helper()
	poisoned := b.store.All(b.fn.Queue + "-poison")
	if len(poisoned) != 1 || poisoned[0].Text != text || poisoned[0].NextVisibleAt.After(time.Now()) ||
		poisoned[0].ExpiresAt.Sub(poisoned[0].InsertedAt) != poisonTTL {
		t.Errorf("poison queue holds %+v, want %q, visible, for 7 days", poisoned, text)
	}
}

func TestListener_moves_without_invoking(t *testing.T) {
	for name, test := range map[string]struct {
		text     string
		receives int // before the listener starts
		want     FunctionStats
	}{
		"undecodable":        {"not base64!", 0, FunctionStats{Received: 1, Poisoned: 1, MaxDequeueCount: 1}},
		"dequeued_too_often": {hello, 3, FunctionStats{Received: 1, Poisoned: 1, MaxDequeueCount: 4}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, "work", func(context.Context, functionapp.Function, queue.Message, []byte) outcome {
					t.Error("invoked")
					return succeeded
				})
				b.create()
				b.put(test.text)
				for range test.receives {
					if _, err := b.store.Receive(t.Context(), "work", 1, time.Second); err != nil {
						t.Fatal(err)
					}
					pass(time.Second)
				}
				b.start()
				pass(time.Minute)
				if got := b.stop(); got != test.want {
					t.Errorf("stats %+v, want %+v", got, test.want)
				}
				wantPoison(t, b, test.text)
			})
		})
	}
}

// What fails on a poison queue stays there and is seen again when its lease ends, without limit.
func TestListener_reads_poison_queue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "work-poison", always(failedTry))
		b.create()
		b.put(hello, "not base64!")
		b.start()
		pass(time.Hour)
		if got := b.stop(); got.Failed != 6 || got.Received != 12 || got.Poisoned != 0 {
			t.Errorf("stats %+v, want both received six times in an hour", got)
		}
		if left := b.store.All("work-poison"); len(left) != 2 {
			t.Errorf("%d messages left on the queue, want 2", len(left))
		}
	})
}

// Storage that is away for ten seconds, at any moment of a message's way, loses nothing.
func TestListener_outage(t *testing.T) {
	for name, from := range map[string]time.Duration{"before": 0, "while_invoked": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, "work", func(context.Context, functionapp.Function, queue.Message, []byte) outcome {
					<-time.After(8 * time.Second)
					return succeeded
				})
				b.fault = func(string) error {
					if since := time.Since(b.begin); since >= from && since < from+10*time.Second {
						return errDown
					}
					return nil
				}
				b.create()
				b.put(hello)
				b.start()
				pass(15 * time.Minute)
				if got := b.stop(); got.Succeeded < 1 || got.Failed != 0 || b.refused != nil {
					t.Errorf("stats %+v, fatal error %v, want a success", got, b.refused)
				}
				if left := b.store.All("work"); len(left) != 0 {
					t.Errorf("%d messages left on the queue", len(left))
				}
			})
		})
	}
}

func TestListener_refusal_is_fatal(t *testing.T) {
	for _, operation := range []string{"count", "receive", "delete"} {
		t.Run(operation, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, "work", always(succeeded))
				b.fault = func(o string) error {
					if o == operation {
						return queue.ErrRefused
					}
					return nil
				}
				b.create()
				b.put(hello)
				b.start()
				pass(time.Second)
				b.stop()
				if !errors.Is(b.refused, queue.ErrRefused) {
					t.Errorf("fatal error %v, want %v", b.refused, queue.ErrRefused)
				}
			})
		})
	}
}

// A delete that comes too late is no problem: the handler has settled the message itself.
func TestListener_message_is_gone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bench
		b = newBench(t, "work", func(ctx context.Context, _ functionapp.Function, msg queue.Message, _ []byte) outcome {
			if _, err := b.store.Update(ctx, "work", msg.ID, msg.PopReceipt, "bmV4dA==", time.Hour); err != nil {
				t.Error(err)
			}
			return succeeded
		})
		b.create()
		b.put(hello)
		b.start()
		pass(time.Minute)
		b.stop()
		if left := b.store.All("work"); len(left) != 1 || left[0].Text != "bmV4dA==" || b.refused != nil {
			t.Errorf("queue holds %+v, fatal error %v, want the handler's update to stand", left, b.refused)
		}
	})
}

func TestListener_stop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "work", func(context.Context, functionapp.Function, queue.Message, []byte) outcome {
			<-time.After(5 * time.Second)
			return succeeded
		})
		b.create()
		b.put(hello)
		b.start()
		pass(time.Second)
		b.put(hello)
		if got := b.stop(); got.Succeeded != 1 {
			t.Errorf("stats %+v, want the message in flight completed", got)
		}
		if took := time.Since(b.begin); took != 5*time.Second {
			t.Errorf("stopped after %v, want as long as the invocation took", took)
		}
		if left := b.store.All("work"); len(left) > 1 {
			t.Errorf("%d messages left on the queue, want at most the second", len(left))
		}
	})
}

// What was received but not handed over when the host stops is visible again at once.
func TestListener_gives_back(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "work", always(notInvoked))
		b.create()
		b.put(hello)
		batch, err := b.store.Receive(t.Context(), "work", 1, b.rules.lease)
		if err != nil {
			t.Fatal(err)
		}
		close(b.stopping)
		b.handle(t.Context(), batch[0], b.stopping)
		if left := b.store.All("work"); len(left) != 1 || left[0].NextVisibleAt.After(time.Now()) {
			t.Errorf("queue holds %+v, want the message, visible", left)
		}
	})
}

func TestListener_wakes_early(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "work", always(succeeded))
		b.rules.longestWait = time.Hour
		b.create()
		b.start()
		pass(10 * time.Minute)
		b.put(hello)
		b.wakeUp()
		synctest.Wait()
		if got := b.stop(); got.Succeeded != 1 {
			t.Errorf("stats %+v, want a success without a wait", got)
		}
	})
}
