package host

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/storage"
)

const hourly = "0 0 * * * *"

// The golden files have the shape of invocations by host 4.24, with a schedule's status.
func TestTimerInvocation(t *testing.T) {
	timer := functionapp.Timer{Name: "TimerFn", Binding: "timer"}
	due := time.Date(2026, 11, 20, 23, 0, 0, 0, time.UTC)
	now := due.Add(1200 * time.Microsecond)
	for name, status := range map[string]scheduleStatus{
		"timer_first": {next: due},
		"timer":       {last: due.Add(-time.Hour + 10500*time.Microsecond), next: due},
	} {
		t.Run(name, func(t *testing.T) { mustBeGolden(t, name, timerInvocation(timer, &status, now, testGUID).body) })
		t.Run(name+"_in_another_zone", func(t *testing.T) {
			zone := time.FixedZone("", 2*60*60)
			status = scheduleStatus{last: status.last.In(zone), next: status.next.In(zone)}
			mustBeGolden(t, name, timerInvocation(timer, &status, now.In(zone), testGUID).body)
		})
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
	if out := i.invoke(t.Context(), timerInvocation(timer, nil, time.Now(), testGUID)); out != succeeded {
		t.Fatalf("outcome %d, want success", out)
	}
	if got.Method != http.MethodPost || got.RequestURI != "/TimerFn" || got.Header.Get("Content-Type") != "application/json; charset=utf-8" ||
		len(got.Header.Get("X-Azure-Functions-InvocationId")) != 36 {
		t.Errorf("%s %s with %v", got.Method, got.RequestURI, got.Header)
	}
	if !strings.HasPrefix(body, `{"Data":{"timer":{`) || !strings.Contains(body, `"MethodName":"TimerFn"`) {
		t.Errorf("body is %s", body)
	}
	for _, text := range []string{`"reason":"Timer fired at `, `"a log line"`, `"result":"Succeeded"`} {
		if !strings.Contains(log.text(), text) {
			t.Errorf("%s is missing in the log:\n%s", text, log.text())
		}
	}
}

// clockTest is a clock in a synctest bubble, and the runs that it began.
type clockTest struct {
	*clock
	begin    time.Time
	stopping chan struct{}
	cut      context.CancelFunc
	running  sync.WaitGroup
	log      *recorder
	do       work

	mu       sync.Mutex
	at       []time.Duration // since begin
	statuses []scheduleStatus
	together int // runs in flight
}

// newClockTest returns a clock whose bubble begins at 2000-01-01, a Saturday.
func newClockTest(t *testing.T, schedule string, do work) *clockTest {
	t.Helper()
	c := &clockTest{begin: time.Now(), stopping: make(chan struct{}), log: newRecorder(), do: do}
	c.clock = &clock{
		timer:    functionapp.Timer{Name: "TimerFn", Binding: "timer"},
		schedule: mustSchedule(t, schedule),
		invoke:   func(ctx context.Context, inv invocation) outcome { return c.invoked(ctx, t, inv) },
		log:      zerolog.New(c.log),
	}
	return c
}

func (c *clockTest) invoked(ctx context.Context, t *testing.T, inv invocation) outcome {
	t.Helper()
	var body struct {
		Data map[string]struct {
			ScheduleStatus *struct{ Last, Next time.Time }
		}
	}
	if err := json.Unmarshal(inv.body, &body); err != nil {
		t.Error(err)
	}
	c.mu.Lock()
	c.at = append(c.at, time.Since(c.begin))
	if status := body.Data["timer"].ScheduleStatus; status != nil {
		c.statuses = append(c.statuses, scheduleStatus{last: status.Last.UTC(), next: status.Next.UTC()})
	}
	c.together++
	if c.together > 1 {
		t.Errorf("%d runs at a time", c.together)
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.together--
	}()
	return c.do(ctx, storage.Message{})
}

func (c *clockTest) start() {
	ctx, cut := context.WithCancel(context.Background())
	c.cut = cut
	c.running.Go(func() { c.run(ctx, c.stopping) })
}

func (c *clockTest) stop() {
	close(c.stopping)
	c.running.Wait()
	c.cut()
}

func TestClock(t *testing.T) {
	const minute, hour, day = time.Minute, time.Hour, 24 * time.Hour
	for name, test := range map[string]struct {
		schedule  string
		onStartup bool
		do        work
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
				c := newClockTest(t, test.schedule, test.do)
				c.timer.RunOnStartup = test.onStartup
				c.start()
				pass(test.during)
				c.stop()
				if diff := cmp.Diff(test.want, c.at); diff != "" {
					t.Errorf("runs (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestClockScheduleStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockTest(t, hourly, takes(time.Minute))
		c.timer.RunOnStartup = true
		pass(30 * time.Minute)
		c.start()
		pass(2 * time.Hour)
		c.stop()
		begin := c.begin.UTC().Round(0)
		want := []scheduleStatus{
			{next: begin.Add(time.Hour)}, // at start-up
			{last: begin.Add(30 * time.Minute), next: begin.Add(time.Hour)},
			{last: begin.Add(time.Hour), next: begin.Add(2 * time.Hour)},
		}
		if diff := cmp.Diff(want, c.statuses, cmp.AllowUnexported(scheduleStatus{})); diff != "" {
			t.Errorf("states (-want +got):\n%s", diff)
		}
	})
}

// The host stores no status of a timer that runs more than once in every minute.
func TestClockFrequent(t *testing.T) {
	for schedule, stored := range map[string]bool{
		"* * * * * *":                  false,
		"*/5 * * * * *":                false,
		"10,20,45 * * * * *":           false,
		"*/30 0-59 0-23 1-31 1-12 0-6": false,
		"0/20 */1 * * jan-dec sun-sat": false,
		"00:00:01":                     false,
		"00:00:59":                     false,
		"0 * * * * *":                  true,
		"30 * * * * *":                 true,
		"*/60 * * * * *":               true,
		"* * * * *":                    true,
		"* */2 * * * *":                true,
		"* 30 * * * *":                 true,
		"* 0-58 * * * *":               true,
		"* * * * * 0-5":                true,
		"* * * * 1-11 *":               true,
		"00:01:00":                     true,
		"00:10:00":                     true,
		" */30  *   * * * *  ":         false,
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newClockTest(t, schedule, takes(0))
			c.timer.RunOnStartup = true
			c.start()
			pass(time.Millisecond)
			c.stop()
			if len(c.at) != 1 || (len(c.statuses) == 1) != stored {
				t.Errorf("%q: %d runs with the statuses %v, want one with a status: %v", schedule, len(c.at), c.statuses, stored)
			}
		})
	}
}

// A run that fails is logged and not repeated before its next time.
func TestClockFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		c := newClockTest(t, hourly, func(context.Context, storage.Message) outcome {
			runs++
			if runs == 1 {
				return failed
			}
			return succeeded
		})
		c.start()
		pass(2*time.Hour + time.Minute)
		c.stop()
		if diff := cmp.Diff([]time.Duration{time.Hour, 2 * time.Hour}, c.at); diff != "" {
			t.Errorf("runs (-want +got):\n%s", diff)
		}
		if got := c.log.text(); strings.Count(got, `"level":"warn"`) != 1 || !strings.Contains(got, `"next":"2000-01-01T02:00:00Z"`) {
			t.Errorf("log:\n%s", got)
		}
	})
}

func TestClockStop(t *testing.T) {
	t.Run("waiting", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClockTest(t, hourly, takes(0))
			c.start()
			pass(90 * time.Minute)
			c.stop()
			if took := time.Since(c.begin); took != 90*time.Minute || len(c.at) != 1 {
				t.Errorf("stopped after %v and %d runs, want at once", took, len(c.at))
			}
		})
	})
	t.Run("in_flight", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClockTest(t, hourly, takes(90*time.Minute))
			c.start()
			pass(time.Hour)
			c.stop()
			if took := time.Since(c.begin); took != 150*time.Minute || len(c.at) != 1 {
				t.Errorf("stopped after %v and %d runs, want after the run", took, len(c.at))
			}
		})
	})
	t.Run("cut", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClockTest(t, hourly, func(ctx context.Context, _ storage.Message) outcome {
				<-ctx.Done()
				return failed
			})
			c.start()
			pass(time.Hour)
			close(c.stopping)
			pass(time.Second)
			c.cut()
			c.running.Wait()
			if len(c.at) != 1 {
				t.Errorf("%d runs, want 1", len(c.at))
			}
		})
	})
	t.Run("before_the_start", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClockTest(t, hourly, takes(0))
			c.timer.RunOnStartup = true
			close(c.stopping)
			c.run(t.Context(), c.stopping)
			if len(c.at) != 0 {
				t.Errorf("%d runs", len(c.at))
			}
		})
	})
}

// A clock without a schedule never runs; clocks never returns one.
func TestClockNever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockTest(t, hourly, takes(0))
		c.schedule = schedule{}
		c.start()
		pass(1000 * time.Hour)
		c.stop()
		if len(c.at) != 0 {
			t.Errorf("%d runs", len(c.at))
		}
	})
}

// withTimer adds a timer that runs at the start of the host and then on 29 February.
func withTimer(t *testing.T, name string) func(*Host) {
	t.Helper()
	timer := functionapp.Timer{Name: name, Binding: "timer", Schedule: "0 0 0 29 2 *", RunOnStartup: true}
	return func(h *Host) { h.options.App.Timers = []functionapp.Timer{timer} }
}

// Each problem names the file of the function and shows the schedule as written, never the value of a setting.
func TestCheckTimers(t *testing.T) {
	for name, test := range map[string]struct{ schedule, written, want string }{
		"field":   {"0 0 25 * * *", "0 0 25 * * *", `Clock/function.json: schedule "0 0 25 * * *": its hour (field 3)`},
		"escape":  {"\x1b[2J", "\x1b[2J", `Clock/function.json: schedule "\x1b[2J": it has 1 fields`},
		"setting": {"AccountKey=C4nary", "%AzureWebJobsStorage%", `Clock/function.json: schedule "%AzureWebJobsStorage%": it has 1 fields`},
	} {
		t.Run(name, func(t *testing.T) {
			timer := functionapp.Timer{Name: "Clock", Schedule: test.schedule, ScheduleAsWritten: test.written}
			other := functionapp.Timer{Name: "Other", Schedule: "hourly", ScheduleAsWritten: "hourly"}
			err := CheckTimers(&functionapp.App{Timers: []functionapp.Timer{timer, other}})
			if err == nil {
				t.Fatal("no problem was reported")
			}
			for _, text := range []string{test.want, `Other/function.json: schedule "hourly"`} {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q is missing in:\n%v", text, err)
				}
			}
			if strings.Contains(err.Error(), "C4nary") {
				t.Errorf("the error contains a secret:\n%v", err)
			}
		})
	}
}

func TestRunTimer(t *testing.T) {
	h := startHost(t, "serve", withTimer(t, "ok"))
	h.log.waitFor(t, `"result":"Succeeded"`, 1)
	h.put("ok")
	h.log.waitFor(t, `"result":"Succeeded"`, 2)
	h.stop()
	if got, want := h.summary(), (stats{received: 1, succeeded: 1, maxDequeueCount: 1}); got != want {
		t.Errorf("stats %+v, want those of messages alone: %+v", got, want)
	}
	for _, text := range []string{`"timers":["ok <- 0 0 0 29 2 *"]`, `"reason":"Timer fired at `} {
		h.log.waitFor(t, text, 1)
	}
}

// functionTimeout and answers work for timers as they do for messages.
func TestRunTimerEndings(t *testing.T) {
	for name, test := range map[string]struct {
		function string
		change   func(*Options)
		// until is a text in the output or log before the host is stopped.
		until  string
		result string
		starts int
	}{
		"fails":        {"fail", nil, "timer run failed", "Failed", 1},
		"empty_answer": {"empty", func(o *Options) { o.App.Host.FunctionTimeout = 300 * time.Millisecond }, "timer run failed", "Failed", 2},
	} {
		t.Run(name, func(t *testing.T) {
			both := newRecorder()
			h := startHost(t, "serve", func(h *Host) {
				withTimer(t, test.function)(h)
				if test.change != nil {
					test.change(&h.options)
				}
				h.options.Stdout = both
				h.options.Log = zerolog.New(both)
			})
			both.waitFor(t, test.until, 1)
			if test.starts > 1 {
				both.waitFor(t, `"message":"handler ready"`, test.starts)
			}
			h.stop()
			h.summary()
			if got := strings.Count(both.text(), `"message":"handler started"`); got != test.starts {
				t.Errorf("handler started %d times, want %d", got, test.starts)
			}
			if got := strings.Count(both.text(), `"result":`); got != 1 || !strings.Contains(both.text(), `"result":"`+test.result) {
				t.Errorf("%d results, want one: %s", got, test.result)
			}
		})
	}
}
