package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/plain/format"
)

func newErase(env Env) *cobra.Command {
	shared := &sharedFlags{env: env, group: "erase"}
	command := &cobra.Command{
		Use:   shared.group,
		Short: "Delete what the account has about a call or a text, for good",
		Long: `Delete the scheduled calls and dead letters of a request id or with a text, and for a request id its
callbacks, as far as they are known to be of the call, its outcomes of runs and its history.
No callback is sent. There is no journal and no undo. "runs list" shows who has erased how many
messages, and the arguments are recorded nowhere. A Nexus tenant needs both --organization and
--environment.

It names the journals of this machine that have copies, or cannot be searched, and then the exit
code is 4: "runs delete" removes a journal. It also says what it cannot reach: messages that wait on
a main queue or are in flight (run it again), messages on queues that are not poison queues,
journals of other machines, exports, logs.`,
		Example: `  async-caller erase --request-id order-4711 --dry-run
  async-caller erase --request-id 4711 --organization acme --environment prd
  async-caller erase --text jane.doe@example.com --yes`,
		Args: cobra.NoArgs,
	}
	shared.declare(command)
	var e operation.Erasure
	var dryRun bool
	flags := flagsOf(command)
	parsed(flags, &e.RequestID, "request-id", "erase the call with this request `id`", parseText)
	flags.StringVar(&e.Tenant.Organization, "organization", "", "`organization` of the tenant, of a Nexus message")
	flags.StringVar(&e.Tenant.Environment, "environment", "", "`environment` of the tenant, of a Nexus message")
	parsed(flags, &e.Text, textFlag, "erase messages that contain this `text`, ignoring case", parseText)
	flags.BoolVar(&dryRun, "dry-run", false, "show what would be erased, and change nothing")
	shared.addYes(flags)
	command.RunE = func(cmd *cobra.Command, args []string) error {
		flags.refuse(!flags.Changed("request-id") && !flags.Changed(textFlag), "give --request-id or --text")
		if err := flags.err(); err != nil {
			return err
		}
		return shared.withSession(func(ctx context.Context, s *session, _ []string) error {
			return s.erase(ctx, e, dryRun)
		})(cmd, args)
	}
	return command
}

// erasure is the result of an erase in JSON.
type erasure struct {
	Account string `json:"account"`
	// Erased says that the places were changed, and not only searched.
	Erased bool                    `json:"erased"`
	Places []operation.ErasedPlace `json:"places"`
	// Journals names the runs of this machine whose journals have copies, or cannot be searched.
	Journals   []string `json:"journals"`
	NotReached []string `json:"notReached"`
}

// notReached is what an erasure cannot reach.
func notReached() []string {
	return []string{
		"messages that wait on a main queue or are in flight: run it again",
		"messages on queues that are not poison queues",
		"journals of other machines and folders",
		"the command lines in the list of runs",
		"answers of failing targets in `async-caller status`",
		"exports",
		"logs",
	}
}

func (s *session) erase(ctx context.Context, e operation.Erasure, dryRun bool) error {
	places, err := s.operations.Erase(ctx, e, false)
	if err != nil {
		return err
	}
	copies, err := s.operations.FindCopies(e)
	if err != nil {
		return err
	}
	result := erasure{s.account.Name, false, places, copies, notReached()}
	s.announceErasure(result)
	found := foundIn(places)
	if dryRun || found == 0 {
		return s.endErasure(result, found)
	}
	question := fmt.Sprintf("erase %s in %s? This cannot be undone. Type %d to confirm:",
		format.Plural(found, "item"), s.account.Name, found)
	if err := s.ask(ctx, question, func(answer string) bool { return answer == strconv.Itoa(found) }); err != nil {
		return err
	}
	deleted, err := s.operations.Erase(ctx, e, true)
	if err != nil {
		return err
	}
	result.Erased, result.Places = true, sinceFound(places, deleted)
	return s.endErasure(result, found)
}

func foundIn(places []operation.ErasedPlace) (found int) {
	for _, p := range places {
		found += p.Found
	}
	return found
}

// sinceFound returns what was deleted. What was found before and is no longer there was received or removed by somebody
// else, and counts as left.
func sinceFound(before, after []operation.ErasedPlace) []operation.ErasedPlace {
	for i := range after {
		after[i].Found = max(after[i].Found, before[i].Found)
	}
	return after
}

func (s *session) announceErasure(r erasure) {
	for _, p := range r.Places {
		switch {
		case p.Problem == "":
			s.progress.printf("%s: %s", p.Place, format.Number(p.Found))
		case p.Found == 0:
			s.progress.printf("%s: unknown: %s", p.Place, p.Problem)
		default:
			s.progress.printf("%s: at least %s: %s", p.Place, format.Number(p.Found), p.Problem)
		}
		if p.Hidden > 0 {
			s.progress.printf("  %s", hiddenText(p.Hidden))
		}
		if p.Unsearched > 0 {
			s.progress.printf("  %s", unsearchedText(p.Unsearched))
		}
	}
}

// endErasure prints the result, and returns an error if something is left, could not be searched, or was not found.
func (s *session) endErasure(r erasure, found int) error {
	var problems []string
	for _, p := range r.Places {
		if r.Erased {
			s.progress.printf("erased %s of %s: %s", format.Number(p.Deleted), format.Number(p.Found), p.Place)
			s.out.changed = "what was erased cannot be restored"
		}
		isLeft := r.Erased && p.Left() > 0
		if isLeft {
			problems = append(problems, fmt.Sprintf("%s that somebody else, such as the app, has received or removed "+
				"since, or whose result is not known: %s", p.Place, format.Number(p.Left())))
		}
		if p.Problem != "" {
			problems = append(problems, p.Place+": "+p.Problem)
		}
		if p.Hidden > 0 {
			problems = append(problems, p.Place+" that could not be read: "+hiddenText(p.Hidden))
		}
		if p.Unsearched > 0 {
			problems = append(problems, p.Place+": "+unsearchedText(p.Unsearched))
		}
		if p.Unknown > 0 {
			problems = append(problems, fmt.Sprintf("%s with the request id of its callback, which may be another "+
				"call's: %s; --request-id ID.callback erases them", p.Place, format.Number(p.Unknown)))
		}
	}
	if len(r.Journals) > 0 {
		problems = append(problems, "journals of this machine that have copies, or cannot be searched: "+
			strings.Join(r.Journals, ", ")+"; `async-caller runs delete RUN` removes one whole")
	}
	s.progress.printf("not reached: %s", strings.Join(r.NotReached, "; "))
	if !r.Erased && found > 0 {
		s.progress.printf("dry run: nothing was changed")
	}
	if s.json {
		_ = printJSON(s.out, r) // output keeps the error
	}
	switch {
	case len(problems) > 0:
		return &codeError{exitPartly, errors.New("not everything is erased\n" + strings.Join(problems, "\n"))}
	case found == 0:
		return &codeError{exitNothing, fmt.Errorf("%w in %s", account.ErrNothing, s.account.Name)}
	}
	return nil
}
