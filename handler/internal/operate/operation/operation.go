// Package operation changes the messages of an account: it retries, edits, deletes, exports and imports
// calls that wait, moves dead letters, keeps messages from expiring, undoes these changes, and erases
// data. The command line uses it; another front end could use it as well.
//
// A change of messages is a run of package run. An operation maps each selected message to a step of the run, or
// refuses it; each has a file of its own, such as retry_poison.go.
package operation

import (
	"cmp"
	"context"
	"time"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/storage"
)

// Operations are what an operator does to an account: runs, which it plans, resumes, undoes and lists, and live
// settings of targets. It is safe for concurrent use.
type Operations struct {
	// Account is the account that they change.
	Account *account.Account
	// Journals is the folder of journals.
	Journals journal.Folder
	// Outcomes is the table of what becomes of messages of runs; nil if it cannot be used.
	Outcomes storage.Table
	// History has the tables of calls that have ended; nil if they cannot be used. HistoryRetention is how long they
	// are kept.
	History          storage.Tables
	HistoryRetention time.Duration
	// Operator is who works on the account; the zero value for nobody.
	Operator journal.Operator
	// Identity returns the Azure identity of the latest requests, empty before the first one. It is nil without one.
	Identity func() string
	// Observer follows the work; it may be nil.
	Observer run.Observer
}

// silent is an observer that ignores all reports.
type silent struct{}

func (silent) Advanced(int, int) {}
func (silent) Note(string)       {}

func (op *Operations) observer() run.Observer { return cmp.Or[run.Observer](op.Observer, silent{}) }

// By returns who works on the account. It sends a request if none was sent before, whose token says who that is.
func (op *Operations) By(ctx context.Context) journal.Operator {
	by := op.Operator
	if op.Identity == nil {
		return by
	}
	if op.Identity() == "" {
		_, _ = op.Account.Reach(ctx) // the next request has the same error
	}
	by.Identity = op.Identity()
	return by
}

// engine returns the engine of the account's runs.
func (op *Operations) engine() *run.Engine {
	return &run.Engine{
		Store: op.Account.Store, Account: op.Account.Name, Runs: op.Journals,
		Observer: op.observer(), Hooks: op.hooks,
	}
}
