package listener

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/storage"
)

func TestListenerBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newListenerTest(t, always(Succeeded))
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

func TestListenerNeverCreatesItsQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newListenerTest(t, always(Succeeded))
		b.start()
		pass(time.Minute)
		if _, err := b.store.Count(t.Context(), "work"); !errors.Is(err, storage.ErrNoQueue) {
			t.Errorf("count: %v, want %v", err, storage.ErrNoQueue)
		}
		b.create()
		b.put(hello)
		pass(2 * time.Second)
		if got := b.stop(); got.Succeeded != 1 {
			t.Errorf("stats %+v, want one success", got)
		}
	})
}

func TestListenerConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var inFlight, most int
		b := newListenerTest(t, func(ctx context.Context, msg storage.Message) Result {
			mu.Lock()
			inFlight++
			most = max(most, inFlight)
			mu.Unlock()
			seconds, err := strconv.Atoi(msg.Text)
			if err != nil {
				t.Error(err)
			}
			storage.Sleep(ctx, time.Duration(seconds)*time.Second)
			mu.Lock()
			inFlight--
			mu.Unlock()
			return Succeeded
		})
		b.Queues.MessageEncoding = storage.None
		b.create()
		for i := range 40 {
			b.put(strconv.Itoa(1 + i%5))
		}
		b.start()
		pass(5 * time.Minute)
		if got := b.stop(); got.Succeeded != 40 {
			t.Errorf("stats %+v, want 40 successes", got)
		}
		if most != b.Queues.BatchSize+b.Queues.NewBatchThreshold {
			t.Errorf("%d in flight at most, want batchSize + newBatchThreshold", most)
		}
	})
}

// With maxDequeueCount N, a message is tried N times, visibilityTimeout apart, and then moved.
func TestListenerPoison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries []time.Duration
		begin := time.Now()
		b := newListenerTest(t, func(context.Context, storage.Message) Result {
			tries = append(tries, time.Since(begin).Round(10*time.Second))
			return Failed
		})
		got := b.run(5 * time.Minute)
		if want := (Stats{Received: 3, Failed: 3, Poisoned: 1, MaxDequeueCount: 3}); got != want {
			t.Errorf("stats %+v, want %+v", got, want)
		}
		if want := []time.Duration{0, 30 * time.Second, time.Minute}; !slices.Equal(tries, want) {
			t.Errorf("tries at %v, want %v", tries, want)
		}
		if left := b.left(); len(left) != 0 {
			t.Errorf("%d messages left on the queue", len(left))
		}
		wantPoison(t, b, hello)
	})
}

func wantPoison(t *testing.T, b *listenerTest, text string) {
	t.Helper()
	poisoned := b.store.All(b.Function.Queue + "-poison")
	if len(poisoned) != 1 || poisoned[0].Text != text || poisoned[0].NextVisibleAt.After(time.Now()) ||
		poisoned[0].ExpiresAt.Sub(poisoned[0].InsertedAt) != poisonTTL {
		t.Errorf("poison queue holds %+v, want %q, visible, for 3 days", poisoned, text)
	}
}

func TestListenerMovesWithoutInvoking(t *testing.T) {
	for name, test := range map[string]struct {
		text     string
		receives int // before the listener starts
		want     Stats
	}{
		"undecodable":        {"not base64!", 0, Stats{Received: 1, Poisoned: 1, MaxDequeueCount: 1}},
		"dequeued_too_often": {hello, 3, Stats{Received: 1, Poisoned: 1, MaxDequeueCount: 4}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newListenerTest(t, func(context.Context, storage.Message) Result {
					t.Error("invoked")
					return Succeeded
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

func TestListenerRefusalIsFatal(t *testing.T) {
	for _, operation := range []string{"count", "receive", "delete"} {
		t.Run(operation, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newListenerTest(t, always(Succeeded))
				b.fault = func(o string) error {
					if o == operation {
						return storage.ErrRefused
					}
					return nil
				}
				b.run(time.Second)
				if !errors.Is(b.refused, storage.ErrRefused) {
					t.Errorf("fatal error %v, want %v", b.refused, storage.ErrRefused)
				}
			})
		})
	}
}

// What completes a message is repeated: a 503 makes no second call.
func TestListenerCompletesAgain(t *testing.T) {
	for name, test := range map[string]struct {
		operation string
		out       Result
		want      Stats // of half a minute
	}{
		"delete":               {"delete", Succeeded, Stats{Received: 1, Succeeded: 1, MaxDequeueCount: 1}},
		"release":              {"update", Failed, Stats{Received: 3, Failed: 3, Poisoned: 1, MaxDequeueCount: 3}},
		"copy":                 {"put", Failed, Stats{Received: 3, Failed: 3, Poisoned: 1, MaxDequeueCount: 3}},
		"delete_of_the_copied": {"delete", Failed, Stats{Received: 3, Failed: 3, Poisoned: 1, MaxDequeueCount: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newListenerTest(t, always(test.out))
				b.Queues.VisibilityTimeout = time.Second
				left := 3 // failures
				b.fault = func(operation string) error {
					if operation == test.operation && left > 0 {
						left--
						return errDown
					}
					return nil
				}
				if got := b.run(30 * time.Second); got != test.want {
					t.Errorf("stats %+v, want %+v", got, test.want)
				}
				if n := len(b.store.All(b.Function.Queue + "-poison")); n != test.want.Poisoned {
					t.Errorf("%d messages on the poison queue, want %d", n, test.want.Poisoned)
				}
			})
		})
	}
}

// A stale receipt is no error: the handler has settled the message itself.
func TestListenerMessageIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *listenerTest
		b = newListenerTest(t, func(ctx context.Context, msg storage.Message) Result {
			if _, err := b.store.Update(ctx, "work", msg.ID, msg.PopReceipt, "bmV4dA==", time.Hour); err != nil {
				t.Error(err)
			}
			return Succeeded
		})
		b.run(time.Minute)
		if left := b.left(); len(left) != 1 || left[0].Text != "bmV4dA==" || b.refused != nil {
			t.Errorf("queue holds %+v, fatal error %v, want the handler's update", left, b.refused)
		}
	})
}

// The end of invocations cuts them short, and leaves their messages leased.
func TestListenerInvocationsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newListenerTest(t, func(ctx context.Context, _ storage.Message) Result {
			<-ctx.Done()
			return Succeeded
		})
		b.create()
		b.put(hello)
		ctx, leave := context.WithCancel(t.Context())
		invocations, cut := context.WithCancel(context.Background())
		b.running.Go(func() { b.Run(ctx, invocations) })
		pass(time.Second)
		leave()
		pass(time.Minute)
		cut()
		b.running.Wait()
		if left := b.store.All("work"); len(left) != 1 || !left[0].NextVisibleAt.After(time.Now()) {
			t.Errorf("queue holds %+v, want the message, leased", left)
		}
	})
}

// A lease of 10 minutes is renewed every 5 minutes, and sooner after failures.
func TestListenerRenewsLease(t *testing.T) {
	for name, test := range map[string]struct {
		until time.Duration // storage fails from 14 minutes on
		want  []time.Duration
	}{
		// the third fails; then 2:30 and 5 minutes later
		"outage": {18 * time.Minute, []time.Duration{
			5 * time.Minute, 10 * time.Minute, 15 * time.Minute,
			17*time.Minute + 30*time.Second, 18*time.Minute + 45*time.Second, 23*time.Minute + 45*time.Second,
		}},
		// the third fails; then 2:30, 1:15 and at least 1 minute later
		"shortest_wait": {19 * time.Minute, []time.Duration{
			5 * time.Minute, 10 * time.Minute, 15 * time.Minute,
			17*time.Minute + 30*time.Second, 18*time.Minute + 45*time.Second, 19*time.Minute + 45*time.Second,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var renewals []time.Duration
				b := newListenerTest(t, takes(24*time.Minute))
				b.fault = func(operation string) error {
					if operation != "update" {
						return nil
					}
					since := time.Since(b.begin)
					renewals = append(renewals, since)
					if since > 14*time.Minute && since < test.until {
						return errDown
					}
					return nil
				}
				if got, want := b.run(time.Hour), (Stats{Received: 1, Succeeded: 1, MaxDequeueCount: 1}); got != want {
					t.Errorf("stats %+v, want %+v", got, want)
				}
				if diff := cmp.Diff(test.want, renewals); diff != "" {
					t.Errorf("renewals (-want +got):\n%s", diff)
				}
				if left := b.left(); len(left) != 0 {
					t.Errorf("%d messages left: the newest receipt was not used", len(left))
				}
			})
		})
	}
}

func TestListenerStopsRenewingGoneMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var renewals atomic.Int32 // the message is received again when its lease ends
		b := newListenerTest(t, takes(24*time.Minute))
		b.fault = func(operation string) error {
			if operation == "update" {
				renewals.Add(1)
				return storage.ErrStale
			}
			return nil
		}
		b.create()
		b.put(hello)
		b.start()
		pass(9 * time.Minute)
		if got := renewals.Load(); got != 1 {
			t.Errorf("%d renewals, want none after the first", got)
		}
		pass(time.Hour)
		b.stop()
	})
}

func TestPollPause(t *testing.T) {
	for name, test := range map[string]struct {
		longest time.Duration
		random  float64
		want    []int // milliseconds
	}{
		"middle":      {time.Minute, 0.5, []int{100, 200, 300, 500, 900, 1700, 3300, 6500, 12900, 25700, 51300, 60000}},
		"low":         {time.Minute, 0, []int{100, 180, 260, 420, 740}},
		"high":        {time.Minute, 1, []int{100, 220, 340, 580, 1060}},
		"development": {2 * time.Second, 0.5, []int{100, 200, 300, 500, 900, 1700, 2000, 2000}},
		"shortest":    {shortestPoll, 0.5, []int{100, 100, 100}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []int
			for n := range test.want {
				wait := pollPause(n+1, test.longest, test.random)
				got = append(got, int(wait.Round(time.Millisecond)/time.Millisecond))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("pauses (-want +got):\n%s", diff)
			}
			if got := pollPause(10_000, test.longest, test.random); got != test.longest {
				t.Errorf("after days: %v, want %v", got, test.longest)
			}
		})
	}
}
