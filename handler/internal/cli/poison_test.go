package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"testing"

	"asynccaller/handler/internal/poison"
	"asynccaller/handler/internal/poison/journal"
	"asynccaller/handler/internal/queue"
)

func TestShellWord(t *testing.T) {
	for text, want := range map[string]string{
		"reason=expired": "reason=expired", "": "''", "route=/orders/{n}": "'route=/orders/{n}'", "it's": `'it'\''s'`,
		"$(reboot)": "'$(reboot)'", "a b": "'a b'", "`x`": "'`x`'",
	} {
		if got := shellWord(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestAccountName(t *testing.T) {
	for endpoint, want := range map[string]string{
		"https://acme.queue.core.windows.net":     "acme.queue.core.windows.net",
		"https://acme.queue.core.windows.net/":    "acme.queue.core.windows.net",
		"http://127.0.0.1:10001/devstoreaccount1": "127.0.0.1:10001/devstoreaccount1",
	} {
		if got := accountName(endpoint); got != want {
			t.Errorf("%s: %q, want %q", endpoint, got, want)
		}
	}
}

func TestAppQueues(t *testing.T) {
	names, err := appQueues(t.TempDir(), nil) // no app there
	if err != nil || len(names) != 11 || !slices.Contains(names, "async-caller") || !slices.Contains(names, "async-caller-10") {
		t.Errorf("%v, %v", names, err)
	}
	names, err = appQueues("../../..", nil) // the shipped app
	if err != nil || !slices.Contains(names, "async-caller-10") {
		t.Errorf("%v, %v", names, err)
	}
}

// TestWithExitCode checks the exit code of each kind of error.
func TestWithExitCode(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	own := &codeError{exitPartly, poison.ErrNothing}
	for name, test := range map[string]struct {
		ctx  context.Context
		err  error
		want int
	}{
		"other":         {t.Context(), errors.New("storage is away"), exitFailed},
		"busy":          {t.Context(), journal.ErrBusy, exitFailed},
		"live":          {t.Context(), poison.ErrAppQueue, exitUsage},
		"other_account": {t.Context(), poison.ErrOtherAccount, exitUsage},
		"ambiguous":     {t.Context(), poison.ErrAmbiguous, exitUsage},
		"no_queue":      {t.Context(), queue.ErrNoQueue, exitUsage},
		"file_exists":   {t.Context(), fs.ErrExist, exitUsage},
		"nothing":       {t.Context(), poison.ErrNothing, exitNothing},
		"nothing_left":  {t.Context(), poison.ErrNothingLeft, exitNothing},
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
