package host

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/queue"
)

func TestRenewalWait(t *testing.T) {
	for name, test := range map[string]struct {
		lease, latest time.Duration
		failed        bool
		want          time.Duration
	}{
		"first":         {10 * time.Minute, 0, false, 5 * time.Minute},
		"failure":       {10 * time.Minute, 5 * time.Minute, true, 150 * time.Second},
		"third_failure": {10 * time.Minute, 75 * time.Second, true, time.Minute},
		"floor":         {10 * time.Minute, time.Minute, true, time.Minute},
		"recovered":     {10 * time.Minute, time.Minute, false, 5 * time.Minute},
		"short_lease":   {10 * time.Second, 1500 * time.Millisecond, true, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			if got := renewalWait(test.lease, test.latest, test.failed); got != test.want {
				t.Errorf("wait %v, want %v", got, test.want)
			}
		})
	}
}

// longWork takes 24 minutes, in which a lease of 10 minutes must be renewed four times.
func longWork(context.Context, functionapp.Function, queue.Message, []byte) outcome {
	<-time.After(24 * time.Minute)
	return succeeded
}

func TestListener_renews_lease(t *testing.T) {
	for name, test := range map[string]struct {
		fault func(since time.Duration) error
		want  []time.Duration // renewals tried, since the receipt
	}{
		"all_well": {
			func(time.Duration) error { return nil },
			[]time.Duration{5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 20 * time.Minute},
		},
		"outage": {
			func(since time.Duration) error {
				if since > 14*time.Minute && since < 18*time.Minute {
					return errDown
				}
				return nil
			},
			// 15 fails; then 2:30 and 5 minutes later
			[]time.Duration{5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 17*time.Minute + 30*time.Second, 18*time.Minute + 45*time.Second, 23*time.Minute + 45*time.Second},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var renewals []time.Duration
				b := newBench(t, "work", longWork)
				b.fault = func(operation string) error {
					if operation != "update" {
						return nil
					}
					renewals = append(renewals, time.Since(b.begin))
					return test.fault(time.Since(b.begin))
				}
				b.create()
				b.put(hello)
				b.start()
				pass(time.Hour)
				if got, want := b.stop(), (FunctionStats{Received: 1, Succeeded: 1, MaxDequeueCount: 1}); got != want {
					t.Errorf("stats %+v, want %+v", got, want)
				}
				if diff := cmp.Diff(test.want, renewals); diff != "" {
					t.Errorf("renewals (-want +got):\n%s", diff)
				}
				if left := b.store.All("work"); len(left) != 0 {
					t.Errorf("%d messages left: the newest receipt was not used", len(left))
				}
			})
		})
	}
}

func TestListener_stops_renewing_what_is_gone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var renewals atomic.Int32 // the message is received again when its lease ends
		b := newBench(t, "work", longWork)
		b.fault = func(operation string) error {
			if operation == "update" {
				renewals.Add(1)
				return queue.ErrStale
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
