package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/cobra"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/storage"
)

// TestWithExitCode checks the exit code of each kind of error.
func TestWithExitCode(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	own := &codeError{exitPartly, account.ErrNothing}
	for name, test := range map[string]struct {
		ctx  context.Context
		err  error
		want int
	}{
		"other":         {t.Context(), errors.New("storage is away"), exitFailed},
		"busy":          {t.Context(), journal.ErrBusy, exitFailed},
		"live":          {t.Context(), account.ErrAppQueue, exitUsage},
		"other_queue":   {t.Context(), operation.ErrOtherQueue, exitUsage},
		"other_account": {t.Context(), run.ErrOtherAccount, exitUsage},
		"ambiguous":     {t.Context(), account.ErrAmbiguous, exitUsage},
		"no_queue":      {t.Context(), storage.ErrNoQueue, exitUsage},
		"file_exists":   {t.Context(), fs.ErrExist, exitUsage},
		"nothing":       {t.Context(), account.ErrNothing, exitNothing},
		"nothing_left":  {t.Context(), run.ErrNothingLeft, exitNothing},
		"no_run":        {t.Context(), journal.ErrNoRun, exitNothing},
		"own_code":      {t.Context(), own, exitPartly},
		"interrupted":   {ended, context.Canceled, exitFailed},
	} {
		t.Run(name, func(t *testing.T) {
			err := withExitCode(test.ctx, fmt.Errorf("wrapped: %w", test.err))
			if got := codeOf(err); got != test.want {
				t.Errorf("%d, want %d: %v", got, test.want, err)
			}
		})
	}
}

// parsedSelection returns a selection after it parsed its flags.
func parsedSelection(t *testing.T, declare func(*flagSet) *selection, args ...string) *selection {
	t.Helper()
	command := &cobra.Command{}
	s := declare(flagsOf(command))
	if err := command.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSelection: repeated flags add up, statuses are numbers, classes and ranges, and times are absolute or relative.
func TestSelection(t *testing.T) {
	got, _, err := parsedSelection(t, selectCalls, "--queue", "a-poison,b-poison", "--queue", "c-poison",
		"--status", "503,none", "--status", "5xx,4XX,50x,429-431,4xx-502", "--since", "2h",
		"--until", "2026-11-21T12:00:00Z", "--group", "error=a=b", "--limit", "3", "--force").source(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := account.Source{
		Queues: []string{"a-poison", "b-poison", "c-poison"}, Limit: 3, Force: true,
		Filter: message.Filter{
			Statuses: []bounds.Range[int]{
				bounds.New(503, 503), bounds.New(0, 0), bounds.New(500, 599), bounds.New(400, 499),
				bounds.New(500, 509), bounds.New(429, 431), bounds.New(400, 502),
			},
			Since: time.Now().Add(-2 * time.Hour), Until: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC),
			Group: &message.Group{By: message.ByError, Key: "a=b"},
		},
	}
	same := cmp.Options{
		cmpopts.IgnoreUnexported(account.Source{}), cmpopts.EquateEmpty(), cmp.AllowUnexported(bounds.Range[int]{}),
		cmpopts.EquateApproxTime(time.Minute),
	}
	if diff := cmp.Diff(want, got, same); diff != "" {
		t.Error(diff)
	}
}

// TestSelectionRefused checks that all problems are reported at once, with the exit code for wrong usage.
func TestSelectionRefused(t *testing.T) {
	_, _, err := parsedSelection(t, selectCalls, "--status", "5x,99,xxx,5xxx,504-500,-1", "--since", "soon",
		"--until", "-1h", "--limit", "-1",
		"--group", "x", "--queue", "UP", "--host", "", "--method", "GET,", "--text", "").source([]string{""})
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{
		`--status: "5x": want a number from 100 to 999, a class such as 5xx, a range such as 500-504, or none`,
		`"99": want a number`, `"xxx": want a number`, `"5xxx": want a number`, `"504-500": want a number`,
		`"-1": want a number`,
		`--since: "soon": want a time such as 2026-01-31T12:00:00Z, or how long ago it was, such as 2h`,
		`--until: "-1h": want a time`, `--limit: "-1": want a whole number of at least 1`,
		`--group: "x" is not a group`,
		`--queue: "UP" is not a queue name`, "--host: want a host such as example.com, ",
		"--method: is empty", "--text: is empty", "an id is empty",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %v", part, err)
		}
	}
	if codeOf(err) != exitUsage {
		t.Errorf("%#v", err)
	}
}

// TestSelectionText checks that a journal says how messages were selected, except the text that they contain.
func TestSelectionText(t *testing.T) {
	selected := parsedSelection(t, requireCalls, "--state", "poison", "--status", "503,none", "--host", "a.example",
		"--status", "429", "--text", "CANARY",
		"--all", "--method", "GET,PUT", "--force")
	want := `r1 --state poison --status "503,none,429" --host a.example --text … --all --method "GET,PUT"`
	if got := selected.text([]string{"r1"}); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}
