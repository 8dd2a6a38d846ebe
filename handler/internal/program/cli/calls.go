package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/call"
	"asynccaller/handler/internal/operate/message"
)

func newCalls(env Env) *cobra.Command {
	shared := &sharedFlags{env: env, group: "calls"}
	command := &cobra.Command{
		Use:   shared.group,
		Short: "Show, edit, retry and delete calls that wait",
		Long: `Work with calls that wait. A scheduled call waits for its next attempt: it is invisible on its
queue, and the handler records it in a table if it waits for 30 s or more. A dead letter waits for a
person on a poison queue, <queue>-poison, together with malformed messages and those that the
Functions host moved there because the handler crashed or timed out.

A command that changes calls needs IDs, or --state and filters. It shows its plan and asks for
confirmation; without a terminal it requires --yes. A journal records each run: "async-caller runs"
lists, undoes and resumes them. Messages are written before they are deleted, so an interruption can
leave a message in two places, but never in none.

--queue names a queue of the app; for dead letters that is its poison queue. With --force, or if no
function reads the queue, it is taken as it is.

Secrets are masked unless you give --reveal. Journals and exports contain whole messages; only their
owner can read these files.`,
		Example: `  async-caller calls list --state poison --group-by error
  async-caller calls retry --state poison --reason expired --since 2h --canary 5
  async-caller calls delete --state scheduled --host old.example.com --callback`,
	}
	onlyCommands(command)
	shared.declare(command)
	command.AddCommand(
		newCallsList(shared), newCallsExport(shared), newCallsImport(shared),
		newCallsEdit(shared), newCallsRetry(shared), newCallsDelete(shared),
	)
	return command
}

// sources are the selected calls of each state; nil for a state that is not selected.
type sources struct{ scheduled, poison *account.Source }

// withCalls returns the RunE of a command that works on the selected calls. A command that changes calls gets those of
// one state.
func (shared *sharedFlags) withCalls(
	selected *selection, work func(context.Context, *session, sources) error,
) runFunc {
	return func(cmd *cobra.Command, ids []string) error {
		source, states, err := selected.source(ids)
		if err != nil {
			return err
		}
		return shared.withSession(func(ctx context.Context, s *session, _ []string) error {
			s.operations.Operator.Filter = selected.text(ids)
			s.ids = ids
			from, err := s.sources(ctx, source, states)
			if err == nil && selected.required && len(ids) > 0 {
				from, err = s.chooseState(ctx, selected, from)
			}
			isNone := from.scheduled == nil && from.poison == nil
			switch {
			case err != nil:
				return err
			case isNone && selected.required:
				return s.nothingMatched(0)
			}
			return work(ctx, s, from)
		})(cmd, ids)
	}
}

// sources returns what a source selects in each of the states. A poison queue has no scheduled calls.
func (s *session) sources(ctx context.Context, source account.Source, states []string) (from sources, err error) {
	if err := s.account.CheckQueues(ctx, source); err != nil {
		return from, err
	}
	for _, state := range states {
		one, isScheduled := source, state == call.StateScheduled
		if isScheduled {
			one.Queues = slices.DeleteFunc(slices.Clone(source.Queues), func(name string) bool {
				return account.MainQueue(name) != name && !source.Force
			})
		} else if one.Queues, err = s.account.DeadLetterQueues(ctx, source); err != nil {
			return from, err
		}
		if len(one.Queues) == 0 && len(source.Queues) > 0 {
			continue
		}
		if err := s.account.ResolveGroup(ctx, &one, isScheduled); err != nil {
			return from, err
		}
		if isScheduled {
			from.scheduled = &one
		} else {
			from.poison = &one
		}
	}
	return from, nil
}

// chooseState returns the selected calls of the only state that the ids have. Ids of both states are an error, and so
// is a dead letter for a command that only changes scheduled calls. Ids of neither are looked for on the poison queues,
// some of whose messages may have no row.
func (s *session) chooseState(ctx context.Context, selected *selection, from sources) (sources, error) {
	switch {
	case from.scheduled == nil && from.poison != nil && selected.only != "":
		return from, usageError(errors.New(errEditedOnRetry))
	case from.scheduled == nil || from.poison == nil:
		return from, nil
	}
	ids, scheduled, dead := from.scheduled.IDs, named{}, named{}
	source := *from.scheduled
	source.Limit = 0
	_, err := s.account.ListScheduled(ctx, source, false, scheduled.of(ids))
	switch {
	case err != nil && !errors.Is(err, account.ErrNoTable):
		return from, fmt.Errorf("%w; with --state poison, the record is not read", err)
	case len(scheduled) == 0 && selected.only == "":
		return sources{poison: from.poison}, nil
	case len(scheduled) == len(ids) && selected.only != "":
		return sources{scheduled: from.scheduled}, nil
	}
	source = *from.poison
	source.Limit = 0
	if _, err := s.account.Look(ctx, source, dead.of(ids)); err != nil {
		return from, err
	}
	if len(dead) == 0 {
		return sources{scheduled: from.scheduled}, nil
	}
	return from, selected.otherState(scheduled.list(), dead.list())
}

// named are the ids that name a message.
type named map[string]bool

// add adds those of the ids that name a message.
func (n named) add(ids []string, m message.Message) {
	for _, id := range ids {
		if message.MatchID(m, id) {
			n[id] = true
		}
	}
}

func (n named) of(ids []string) func(message.Recorded) error {
	return func(m message.Recorded) error { n.add(ids, m.Message); return nil }
}

func (n named) list() []string { return slices.Sorted(maps.Keys(n)) }

// eachState shows the calls of each selected state, the scheduled ones first. A state that cannot be read does not hide
// the other one.
func (s *session) eachState(
	from sources, scheduled, poison func(account.Source) (account.Listed, error),
) (listed, dead account.Listed, err error) {
	var unread error
	if from.scheduled != nil {
		listed, unread = scheduled(*from.scheduled)
	}
	unsearched := s.account.Unsearched // the next list counts anew
	isFull := from.scheduled != nil && from.scheduled.Limit > 0 && listed.Matched >= from.scheduled.Limit
	if from.poison == nil || isFull {
		return listed, dead, unread
	}
	source := *from.poison
	if source.Limit > 0 {
		source.Limit -= listed.Matched
	}
	dead, err = poison(source)
	if from.scheduled != nil {
		s.account.Unsearched += unsearched
	}
	isPartly := from.scheduled != nil && (err == nil) != (unread == nil) && !errors.Is(err, context.Canceled)
	err = errors.Join(unread, err)
	if isPartly {
		err = &codeError{exitPartly, err}
	}
	return listed, dead, err
}
