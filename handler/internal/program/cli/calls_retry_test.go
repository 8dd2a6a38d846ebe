package cli

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message/edit"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run/journal"
)

// TestRetryFlags checks that each flag sets its option.
func TestRetryFlags(t *testing.T) {
	var o retryOptions
	command := &cobra.Command{}
	flags := flagsOf(command)
	o.addTo(flags, &sharedFlags{})
	if err := command.ParseFlags([]string{
		"--canary", "5", "--rate", "50/s", "--stop-at-failure-ratio", "0.1",
		"--to", "other",
		"--fix-encoding", "--set", "priority=1", "--delete-header", "X-A", "--set-header", "X-B: 1",
		"--jq", ".", "--replace-host", "a=b",
	}); err != nil {
		t.Fatal(err)
	}
	o.check(flags, nil)
	if err := flags.err(); err != nil {
		t.Fatal(err)
	}
	if want := (journal.Pace{Canary: 5, Rate: 50, StopAt: 0.1}); o.Pace != want {
		t.Errorf("%+v, want %+v", o.Pace, want)
	}
	if o.To != "other" || !o.Edit.FixEncoding ||
		len(o.Edit.Edits) != 5 {
		t.Errorf("%+v", o)
	}
}

// TestWarningsAreLimited: an edit that gives each message another member does not flood the terminal.
func TestWarningsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestSession(t, dead(30)...)
		jq, err := edit.ParseJQ(`.["x" + .requestId] = 1`)
		if err != nil {
			t.Fatal(err)
		}
		request := operation.Retry{Edit: edit.Options{Edits: edit.Edits{jq}}}
		err = d.dryRun(t.Context(), account.Source{}, request, false)
		if !errors.Is(err, operation.ErrNoEffect) {
			t.Fatal(err)
		}
		if n := strings.Count(d.err.String(), "warning: "); n != 20 {
			t.Errorf("%d warnings, want 20:\n%s", n, &d.err)
		}
	})
}
