package cli

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/poison"
	"asynccaller/handler/internal/poison/inspect"
	"asynccaller/handler/internal/queue"
)

func TestPrintRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		now := time.Now()
		printRuns(&out, []poison.RunSummary{
			{Run: "20261121-115900-undo-aaaa", Command: "undo", At: now.Add(-time.Minute), Total: 3, Done: 3, State: "finished", Of: "20261121-110000-move-bbbb"},
			{Run: "20261121-110000-move-bbbb", Command: "move", At: now.Add(-time.Hour), Total: 3, Done: 3, State: "undone", UndoneBy: "20261121-115900-undo-aaaa"},
			{Run: "20261119-120000-requeue-cccc", Command: "requeue", At: now.Add(-48 * time.Hour), Total: 100000, Done: 99999, State: "interrupted"},
			{Run: "20261119-110000-requeue-dddd", State: "unreadable", Problem: "line 3 is broken"},
		})
		want := `RUN                           COMMAND      WHEN     MESSAGES  STATE
20261121-115900-undo-aaaa     undo       1m ago            3  finished, undo of 20261121-110000-move-bbbb
20261121-110000-move-bbbb     move       1h ago            3  undone by 20261121-115900-undo-aaaa
20261119-120000-requeue-cccc  requeue    2d ago  99999/100000  interrupted
20261119-110000-requeue-dddd  -               -            -  unreadable: line 3 is broken
`
		if got := out.String(); got != want {
			t.Errorf("\n%s\nwant\n%s", got, want)
		}
	})
}

// TestCompleteRuns checks that a run completes the first argument only.
func TestCompleteRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestSession(t, dead(1)...)
		plan := d.mustPlan(t)
		if err := d.execute(t.Context(), plan, confirmation{yes: true}); err != nil {
			t.Fatal(err)
		}
		complete := d.completeRuns
		if got, _ := complete(nil, nil, ""); !slices.Equal(got, []string{plan.Run}) {
			t.Errorf("%q", got)
		}
		if got, _ := complete(nil, []string{plan.Run}, ""); len(got) > 0 {
			t.Errorf("after a run: %q", got)
		}
	})
}

// TestWatch checks that messages are shown as they arrive, until the limit or an interruption.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestSession(t, dead(1)...)
		arrive := func(id string) {
			content := `{"asyncCaller":1,"requestId":"` + id + `","call":{"url":"https://t.example/` + id + `"}}`
			if _, err := d.store.Put(t.Context(), "async-caller-poison", queue.Item{Text: queue.Base64.Encode([]byte(content))}); err != nil {
				t.Error(err)
			}
		}
		time.AfterFunc(7*time.Second, func() { arrive("first") })
		time.AfterFunc(12*time.Second, func() { arrive("second"); arrive("third") })
		if err := d.watch(t.Context(), poison.Source{Limit: 2}, 5*time.Second); err != nil {
			t.Fatal(err)
		}
		out := d.stdout.String()
		if !strings.Contains(out, "GET t.example/first\n") || strings.Contains(out, "t.example/0\n") || strings.Count(out, "GET t.example/") != 2 {
			t.Error(out)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := d.watch(ctx, poison.Source{}, 5*time.Second); err != nil {
			t.Errorf("interrupted: %v", err)
		}
	})
}

// TestListGroups checks that the suggested command is quoted for a shell.
func TestListGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestSession(t, `{"asyncCaller":1,"call":{"url":"https://t.example/"},"deadLetter":{"reason":"it's $(reboot)"}}`)
		if err := d.listGroups(t.Context(), poison.Source{}, inspect.ByReason); err != nil {
			t.Fatal(err)
		}
		if got, want := d.err.String(), "1 message\nlist the first group: `async-caller poison list --group 'reason=it'\\''s $(reboot)'`\n"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
