package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"testing"
	"time"

	"asynccaller/handler/internal/poison"
	"asynccaller/handler/internal/poison/journal"
	"asynccaller/handler/internal/queue"
)

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour: "0s", 0: "0s", 999 * time.Millisecond: "0s", time.Second: "1s", 59 * time.Second: "59s", time.Minute: "1m",
		59*time.Minute + 59*time.Second: "59m", time.Hour: "1h", 47 * time.Hour: "47h", 48 * time.Hour: "2d", 7*24*time.Hour - 1: "6d",
		400 * 24 * time.Hour: "400d", 730 * 24 * time.Hour: "2y",
	} {
		if got := age(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

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

func TestLiveQueues(t *testing.T) {
	names, err := liveQueues(t.TempDir(), nil) // no app there
	if err != nil || len(names) != 11 || !slices.Contains(names, "async-caller") || !slices.Contains(names, "async-caller-10") {
		t.Errorf("%v, %v", names, err)
	}
	names, err = liveQueues("../../..", nil) // what we ship
	if err != nil || len(names) != 11 {
		t.Errorf("%v, %v", names, err)
	}
}

// TestWithCode: scripts go by the code that belongs to what happened.
func TestWithCode(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	own := &codeError{exitPartly, poison.ErrNothing}
	for name, test := range map[string]struct {
		ctx  context.Context
		err  error
		want int
	}{
		"none":          {t.Context(), nil, exitDone},
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
			err := test.err
			if err != nil && test.want != exitPartly {
				err = fmt.Errorf("wrapped: %w", err)
			}
			got := exitDone
			if err = withCode(test.ctx, err); err != nil {
				got = exitFailed
				if coded, ok := errors.AsType[*codeError](err); ok {
					got = coded.code
				}
			}
			if got != test.want {
				t.Errorf("%d, want %d: %v", got, test.want, err)
			}
		})
	}
}
