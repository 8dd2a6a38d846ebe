package operation_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

const drillURL = "https://t.example/health?key=C4nary"

// TestDrill checks that a drill says of each call how it ended, with the reason of its latest failure, or that its end
// is not known, within the time that it states, and each outcome when it is recorded.
func TestDrill(t *testing.T) {
	const calls, soon = 20, 5 * time.Second
	const end = operation.DrillDeadline + 30*time.Second
	const breaker = "20 calls: not called yet: the circuit breaker of t.example is open"
	for name, c := range map[string]struct {
		does              func(string) string // nil: no app runs
		delivered, failed int
		failure           string
		said              string
		after             time.Duration
	}{
		"delivered": {does: always("deliver"), delivered: calls, said: "20 calls: delivered", after: soon},
		"failed": {
			does: always("fail"), failed: calls, failure: "rejected, status 418",
			said: "20 calls: failed: rejected, status 418", after: soon,
		},
		"some_failed": {
			does: firstOf(2, "fail", "deliver"), delivered: calls - 2, failed: 2, failure: "rejected, status 418",
			said: "18 calls: delivered\n2 calls: failed: rejected, status 418", after: soon,
		},
		"retried": {
			does: firstOf(1, "retry", "deliver"), delivered: calls - 1,
			said: "19 calls: delivered\n1 call: temporary_status, status 503; it waits for attempt 2", after: end,
		},
		"refused":  {does: always("refuse"), said: breaker, after: end},
		"not_read": {said: "no outcome is recorded yet: does the function app run?", after: end},
		"expired_after_failures": {
			does: inTurn("retry_soon", "expire"), failed: calls, failure: "temporary_status, status 503",
			said: "20 calls: temporary_status, status 503; it waits for attempt 2\n" +
				"20 calls: failed: temporary_status, status 503", after: end,
		},
		"expired_after_refusals": {
			does: inTurn("refuse", "expire"), failed: calls, failure: "target_down, status 503",
			said: breaker + "\n20 calls: failed: target_down, status 503", after: end,
		},
		"expired": {
			does: always("expire"), failed: calls, failure: "expired",
			said: "20 calls: failed: expired", after: soon,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newQueues(t, 0)
				a, reader := newApp(t, store, c.does)
				said := &notes{}
				a.Observer = said
				if c.does != nil {
					reader.start(t)
				}
				began := time.Now()
				r, err := a.Drill(t.Context(), operation.Drill{URL: drillURL, Count: calls})
				if took := time.Since(began); took > c.after || err != nil {
					t.Errorf("it took %v: %v", took, err)
				}
				if r.Sent != calls || r.Delivered != c.delivered || r.Failed != c.failed || r.Missing == nil ||
					*r.Missing != calls-c.delivered-c.failed || len(r.Apps) != 1 {
					t.Errorf("%+v", r)
				}
				if r.Failures[c.failure] != c.failed || len(r.Failures) != min(c.failed, 1) {
					t.Errorf("failures %v, want %d of %q", r.Failures, c.failed, c.failure)
				}
				if got := strings.Join(said.said[1:], "\n"); !maps.Equal(countLines(got), countLines(c.said)) {
					t.Errorf("it said\n%s\nwant\n%s", got, c.said)
				}
			})
		})
	}
}

// inTurn returns a result for the first delivery of each message, and another for the later ones.
func inTurn(what, then string) func(string) string {
	var mu sync.Mutex
	seen := map[string]bool{}
	return func(requestID string) string {
		mu.Lock()
		defer mu.Unlock()
		if seen[requestID] {
			return then
		}
		seen[requestID] = true
		return what
	}
}

// countLines adds up the calls of lines with the same outcome, which are read as they are recorded.
func countLines(lines string) map[string]int {
	counts := map[string]int{}
	for line := range strings.SplitSeq(lines, "\n") {
		number, outcome, _ := strings.Cut(line, " call")
		n, err := strconv.Atoi(number)
		if err != nil {
			counts[line] = 1
			continue
		}
		counts[strings.TrimPrefix(strings.TrimPrefix(outcome, "s"), ": ")] += n
	}
	return counts
}

// TestDrillMessages checks that the calls of a drill are known as such, change nothing, and do not stay.
func TestDrillMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueues(t, 0)
		a, _ := newApp(t, store, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // Ctrl-C
		defer cancel()
		r, err := a.Drill(ctx, operation.Drill{URL: drillURL, Count: 3, Priority: 2})
		if err != nil || r.Missing != nil || r.Pending() != 3 || r.Queue != "async-caller-2" {
			t.Errorf("%+v, %v", r, err)
		}
		if text, err := json.Marshal(r); err != nil || strings.Contains(string(text), "C4nary") {
			t.Errorf("%s, %v", text, err)
		}
		for n, m := range store.All(r.Queue) {
			content, err := storage.Base64.Decode(m.Text)
			if err != nil {
				t.Fatal(err)
			}
			e, err := envelope.Parse(content)
			if err != nil {
				t.Fatal(err)
			}
			wantID := fmt.Sprint(r.RequestIDs, n+1)
			if !strings.HasPrefix(wantID, "drill-") || e.RequestID != wantID || e.Call.Method != "GET" || e.Run == "" ||
				e.GiveUp != envelope.GiveUpDrop || e.Deadline.Sub(r.Began) > operation.DrillDeadline+time.Second ||
				e.Deadline.After(r.Until) {
				t.Errorf("%s", content)
			}
		}
	})
}

// TestDrillHomePage checks which app is called without a URL.
func TestDrillHomePage(t *testing.T) {
	shop := []string{"shop"}
	const unique = "shop-d7h2cbc4e.westeurope-01.azurewebsites.net"
	const unknownHost = "has recorded no host name below azurewebsites.net"
	for name, c := range map[string]struct {
		// recorded is the host name in the heartbeats, host the one that is called.
		apps, stopped           []string
		recorded, host, refused string
	}{
		"app":         {apps: shop, recorded: "Shop.azurewebsites.net", host: "shop.azurewebsites.net"},
		"unique_name": {apps: shop, recorded: unique, host: unique},
		"china":       {apps: shop, recorded: "shop.chinacloudsites.cn", host: "shop.chinacloudsites.cn"},
		"government":  {apps: shop, recorded: "shop.azurewebsites.us", host: "shop.azurewebsites.us"},
		"beside_stopped": {
			apps: shop, stopped: []string{"old"}, recorded: "shop.azurewebsites.net",
			host: "shop.azurewebsites.net",
		},
		"local":     {apps: []string{"local"}, recorded: "localhost:7071", refused: unknownHost},
		"older":     {apps: shop, refused: "the app shop has recorded no host name"},
		"several":   {apps: []string{"one", "two"}, refused: "2 apps run on the account, such as one, two"},
		"stopped":   {stopped: []string{"old"}, refused: "no app runs on the account"},
		"hostile":   {apps: shop, recorded: "evil.example", refused: unknownHost},
		"suffix":    {apps: shop, recorded: "evil-azurewebsites.net", refused: unknownHost},
		"path":      {apps: shop, recorded: "evil.example/shop.azurewebsites.net", refused: unknownHost},
		"user":      {apps: shop, recorded: "shop@evil.azurewebsites.net", refused: unknownHost},
		"port":      {apps: shop, recorded: "shop.azurewebsites.net:25", refused: unknownHost},
		"no_domain": {apps: shop, recorded: ".azurewebsites.net", refused: unknownHost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newQueues(t, 0)
				a, _ := newApp(t, store, nil)
				table := &memory.Table{}
				a.Account.Table = table
				beat := func(apps []string) {
					for _, app := range apps {
						beating := heartbeat.App{Name: app, HostName: c.recorded}
						if err := heartbeat.Beat(t.Context(), table, beating, functionapp.MonitorTimer); err != nil {
							t.Fatal(err)
						}
					}
				}
				beat(c.stopped)
				advance(time.Hour)
				beat(c.apps)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				r, err := a.Drill(ctx, operation.Drill{Count: 1})
				if c.refused == "" {
					if err != nil || r.Host != c.host || r.Sent != 1 {
						t.Errorf("%+v, %v", r, err)
					}
					return
				}
				wantError(t, err, c.refused, "`async-caller drill --url URL`")
				if !errors.Is(err, operation.ErrNoCall) || len(store.All(mainQueue)) > 0 {
					t.Errorf("%+v, %v", r, err)
				}
			})
		})
	}
}

// TestDrillRefused checks that nothing is sent if there is no call, or if its outcome could not be known, and that a
// drill that is interrupted before it sends says so.
func TestDrillRefused(t *testing.T) {
	call := operation.Drill{URL: drillURL, Count: 1}
	ended, end := context.WithCancel(t.Context())
	end()
	for name, c := range map[string]struct {
		ctx   context.Context
		drill operation.Drill
		off   bool
		want  error
		word  string
	}{
		"not_recorded": {t.Context(), call, true, operation.ErrNoOutcomes, "a drill is not possible"},
		"url":          {t.Context(), operation.Drill{URL: "t.example", Count: 1}, false, operation.ErrNoCall, "call.url"},
		"priority": {
			t.Context(), operation.Drill{URL: drillURL, Count: 1, Priority: 11}, false, operation.ErrNoCall, "priority",
		},
		"interrupted": {ended, call, false, context.Canceled, ""},
	} {
		store := newQueues(t, 0)
		a, _ := newApp(t, store, nil)
		if c.off {
			a.Outcomes = nil
		}
		r, err := a.Drill(c.ctx, c.drill)
		wantError(t, err, c.word)
		if !errors.Is(err, c.want) || r.Sent > 0 || len(store.All(mainQueue)) > 0 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// TestDrillUnread checks that calls are not reported as missing if the table cannot be read any more.
func TestDrillUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := newApp(t, newQueues(t, 0), nil)
		table := a.Outcomes.(*memory.Table)
		time.AfterFunc(time.Minute, func() { table.Fail(errors.New("away")) })
		r, err := a.Drill(t.Context(), operation.Drill{URL: drillURL, Count: 2})
		wantError(t, err, "read the outcomes", "away")
		if r.Missing != nil || r.Pending() != 2 {
			t.Errorf("%+v", r)
		}
	})
}
