package poison

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"asynccaller/handler/internal/operate/run/journal"
)

// Backup says which copy of deleted messages to keep.
type Backup struct {
	// Path is the file to export them to; empty for one in the folder of journals. With None no copy is kept, so
	// the run cannot be undone.
	Path string
	None bool
}

// PlanDelete prepares to delete messages, and exports them.
func (a *Account) PlanDelete(ctx context.Context, s Source, b Backup) (*Plan, error) {
	run := journal.Run{Command: "delete"}
	if b.None {
		return a.plan(ctx, run, s, func(context.Context, Found) (journal.Step, error) {
			return journal.Step{Take: &journal.Take{NoText: true}}, nil
		})
	}
	file, err := a.createBackup(b.Path)
	if err != nil {
		return nil, fmt.Errorf("export before deleting: %w", err)
	}
	defer file.Close()
	out := bufio.NewWriter(file)
	p, err := a.plan(ctx, run, s, func(_ context.Context, f Found) (journal.Step, error) {
		return journal.Step{Take: &journal.Take{Text: f.Text}}, WriteRecord(out, f)
	})
	if err == nil {
		p.Backup = file.Name()
		if err = errors.Join(out.Flush(), file.Sync()); err == nil {
			return p, nil
		}
		p.Discard(ctx)
	}
	_ = os.Remove(file.Name())
	return nil, fmt.Errorf("export before deleting: %w", err)
}

func (a *Account) createBackup(path string) (*os.File, error) {
	if path != "" {
		return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the user names it
	}
	if err := os.MkdirAll(string(a.Runs), 0o700); err != nil {
		return nil, err
	}
	return os.CreateTemp(string(a.Runs), time.Now().UTC().Format("20060102-150405")+"-deleted-*.export")
}
