package doctor

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/storage"
)

func TestHeartbeats(t *testing.T) {
	now := time.Date(2026, 11, 23, 3, 0, 0, 0, time.UTC)
	app := func(name string, since, monitor, keeper time.Duration) heartbeat.App {
		app := heartbeat.App{Name: name, Since: now.Add(-since), Monitor: now.Add(-monitor)}
		if keeper >= 0 {
			app.Keeper = now.Add(-keeper)
		}
		return app
	}
	const never, week = -1, 7 * 24 * time.Hour
	host, worker := app("shop", week, 0, 0), app("shop-w", week, 0, 0)
	host.Adapter, host.Queues = heartbeat.Host, []string{"a-1", "a-2"}
	worker.Adapter, worker.Queues = heartbeat.Worker, []string{"a-2"}
	for name, test := range map[string]struct {
		apps []heartbeat.App
		want []string
	}{
		"none": {nil, []string{"warning AC-monitor has not run yet, or cannot record that it runs"}},
		"fresh": {
			[]heartbeat.App{app("local", time.Minute, 20*time.Second, never)},
			[]string{"ok local: AC-monitor ran 20s ago, AC-poison-keeper has not run yet"},
		},
		"old": {
			[]heartbeat.App{app("local", week, 3*time.Minute, 125*time.Minute)},
			[]string{"ok local: AC-monitor ran 3m ago, AC-poison-keeper ran 2h5m ago"},
		},
		"ahead": {
			[]heartbeat.App{app("local", week, -time.Minute, 0)},
			[]string{"ok local: AC-monitor ran 0s ago, AC-poison-keeper ran 0s ago"},
		},
		"no_calls": {
			[]heartbeat.App{{Name: "shop", Since: now, Monitor: now, Problem: "hold mode: x"}},
			[]string{
				"ok shop: AC-monitor ran 0s ago, AC-poison-keeper has not run yet",
				"broken shop makes no calls: hold mode: x",
			},
		},
		"late_keeper": {
			[]heartbeat.App{app("local", week, time.Minute, 3*time.Hour)},
			[]string{"broken local: AC-monitor ran 1m ago, AC-poison-keeper ran 3h ago: " +
				"the app, or its AC-poison-keeper, does not run"},
		},
		"no_keeper": {
			[]heartbeat.App{app("local", 126*time.Minute, time.Minute, never)},
			[]string{"broken local: AC-monitor ran 1m ago, AC-poison-keeper has not run yet: " +
				"the app, or its AC-poison-keeper, does not run"},
		},
		"two_names": {
			[]heartbeat.App{host, worker},
			[]string{
				"ok shop (host): AC-monitor ran 0s ago, AC-poison-keeper ran 0s ago",
				"ok shop-w (worker): AC-monitor ran 0s ago, AC-poison-keeper ran 0s ago",
				"warning the apps shop (host), shop-w (worker) serve the same queues, a-2: each of them counts limits " +
					"of targets on its own",
			},
		},
		"one_of_two": {
			[]heartbeat.App{app("billing", week, 0, 0), app("shop", week, 10*time.Minute, 10*time.Minute)},
			[]string{
				"ok billing: AC-monitor ran 0s ago, AC-poison-keeper ran 0s ago",
				"broken shop: AC-monitor ran 10m ago, AC-poison-keeper ran 10m ago: " +
					"the app, or its AC-monitor, does not run",
			},
		},
	} {
		var got []string
		for _, line := range judgeHeartbeats(test.apps, now) {
			got = append(got, string(line.State)+" "+line.Text)
			if (line.Next == "") != (line.State == OK) {
				t.Errorf("%s: next step %q", name, line.Next)
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestClock(t *testing.T) {
	for ahead, want := range map[time.Duration]State{
		0: OK, 59 * time.Second: OK, -59 * time.Second: OK, time.Minute: Warning, -14 * time.Minute: Warning,
		15 * time.Minute: Broken, -time.Hour: Broken, 1 << 62: Broken,
	} {
		if got := judgeClock(ahead); got.State != want || (got.Next == "") != (want == OK) {
			t.Errorf("%v: %+v, want %s", ahead, got, want)
		}
	}
}

func TestExpiry(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	const week = 7 * 24 * time.Hour
	for left, want := range map[time.Duration]State{
		-time.Second: OK, time.Second: Warning, week: Warning, week + time.Second: OK,
	} {
		if got := judgeExpiry(now.Add(left), now); got.State != want || (got.Next == "") != (want == OK) {
			t.Errorf("%v: %+v, want %s", left, got, want)
		}
	}
	if got := judgeExpiry(time.Time{}, now); got.State != OK {
		t.Errorf("a SAS without an expiry: %+v", got)
	}
}

func TestCountMiscoded(t *testing.T) {
	const object = `{"asyncCaller":1}`
	once := storage.Base64.Encode([]byte(object))
	twice := storage.Base64.Encode([]byte(once))
	for _, test := range []struct {
		encoding storage.Encoding
		text     string
		// want is the number on a queue of envelopes, routed that on the queue of a route.
		want, routed int
	}{
		{storage.Base64, once, 0, 0},
		{storage.Base64, " " + once + "\r\n", 0, 0},
		{storage.Base64, object, 1, 1},
		{storage.Base64, twice, 1, 0},
		{storage.Base64, "", 0, 0},
		{storage.Base64, storage.Base64.Encode([]byte("no object, which is for the handler to say")), 0, 0},
		{storage.None, object, 0, 0},
		{storage.None, once, 1, 0},
		{storage.None, "ping", 0, 0}, // is base64, by accident
	} {
		messages := []storage.Message{{Text: test.text}}
		got := countWronglyEncoded(test.encoding, messages, false)
		routed := countWronglyEncoded(test.encoding, messages, true)
		if got != test.want || routed != test.routed {
			t.Errorf("%s %q: %d and %d, want %d and %d", test.encoding, test.text, got, routed, test.want, test.routed)
		}
	}
}

// TestClosedAccount: doctor says that the account does not admit this machine, and does not advise roles. The answer is
// what Azure gives, which names no service: https://github.com/microsoft/AzureStorageExplorer/issues/9006.
func TestClosedAccount(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Server", "Microsoft-HTTPAPI/2.0")
		w.Header().Set("x-ms-request-id", "a020365c-101e-0052-37cd-c205c2000000")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `<?xml version="1.0" encoding="utf-8"?><Error><Code>AuthorizationFailure</Code>`+
			"<Message>This request is not authorized to perform this operation.</Message></Error>")
	}))
	defer server.Close()
	f := newFolder(t)
	f.environ = []string{fmt.Sprintf("AzureWebJobsStorage=AccountName=acct;AccountKey=a2V5;QueueEndpoint=%[1]s/acct;"+
		"TableEndpoint=%[1]s/acct;BlobEndpoint=%[1]s/acct", server.URL)}
	var closed []string
	for _, line := range f.examine() {
		if strings.HasPrefix(line.Next, "the account is closed to the address of this machine: ") {
			closed = append(closed, line.Check)
		}
		if strings.Contains(line.Next, "role") {
			t.Errorf("roles have no effect: %+v", line)
		}
	}
	if diff := cmp.Diff([]string{"queue access", "table access", "blob access"}, closed); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// TestProblems checks that each problem of a joined error is a line of its own.
func TestProblems(t *testing.T) {
	var lines []Line
	Reporter(func(l Line) { lines = append(lines, l) }).
		problems("settings", errors.Join(errors.New("one"), fmt.Errorf("two: %w", storage.ErrRefused)), "next", "fine")
	if want := []Line{
		{Broken, "settings", "one", "next"},
		{Broken, "settings", "two: storage refused", "next"},
	}; !slices.Equal(lines, want) {
		t.Errorf("%+v, want %+v", lines, want)
	}
}
