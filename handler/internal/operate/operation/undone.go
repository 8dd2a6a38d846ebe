package operation

import (
	"context"
	"errors"
	"fmt"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// errUndoneElsewhere means that a command with other journals has undone the run.
var errUndoneElsewhere = fmt.Errorf("%w: it was undone with the journals of another machine or folder",
	run.ErrNothingLeft)

// undoneRow is the row that says by whom, and by which undo, the run with its ID was undone.
type undoneRow struct {
	storage.Key

	By   string `row:"by"`
	Undo []byte `row:"content"`
}

// checkUndone returns an errUndoneElsewhere if the row of a run says so, and an error if that is not known. Without
// permission to use the table the journals alone decide.
func (op *Operations) checkUndone(ctx context.Context, id string) error {
	return op.askUndone(ctx, id, func(context.Context, undoneRow) error { return nil })
}

// claimUndo writes the row that says which undo of a run begins, or returns an errUndoneElsewhere if there is one of
// another undo. The journals of this folder have said that the run may be undone.
func (op *Operations) claimUndo(ctx context.Context, id, undo string) error {
	return op.askUndone(ctx, id, func(ctx context.Context, found undoneRow) error {
		version, err := rows.Replace(ctx, op.Outcomes, undoneRow{
			Key: storage.Key{Partition: record.UndonePartition, ID: id, Version: found.Version},
			By:  op.Operator.User + "@" + op.Operator.Machine, Undo: []byte(undo),
		})
		if err == nil && version == "" {
			err = errors.New("another command has written the row at the same time") // it is read again
		}
		return err
	})
}

// askUndone reads the row of a run, and passes one that does not forbid an undo. A try without an answer may have
// written the row.
func (op *Operations) askUndone(
	ctx context.Context, id string, allowed func(ctx context.Context, found undoneRow) error,
) error {
	if op.Outcomes == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, account.ReachTimeout)
	defer cancel()
	err := storage.Persist(ctx, account.ReachTimeout/3, func(ctx context.Context) error {
		row, found, err := rows.Get[undoneRow](ctx, op.Outcomes, record.UndonePartition, id)
		undo := string(row.Undo)
		switch {
		case err != nil:
			return err
		case found && !op.engine().HasUndoneNothing(undo):
			return fmt.Errorf("%s: %w by %s, run %s; if that is not so, repeat the command with "+
				"ASYNC_CALLER_TABLES=off",
				id, errUndoneElsewhere, text.Line(row.By, maxShown), text.Line(undo, maxShown))
		}
		return allowed(ctx, row)
	}, storage.ErrRefused, errUndoneElsewhere)
	switch {
	case errors.Is(err, storage.ErrDenied):
		return nil
	case err == nil, errors.Is(err, errUndoneElsewhere):
		return err
	}
	return fmt.Errorf("%s: not known whether it was undone with the journals of another machine or folder: %w; "+
		"try again, or set ASYNC_CALLER_TABLES=off to ask only the journals here", id, err)
}

// releaseUndo removes the row of a run of which an undo has restored nothing, so that it can be undone elsewhere.
func (op *Operations) releaseUndo(ctx context.Context, id string, done run.Result) {
	if op.Outcomes == nil || !done.Finished() || done.Done+done.Unknown > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), runRowTimeout)
	defer cancel()
	key := storage.Key{Partition: record.UndonePartition, ID: id}
	_ = op.Outcomes.Delete(ctx, []storage.Key{key}) // the journals here say the same
}
