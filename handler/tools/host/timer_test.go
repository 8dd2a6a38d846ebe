package host

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/functionapp"
)

const hourly = "0 0 * * * *"

func mustSchedule(t *testing.T, text string) functionapp.Schedule {
	t.Helper()
	schedule, err := functionapp.ParseSchedule(text)
	if err != nil {
		t.Fatal(err)
	}
	return schedule
}

// The golden files have the shape that a handler got from host 4.24, with a schedule's state.
func TestScheduleStatus_body(t *testing.T) {
	due := time.Date(2026, 11, 20, 23, 0, 0, 0, time.UTC)
	for name, status := range map[string]scheduleStatus{
		"timer_first": {next: due},
		"timer":       {last: due.Add(-time.Hour + 10500*time.Microsecond), next: due},
	} {
		t.Run(name, func(t *testing.T) {
			golden, err := os.ReadFile(filepath.Join("testdata", "invocation", name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			var want bytes.Buffer
			if err := json.Compact(&want, golden); err != nil {
				t.Fatal(err)
			}
			timer := functionapp.Timer{Name: "TimerFn", Binding: "timer"}
			got := status.body(timer, due.Add(1200*time.Microsecond), "24ad4c06-24ad-4e5b-8294-3da9714877e9")
			if diff := cmp.Diff(want.String(), string(got)); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		})
	}
}

// The body tells times in UTC, wherever the host stands.
func TestScheduleStatus_body_in_another_zone(t *testing.T) {
	zone := time.FixedZone("", 2*60*60)
	status := scheduleStatus{last: time.Date(2026, 1, 2, 1, 0, 0, 0, zone), next: time.Date(2026, 1, 2, 2, 0, 0, 0, zone)}
	got := string(status.body(functionapp.Timer{Name: "T", Binding: "timer"}, status.next, "x"))
	for _, text := range []string{`"Last":"2026-01-01T23:00:00+00:00"`, `"Next":"2026-01-02T00:00:00+00:00"`, `"UtcNow":"2026-01-02T00:00:00.0000000Z"`} {
		if !strings.Contains(got, text) {
			t.Errorf("%s is missing in %s", text, got)
		}
	}
}

func TestInvokeTimer(t *testing.T) {
	var got *http.Request
	var body string
	i, log := readyInvoker(t, func(w http.ResponseWriter, r *http.Request) {
		content, _ := io.ReadAll(r.Body)
		got, body = r, string(content)
		answerObject(w)
	})
	timer := functionapp.Timer{Name: "TimerFn", Binding: "timer"}
	if out := i.invokeTimer(t.Context(), timer, scheduleStatus{}); out != succeeded {
		t.Fatalf("outcome %d, want success", out)
	}
	if got.Method != http.MethodPost || got.RequestURI != "/TimerFn" || got.Header.Get("Content-Type") != "application/json; charset=utf-8" ||
		len(got.Header.Get("X-Azure-Functions-InvocationId")) != 36 {
		t.Errorf("%s %s with %v", got.Method, got.RequestURI, got.Header)
	}
	if !strings.HasPrefix(body, `{"Data":{"timer":{"Schedule":`) || !strings.Contains(body, `"MethodName":"TimerFn"`) {
		t.Errorf("body is %s", body)
	}
	for _, text := range []string{`"reason":"Timer fired at `, `"a log line"`, `"result":"Succeeded"`} {
		if !strings.Contains(log.text(), text) {
			t.Errorf("%s is missing in the log:\n%s", text, log.text())
		}
	}
}

// bell is a clock in a synctest bubble, and the runs that it began.
type bell struct {
	*clock
	begin    time.Time
	stopping chan struct{}
	cut      context.CancelFunc
	running  sync.WaitGroup
	log      *recorder
	work     func(ctx context.Context, n int) outcome // the nth run, from 1

	mu       sync.Mutex
	at       []time.Duration // since begin
	statuses []scheduleStatus
	together int // runs under way
}

// newBell makes a clock whose bubble begins at 2000-01-01, a Saturday.
func newBell(t *testing.T, schedule string, work func(ctx context.Context, n int) outcome) *bell {
	t.Helper()
	b := &bell{begin: time.Now(), stopping: make(chan struct{}), log: newRecorder(), work: work}
	timer := functionapp.Timer{Name: "TimerFn", Binding: "timer", Schedule: mustSchedule(t, schedule)}
	b.clock = &clock{
		timer: timer,
		invoke: func(ctx context.Context, _ functionapp.Timer, status scheduleStatus) outcome {
			return b.ring(ctx, t, status)
		},
		counts: newCounters(&functionapp.App{Timers: []functionapp.Timer{timer}}),
		log:    zerolog.New(b.log),
	}
	return b
}

func (b *bell) ring(ctx context.Context, t *testing.T, status scheduleStatus) outcome {
	t.Helper()
	b.mu.Lock()
	b.at = append(b.at, time.Since(b.begin))
	b.statuses = append(b.statuses, status)
	b.together++
	n := len(b.at)
	if b.together > 1 {
		t.Errorf("%d runs at a time", b.together)
	}
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.together--
	}()
	return b.work(ctx, n)
}

func (b *bell) start() {
	ctx, cut := context.WithCancel(context.Background())
	b.cut = cut
	b.running.Go(func() { b.run(ctx, b.stopping) })
}

func (b *bell) stop() FunctionStats {
	close(b.stopping)
	b.running.Wait()
	b.cut()
	return b.counts.snapshot().Functions["TimerFn"]
}

// takes is work of which every run takes so long.
func takes(d time.Duration) func(context.Context, int) outcome {
	return func(context.Context, int) outcome {
		<-time.After(d)
		return succeeded
	}
}

func TestClock(t *testing.T) {
	const minute, hour, day = time.Minute, time.Hour, 24 * time.Hour
	for name, test := range map[string]struct {
		schedule  string
		onStartup bool
		work      func(context.Context, int) outcome
		during    time.Duration
		want      []time.Duration
	}{
		"hourly":             {hourly, false, takes(minute), 3*hour + minute, []time.Duration{hour, 2 * hour, 3 * hour}},
		"not_at_the_start":   {"0 0 0 * * *", false, takes(0), 2*day + minute, []time.Duration{day, 2 * day}},
		"on_startup":         {hourly, true, takes(minute), hour + minute, []time.Duration{0, hour}},
		"quick_second":       {"*/30 * * * * *", false, takes(0), 61 * time.Second, []time.Duration{30 * time.Second, 60 * time.Second}},
		"both_days_match":    {"0 0 12 1-7 * Mon", false, takes(0), 40 * day, []time.Duration{2*day + 12*hour, 37*day + 12*hour}},
		"interval":           {"00:10:00", false, takes(minute), 31 * minute, []time.Duration{10 * minute, 20 * minute, 30 * minute}},
		"long_wait":          {"0 0 0 1 1 *", false, takes(0), 366*day + hour, []time.Duration{366 * day}},
		"longer_than_a_turn": {hourly, false, takes(70 * minute), 4 * hour, []time.Duration{hour, 3 * hour}},
		"much_longer":        {"00:10:00", false, takes(25 * minute), 79 * minute, []time.Duration{10 * minute, 45 * minute}},
		"exactly_a_turn":     {hourly, false, takes(hour), 4*hour + minute, []time.Duration{hour, 3 * hour}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBell(t, test.schedule, test.work)
				b.timer.RunOnStartup = test.onStartup
				b.start()
				pass(test.during)
				stats := b.stop()
				if diff := cmp.Diff(test.want, b.at); diff != "" {
					t.Errorf("runs (-want +got):\n%s", diff)
				}
				if want := (FunctionStats{Succeeded: len(test.want)}); stats != want {
					t.Errorf("stats %+v, want %+v", stats, want)
				}
			})
		})
	}
}

func TestClock_tells_the_schedules_state(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBell(t, hourly, takes(time.Minute))
		b.timer.RunOnStartup = true
		pass(30 * time.Minute)
		b.start()
		pass(2 * time.Hour)
		b.stop()
		begin := b.begin.UTC().Round(0)
		want := []scheduleStatus{
			{next: begin.Add(time.Hour)}, // at start-up
			{last: begin.Add(30 * time.Minute), next: begin.Add(time.Hour)},
			{last: begin.Add(time.Hour), next: begin.Add(2 * time.Hour)},
		}
		if diff := cmp.Diff(want, b.statuses, cmp.AllowUnexported(scheduleStatus{})); diff != "" {
			t.Errorf("states (-want +got):\n%s", diff)
		}
	})
}

// A run that fails is warned of and made again at its next time, not before.
func TestClock_failure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBell(t, hourly, func(_ context.Context, n int) outcome {
			if n == 1 {
				return failedTry
			}
			return succeeded
		})
		b.start()
		pass(2*time.Hour + time.Minute)
		if got, want := b.stop(), (FunctionStats{Succeeded: 1, Failed: 1}); got != want {
			t.Errorf("stats %+v, want %+v", got, want)
		}
		if diff := cmp.Diff([]time.Duration{time.Hour, 2 * time.Hour}, b.at); diff != "" {
			t.Errorf("runs (-want +got):\n%s", diff)
		}
		if got := b.log.text(); strings.Count(got, `"level":"warn"`) != 1 || !strings.Contains(got, `"next":"2000-01-01T02:00:00Z"`) {
			t.Errorf("log:\n%s", got)
		}
	})
}

func TestClock_stop(t *testing.T) {
	t.Run("waiting", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBell(t, hourly, takes(0))
			b.start()
			pass(90 * time.Minute)
			b.stop()
			if took := time.Since(b.begin); took != 90*time.Minute || len(b.at) != 1 {
				t.Errorf("stopped after %v and %d runs, want at once", took, len(b.at))
			}
		})
	})
	t.Run("under_way", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBell(t, hourly, takes(90*time.Minute))
			b.start()
			pass(time.Hour)
			stats := b.stop()
			if took := time.Since(b.begin); took != 150*time.Minute || len(b.at) != 1 || stats.Succeeded != 1 {
				t.Errorf("stopped after %v with %+v, want after the run", took, stats)
			}
		})
	})
	t.Run("cut", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBell(t, hourly, func(ctx context.Context, _ int) outcome {
				<-ctx.Done()
				return failedTry
			})
			b.start()
			pass(time.Hour)
			close(b.stopping)
			pass(time.Second)
			b.cut()
			b.running.Wait()
			if got, want := b.counts.snapshot().Functions["TimerFn"], (FunctionStats{Failed: 1}); got != want {
				t.Errorf("stats %+v, want %+v", got, want)
			}
		})
	})
	t.Run("before_the_start", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBell(t, hourly, takes(0))
			b.timer.RunOnStartup = true
			close(b.stopping)
			b.run(t.Context(), b.stopping)
			if len(b.at) != 0 {
				t.Errorf("%d runs", len(b.at))
			}
		})
	})
}

// A timer without a schedule waits for the stop; functionapp never makes one.
func TestClock_never(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBell(t, hourly, takes(0))
		b.timer.Schedule = functionapp.Schedule{}
		b.start()
		pass(1000 * time.Hour)
		b.stop()
		if len(b.at) != 0 {
			t.Errorf("%d runs", len(b.at))
		}
	})
}

// withTimer adds a timer that runs at the start of the host and then not for long.
func withTimer(t *testing.T, name string) func(*Options) {
	t.Helper()
	timer := functionapp.Timer{Name: name, Binding: "timer", Schedule: mustSchedule(t, "0 0 0 29 2 *"), RunOnStartup: true}
	return func(o *Options) { o.App.Timers = []functionapp.Timer{timer} }
}

func TestRun_timer(t *testing.T) {
	h := startHost(t, "serve", withTimer(t, "ok"))
	h.log.waitFor(t, `"result":"Succeeded"`, 1)
	h.put("ok")
	h.log.waitFor(t, `"result":"Succeeded"`, 2)
	h.stop()
	if got, want := h.summary(), (FunctionStats{Received: 1, Succeeded: 1, MaxDequeueCount: 1}); got != want {
		t.Errorf("stats of the queue function %+v, want %+v", got, want)
	}
	if got, want := h.Stats().Functions["ok"], (FunctionStats{Succeeded: 1}); got != want {
		t.Errorf("stats of the timer %+v, want %+v", got, want)
	}
	for _, text := range []string{
		`"timers":["ok <- 0 0 0 29 2 *"]`, `"reason":"Timer fired at `, `"received":1,"succeeded":1,"failed":0`, `"timer_runs_succeeded":1,"timer_runs_failed":0`,
	} {
		h.log.waitFor(t, text, 1)
	}
}

// The stop, functionTimeout and answers are for timers what they are for messages.
func TestRun_timer_endings(t *testing.T) {
	for name, test := range map[string]struct {
		function string
		change   func(*Options)
		// until is what stands in the output or log before the host is told to stop.
		until  string
		want   FunctionStats
		starts int
	}{
		"fails":           {"fail", nil, "timer run failed", FunctionStats{Failed: 1}, 1},
		"empty_answer":    {"empty", func(o *Options) { o.App.Host.FunctionTimeout = 300 * time.Millisecond }, "timer run failed", FunctionStats{Failed: 1}, 2},
		"stop_waits":      {"until-interrupted", nil, "fake: until-interrupted", FunctionStats{Succeeded: 1}, 1},
		"stop_cuts_short": {"block", func(o *Options) { o.StopTimeout = 50 * time.Millisecond }, "fake: block", FunctionStats{Failed: 1}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			both := newRecorder()
			h := startHost(t, "serve", func(o *Options) {
				withTimer(t, test.function)(o)
				if test.change != nil {
					test.change(o)
				}
				o.Stdout = both
				o.Log = zerolog.New(both)
			})
			both.waitFor(t, test.until, 1)
			if test.starts > 1 {
				both.waitFor(t, `"message":"handler ready"`, test.starts)
			}
			h.stop()
			h.summary()
			if got := h.Stats().Functions[test.function]; got != test.want {
				t.Errorf("stats %+v, want %+v", got, test.want)
			}
			if got := h.Stats().HandlerStarts; got != test.starts {
				t.Errorf("handler started %d times, want %d", got, test.starts)
			}
		})
	}
}
