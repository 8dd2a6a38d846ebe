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

// errUndoBegun means that another undo of the run has begun, perhaps with other journals.
var errUndoBegun = fmt.Errorf("%w: its undo", run.ErrNothingLeft)

// undoneRow is the row that says by whom, and by which undo, the run with its ID was undone.
type undoneRow struct {
	storage.Key

	By   string `row:"by"`
	Undo []byte `row:"content"`
}

// claimUndo writes the row that says which undo of a run begins, or returns an errUndoBegun if there is one of
// another undo. The journals of this folder have said that the run may be undone. Without permission to use the table
// they alone decide.
func (op *Operations) claimUndo(ctx context.Context, id, undo string) error {
	if op.Outcomes == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, account.ReachTimeout)
	defer cancel()
	err := storage.Persist(ctx, account.ReachTimeout/3, func(ctx context.Context) error {
		found, err := op.checkUndone(ctx, id)
		if err != nil {
			return err
		}
		version, err := rows.Replace(ctx, op.Outcomes, undoneRow{
			Key: storage.Key{Partition: record.UndonePartition, ID: id, Version: found.Version},
			By:  op.By(ctx).By(), Undo: []byte(undo),
		})
		if err == nil && version == "" {
			err = errors.New("another command has written the row at the same time") // it is read again
		}
		return err
	}, storage.ErrRefused, errUndoBegun)
	switch {
	case errors.Is(err, storage.ErrDenied):
		return nil
	case err == nil, errors.Is(err, errUndoBegun):
		return err
	}
	return fmt.Errorf("%s: not known whether it was undone with the journals of another machine or folder: %w; "+
		"try again, or set ASYNC_CALLER_TABLES=off to ask only the journals here", id, err)
}

// checkUndone returns the row of a run, if there is one, and an errUndoBegun unless the journals here say that
// the undo of that row has restored nothing. Such a row is also that of a try of [Operations.claimUndo] without an
// answer.
func (op *Operations) checkUndone(ctx context.Context, id string) (undoneRow, error) {
	ctx, cancel := context.WithTimeout(ctx, runRowTimeout)
	defer cancel()
	row, found, err := rows.Get[undoneRow](ctx, op.Outcomes, record.UndonePartition, id)
	undo := string(row.Undo)
	if err == nil && found && !op.engine().HasUndoneNothing(undo) {
		err = fmt.Errorf("%s: %w %s by %s has begun, perhaps with the journals of another machine or folder; "+
			"if that has restored nothing, repeat the command with ASYNC_CALLER_TABLES=off",
			id, errUndoBegun, text.Line(undo, maxShown), text.Line(row.By, maxShown))
	}
	return row, err
}
