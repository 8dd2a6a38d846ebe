package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// testSession is a session with an account in memory and captured output.
type testSession struct {
	*session
	store       *memory.Queues
	stdout, err bytes.Buffer
}

func newTestSession(t *testing.T, contents ...string) *testSession {
	t.Helper()
	d := &testSession{store: memory.New()}
	for _, name := range []string{"async-caller", "async-caller-poison"} {
		if err := d.store.Create(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	for _, content := range contents {
		if _, err := d.store.Put(t.Context(), "async-caller-poison",
			storage.Item{Text: storage.Base64.Encode([]byte(content))}); err != nil {
			t.Fatal(err)
		}
	}
	p := &sharedFlags{
		group: "calls",
		env:   Env{Stdin: strings.NewReader(""), Stderr: &d.err, out: &output{Writer: &d.stdout}},
		runs:  filepath.Join(t.TempDir(), "runs"), yes: true,
	}
	d.session = p.newSession()
	d.account = &account.Account{
		Store: d.store, Name: "test", AppQueues: []string{"async-caller"}, OnScanned: d.progress.Scanned,
		Rules: message.Rules{
			Encoding: storage.Base64,
			Decision: decision.Rules{Expiration: 168 * time.Hour, GiveUp: envelope.GiveUpDeadLetter},
		},
	}
	d.operations = &operation.Operations{Account: d.account, Journals: p.folder(), Observer: d.progress}
	return d
}

func ofPoison(source account.Source) sources { return sources{poison: &source} }

func ofScheduled(source account.Source) sources { return sources{scheduled: &source} }

func dead(n int) []string {
	contents := make([]string, n)
	for i := range contents {
		contents[i] = fmt.Sprintf(`{"asyncCaller":1,"requestId":"r%d","call":{"url":"https://t.example/%d"}}`, i, i)
	}
	return contents
}

func codeOf(err error) int {
	if coded, ok := errors.AsType[*codeError](err); ok {
		return coded.code
	}
	if err != nil {
		return exitFailed
	}
	return exitDone
}

func (d *testSession) mustPlan(t *testing.T) *operation.Plan {
	t.Helper()
	plan, err := d.operations.PlanRetryPoison(t.Context(), account.Source{}, operation.Retry{})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// TestExecuteInterrupted checks that a run that Ctrl-C interrupts before the first message can be resumed.
func TestExecuteInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestSession(t, dead(3)...)
		plan := d.mustPlan(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := d.execute(ctx, plan, nil)
		if codeOf(err) != exitFailed ||
			!strings.Contains(err.Error(), "interrupted\ncontinue: `async-caller runs resume "+plan.Run+"`") {
			t.Errorf("%d: %v", codeOf(err), err)
		}
	})
}

func TestResultError(t *testing.T) {
	d := newTestSession(t)
	away := errors.New("storage is away")
	type done = run.Result
	const moved, resume = "not moved: ", "continue: `async-caller runs resume RUN`"
	for name, test := range map[string]struct {
		result done
		err    error
		code   int
		want   string
	}{
		"all":               {done{Total: 3, Done: 3}, nil, exitDone, ""},
		"skipped":           {done{Command: "move", Total: 3, Done: 1, Skipped: 2}, nil, exitPartly, moved + "2"},
		"all_skipped":       {done{Command: "move", Total: 1, Skipped: 1}, nil, exitPartly, moved + "1 message"},
		"unknown":           {done{Command: "undo", Total: 1, Skipped: 1, Unknown: 1}, nil, exitPartly, "not undone"},
		"twice":             {done{Total: 3, Done: 3, PossibleDuplicates: 1}, nil, exitPartly, "perhaps there twice"},
		"stopped_at_end":    {done{Total: 2, Done: 2, Stopped: "they wait"}, nil, exitPartly, "stopped: they wait"},
		"interrupted":       {done{Total: 3, Done: 1, Left: 2}, nil, exitPartly, "interrupted\n" + resume},
		"interrupted_early": {done{Total: 3, Left: 3}, nil, exitFailed, "interrupted\n"},
		"in_both_places":    {done{Total: 1, NotDeleted: 1}, nil, exitPartly, "not all messages are done\n"},
		"storage":           {done{Total: 3, Done: 1, Left: 2}, away, exitPartly, "storage is away\n" + resume},
		"storage_at_end":    {done{Total: 3, Done: 3}, away, exitPartly, "storage is away"},
		"all_gone": {
			done{Command: "undo", Total: 1, Skipped: 1},
			nil, exitNothing,
			"nothing was undone; delivered, received or moved since: 1 message",
		},
		"some_gone": {
			done{Command: "undo", Total: 3, Done: 1, Skipped: 2},
			nil, exitPartly,
			"not undone; delivered, received or moved since: 2 messages",
		},
		"stopped": {
			done{Total: 9, Done: 2, Left: 7, Stopped: "2 came back"},
			nil, exitPartly,
			"stopped: 2 came back\n" + resume + " (7 left)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if strings.HasPrefix(name, "interrupted") {
				cancel()
			}
			test.result.Run = "RUN"
			err := d.incomplete(ctx, operation.Result{Result: test.result}, test.err)
			if got := codeOf(err); got != test.code || err != nil && !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("exit code %d, %v, want %d, %s", got, err, test.code, test.want)
			}
		})
	}
}

func TestReport(t *testing.T) {
	d := newTestSession(t)
	why := []string{"a", "b", "c", "d", "e", "f", "g"}
	result := operation.Result{Result: run.Result{
		Run: "RUN", Command: "move", Account: "acme", Total: 1500, Done: 1490, Skipped: 10, Unknown: 2, Why: why,
		PossibleDuplicates: 5,
		DuplicateMessages: []operation.Name{
			{Queue: "a", ID: "AAAAAAAA-1", RequestID: "order-1"},
			{Queue: "a", ID: "BBBBBBBB-1"},
			{Queue: "a"},
			{Queue: "b"},
		},
	}}
	_ = d.report(t.Context(), result, false, nil)
	want := "moved 1,490 of 1,500 in acme\n  skipped: a\n  skipped: b\n  skipped: c\n  skipped: d\n  skipped: " +
		"e\n  and 5 more\n" +
		"result not known: 2 messages\n" +
		"warning: 5 messages: perhaps there twice, after a kill or a lost answer: order-1 (aaaaaaaa) on a, " +
		"bbbbbbbb on a, invalid on a, …\n" +
		"undo: `async-caller runs undo RUN`\n"
	if got := d.err.String(); got != want {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
}

// TestReportHidden: a run that is not finished says until when its messages are invisible, unless they wait anyway.
func TestReportHidden(t *testing.T) {
	for command, want := range map[string]bool{"move": true, "requeue": true, "delete": true, "cancel": false} {
		for state, result := range map[string]run.Result{
			"interrupted": {Run: "RUN", Command: command, Total: 2, Done: 1, Left: 1},
			"both":        {Run: "RUN", Command: command, Total: 2, Done: 1, NotDeleted: 1},
			"finished":    {Run: "RUN", Command: command, Total: 1, Done: 1},
			"stopped":     {Run: "RUN", Command: command, Total: 2, Left: 2, Stopped: "they wait"},
		} {
			d := newTestSession(t)
			_ = d.report(t.Context(), operation.Result{Result: result}, false, nil)
			isLeft := state == "interrupted" || state == "both"
			if strings.Contains(d.err.String(), "are invisible until 2") != (want && isLeft) {
				t.Errorf("%s %s: %s", command, state, d.err.String())
			}
		}
	}
}

// TestRefusals checks that equal reasons are printed once, and only the first of many.
func TestRefusals(t *testing.T) {
	d := newTestSession(t)
	plan := &operation.Plan{Result: operation.Result{Result: run.Result{Command: "requeue"}, Refused: 30}}
	for i := range 14 {
		why := "the same"
		if i >= 6 {
			why = fmt.Sprint("another ", i)
		}
		plan.Refusals = append(plan.Refusals,
			operation.Refusal{Message: message.Message{ID: fmt.Sprintf("%08d-rest", i)}, Why: why})
	}
	d.announce(plan)
	want := "30 messages cannot be retried:\n  00000000, 00000001, 00000002, …: the same\n  00000006: " +
		"another 6\n  00000007: another 7\n" +
		"  00000008: another 8\n  00000009: another 9\n  and 20 more\n"
	if got := d.err.String(); got != want {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
}

func TestPrintRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		now := time.Now()
		line := func(id, state string, age time.Duration, total, done int, by journal.Operator) operation.RunSummary {
			_, command, _ := strings.Cut(id[16:], "-")
			return operation.RunSummary{Here: by.Machine == "", Summary: run.Summary{
				Run: id, Command: command, At: now.Add(-age), Total: total, Done: done, State: state, Operator: by,
			}}
		}
		ben, ada := journal.Operator{User: "ben"}, journal.Operator{User: "ada", Machine: "vm\x1b"}
		const move, undo = "20261121-110000-move-bbbb", "20261121-115900-undo-aaaa"
		undoing := line(undo, "finished", time.Minute, 3, 3, ben)
		undoing.Of = move
		undone := line(move, "undone", time.Hour, 3, 3, ben)
		undone.UndoneBy = undo
		unreadable := operation.RunSummary{Here: true, Summary: run.Summary{
			Run: "20261119-110000-requeue-dddd", State: "unreadable", Problem: "line 3 is broken",
		}}
		typed := ada
		typed.CommandLine = "calls retry --text … \x1b"
		lost := line("20261117-110000-move-ffff", run.Running, 96*time.Hour, 2, 0, typed)
		lost.Seen = now.Add(-4 * time.Minute)
		running := line("20261116-110000-move-gggg", run.Running, -time.Hour, 2, 0, ada)
		running.Seen = now.Add(-time.Minute)
		printRuns(&out, []operation.RunSummary{
			undoing, undone, line("20261119-120000-requeue-cccc", "interrupted", 48*time.Hour, 100000, 99999, ben),
			unreadable, line("20261118-110000-delete-eeee", "finished", 72*time.Hour, 2, 2, ada), lost, running,
		}, now)
		want := `RUN                            AGE  MESSAGES  BY         STATE
20261121-115900-undo-aaaa       1m         3  (ben@)     finished, undo of 20261121-110000-move-bbbb
20261121-110000-move-bbbb       1h         3  (ben@)     undone by 20261121-115900-undo-aaaa
20261119-120000-requeue-cccc    2d  99999/100000  (ben@)     interrupted
20261119-110000-requeue-dddd     -         -  -          unreadable: line 3 is broken
20261118-110000-delete-eeee     3d         2  (ada@vm�)  finished
20261117-110000-move-ffff       4d       0/2  (ada@vm�)  running, last seen 4m ago
  calls retry --text … �
20261116-110000-move-gggg       0s       0/2  (ada@vm�)  running
`
		if got := out.String(); got != want {
			t.Errorf("\n%s\nwant\n%s", got, want)
		}
	})
}

// TestSplitQuoted: without a shell, the program of an editor may be in double quotes.
func TestSplitQuoted(t *testing.T) {
	for command, want := range map[string]string{
		"vi": "vi", "code -w": "code|-w", `"C:\a b\ed.exe"`: `C:\a b\ed.exe`,
		`"C:\My Editor\ed.exe" -w  -n`: `C:\My Editor\ed.exe|-w|-n`,
	} {
		if got := strings.Join(splitQuoted(command), "|"); got != want {
			t.Errorf("%s: %s, want %s", command, got, want)
		}
	}
}
