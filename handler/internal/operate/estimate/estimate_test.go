package estimate_test

import (
	"math"
	"testing"
	"time"

	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/operate/estimate"
	"asynccaller/handler/internal/rules/retry"
)

var now = time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)

// waiting returns so many calls, of which one is due after each pause.
func waiting(n int, pause time.Duration, attempts int) *estimate.Waiting {
	w := &estimate.Waiting{}
	for i := range n {
		w.Add(time.Duration(i+1)*pause, attempts, estimate.Later)
	}
	return w
}

// minutes returns the numbers of the last minutes, in each of which so many messages were new, and calls were delivered
// and failed.
func minutes(numbers ...[3]int) (s sight.Series) {
	s.Last5Minutes.Known = sight.RecentMinutes
	for i, n := range numbers {
		of := sight.Counts{New: n[0], Delivered: n[1], Failed: map[string]int{"temporary_status": n[2], "rejected": 3}}
		at := now.Add(-time.Duration(len(numbers)-i)*time.Minute - 20*time.Second)
		s.Minutes = append(s.Minutes, sight.Point{At: at, Counts: of})
		if i >= len(numbers)-sight.RecentMinutes {
			s.Last5Minutes.New += n[0]
		}
	}
	return s
}

func TestText(t *testing.T) {
	perMinute := func(n float64) float64 { return n / 60 }
	of8, of12 := [3]int{8, 9, 0}, [3]int{12, 9, 0}
	quiet := minutes([3]int{2, 10, 0}, [3]int{2, 10, 0})
	for name, test := range map[string]struct {
		target estimate.Target
		want   string
	}{
		"due times": {estimate.Target{Waiting: waiting(100, 12*time.Second, 3)}, "90 % in 18m, all in about 20m"},
		"far away":  {estimate.Target{Waiting: waiting(60, 24*time.Hour, 3)}, "90 % in 54d, all in about 60d"},
		"a limit": {
			estimate.Target{Waiting: waiting(100, 0, 3), Pace: perMinute(10)},
			"90 % in 9m, all in about 10m",
		},
		"no reports": {estimate.Target{Waiting: waiting(100, 0, 3), Unknown: "its limits"}, "unknown: its limits"},
		"a pause": {
			estimate.Target{
				Waiting: waiting(9, 0, 3), IsPaused: true, PausedUntil: now.Add(6 * time.Hour), Unknown: "x",
			},
			"stands still: paused until 2026-11-29T16:00:00Z",
		},
		"a pause without an end": {
			estimate.Target{Waiting: waiting(9, 0, 3), IsPaused: true},
			"stands still: paused until it is resumed",
		},
		"a breaker": {
			estimate.Target{Waiting: waiting(9, 0, 3), Failing: "503", IsOpen: true}, "nothing is called: 503",
		},
		"down without a breaker": {
			estimate.Target{
				Waiting: waiting(9, 0, 3), Failing: "503",
				Numbers: minutes([3]int{2, 9, 0}, [3]int{2, 0, 9}, [3]int{0, 0, 0}),
			},
			"nothing is delivered: 503",
		},
		"more arrivals than the limit": {
			estimate.Target{
				Waiting: waiting(100, time.Second, 3), Pace: perMinute(10),
				Numbers: minutes(of12, of12, of12, of12, of12),
			},
			"does not shrink: 12/min come, 10/min may leave",
		},
		"fewer, by chance": {
			estimate.Target{
				Waiting: waiting(100, time.Second, 3), Pace: perMinute(10),
				Numbers: minutes(of8, of8, of8, of8, of8),
			},
			"does not shrink: 8.0/min come, 10/min may leave",
		},
		"a fifth fails again": {
			estimate.Target{Waiting: waiting(100, 0, 3), Numbers: minutes([3]int{2, 80, 20})},
			"90 % in 47s, all likely before 23m",
		},
		"the failures of before": {
			estimate.Target{
				Waiting: waiting(100, 12*time.Second, 3),
				Numbers: minutes([3]int{2, 0, 90}, [3]int{2, 40, 80}, [3]int{2, 40, 0}),
			},
			"90 % in 18m, all in about 20m",
		},
		"an app that is behind": {
			estimate.Target{
				Waiting: waiting(1000, -10*time.Minute, 3), Numbers: minutes([3]int{0, 100, 0}, [3]int{0, 100, 0}),
			},
			"90 % in 9m, all in about 10m",
		},
		"calls in flight": {
			estimate.Target{Waiting: waiting(50, -2*time.Minute, 3), Numbers: minutes([3]int{100, 100, 0})},
			"90 % in 9s, all in about 10s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.target.Now, test.target.Retry = now, retry.Default()
			if test.target.Pace == 0 {
				test.target.Pace = math.Inf(1)
			}
			if test.target.Numbers.Last5Minutes.Known == 0 {
				test.target.Numbers = quiet
			}
			if got := estimate.Of(test.target).Text(); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// TestLine: calls that wait for a limit are made before those that arrive.
func TestLine(t *testing.T) {
	last := func(kind estimate.Kind) time.Duration {
		w := &estimate.Waiting{}
		for i := range 200 {
			w.Add(time.Duration(i)*6*time.Second, 0, kind)
		}
		of5 := [3]int{5, 9, 0}
		numbers := minutes(of5, of5, of5, of5, of5)
		e := estimate.Of(estimate.Target{
			Now: now, Waiting: w, Pace: 12.0 / 60, Numbers: numbers, Retry: retry.Default(),
		})
		return e.Last.Sub(now)
	}
	if later, inLine := last(estimate.Later), last(estimate.InLine); inLine > 21*time.Minute || later < 24*time.Minute {
		t.Errorf("in line %v, later %v", inLine, later)
	}
}

// TestResumed: the calls that a pause has refused become due when it ends, not faster than a rate.
func TestResumed(t *testing.T) {
	w := &estimate.Waiting{}
	for range 120 {
		w.Add(8*time.Minute, 1, estimate.Paused)
	}
	w.Add(time.Hour, 1, estimate.Later)
	for rate, want := range map[float64]string{
		0: "90 % in 19s, all in about 1h", 0.2: "90 % in 9m, all in about 1h",
	} {
		got := estimate.Of(estimate.Target{
			Now: now, Waiting: w.Resumed(20*time.Second, rate), Pace: math.Inf(1), Numbers: minutes([3]int{1, 9, 0}),
			Retry: retry.Default(),
		}).Text()
		if got != want {
			t.Errorf("at %g/s: %s, want %s", rate, got, want)
		}
	}
}

// TestKeep: a watch shows the same times for a minute, unless something has changed.
func TestKeep(t *testing.T) {
	first := estimate.Estimate{At: now, State: estimate.Ends, Calls: 9}
	next := func(after time.Duration, state estimate.State) estimate.Estimate {
		return estimate.Estimate{At: now.Add(after), State: state, Calls: 8}
	}
	for _, test := range []struct {
		then estimate.Estimate
		want int
	}{
		{next(59*time.Second, estimate.Ends), 9},
		{next(time.Minute, estimate.Ends), 8},
		{next(time.Second, estimate.IsDown), 8},
	} {
		if got := test.then.Keep(first); got.Calls != test.want {
			t.Errorf("%+v is shown after %v", got, test.then.At.Sub(now))
		}
	}
}
