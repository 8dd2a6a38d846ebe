package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/poison"
	"asynccaller/handler/internal/poison/edit"
	"asynccaller/handler/internal/poison/inspect"
	"asynccaller/handler/internal/poison/journal"
	"asynccaller/handler/internal/queue"
)

// requeueOptions are the flags of requeue, as they were given.
type requeueOptions struct {
	which     selection
	agreement consent
	all       everything

	jq, set, setHeader, deleteHeader, replaceHost []string
	keepState, fixEncoding, edit, dryRun, reveal  bool
	to, rate                                      string
	canary                                        int
	canaryWait, delay, spread                     time.Duration
	stopAt                                        float64
}

func newPoisonRequeue(s Surroundings, options *poisonOptions) *cobra.Command {
	var r requeueOptions
	command := &cobra.Command{
		Use:   "requeue [ID]...",
		Short: "Send messages again, mended if need be",
		Long: `Requeue puts messages back on the queue that they came from, to be delivered afresh: without the
attempts so far, with a new deadline. What would only come back is refused, and stays.

Messages can be changed on the way, by flags or one in an editor, $VISUAL or $EDITOR. --dry-run
shows what would change and changes nothing; secrets are masked there unless --reveal asks for
them. Where many go, --canary sends some first and waits until they are delivered, --rate and
--spread keep the target from being overrun, and --stop-at-failure-ratio stops when too many come
back.`,
		Example: `  async-caller poison requeue 4f1c2a9e
  async-caller poison requeue --host old.example.com --replace-host old.example.com=new.example \
      --dry-run
  async-caller poison requeue --reason expired --canary 5 --rate 50/s --stop-at-failure-ratio 0.1
  async-caller poison requeue 4f1c2a9e --set call.headers.X-Tenant=acme`,
		RunE: func(cmd *cobra.Command, ids []string) error {
			source, request, err := r.read(ids, time.Now())
			if err != nil {
				return err
			}
			return atDesk(cmd.Context(), s, options, func(d *desk, ctx context.Context) error {
				return d.requeue(ctx, source, request, r)
			})
		},
	}
	r.addTo(command)
	return command
}

func (r *requeueOptions) addTo(command *cobra.Command) {
	flags := flagsOf(command)
	flags.BoolVar(&r.dryRun, "dry-run", false, "show what would change, and change nothing")
	flags.BoolVar(&r.reveal, "reveal", false, "with --dry-run: show secrets too")
	r.agreement.addTo(command)
	flags.StringVar(&r.to, "to", "", "queue to send to (default the one of each message)")
	flags.StringArrayVar(&r.set, "set", nil, "set a member, as PATH=VALUE: call.url, call.json, deadline …; may be repeated")
	flags.StringArrayVar(&r.setHeader, "set-header", nil, "set a header of the call, as 'Name: value'; may be repeated")
	flags.StringArrayVar(&r.deleteHeader, "delete-header", nil, "remove a header of the call; may be repeated")
	flags.StringArrayVar(&r.replaceHost, "replace-host", nil, "call NEW where the call or callback goes to OLD, as OLD=NEW; may be repeated")
	flags.StringArrayVar(&r.jq, "jq", nil, "change the envelope by an expression of jq; may be repeated")
	flags.BoolVar(&r.edit, "edit", false, "change one message in an editor")
	flags.BoolVar(&r.fixEncoding, "fix-encoding", false, "take a text that is not base64 for the content, and encode it")
	flags.BoolVar(&r.keepState, "keep-state", false, "keep attempts, times and deadline instead of starting afresh")
	flags.IntVar(&r.canary, "canary", 0, "send so many first, and the others when those are delivered")
	flags.DurationVar(&r.canaryWait, "canary-wait", 3*time.Minute, "how long those may take")
	flags.StringVar(&r.rate, "rate", "", "at most so many a second, such as 50 or 0.5/s (default as fast as it goes)")
	flags.Float64Var(&r.stopAt, "stop-at-failure-ratio", 0, "stop when more than this share, 0 to 1, came back")
	flags.DurationVar(&r.delay, "delay", 0, "how long messages wait on the queue before they are delivered")
	flags.DurationVar(&r.spread, "spread", 0, "deliver them evenly over this time")
	r.which.addTo(command)
	r.all.addTo(command)
}

// read makes of the flags what the library takes.
func (r *requeueOptions) read(ids []string, now time.Time) (poison.Source, poison.Requeue, error) {
	var request poison.Requeue
	source, err := r.which.source(ids, now)
	if err != nil {
		return source, request, err
	}
	if err := r.all.check(&r.which, ids); err != nil {
		return source, request, err
	}
	request.To = r.to
	request.Edit = edit.Options{KeepState: r.keepState, FixEncoding: r.fixEncoding}
	var errs [4]error
	request.Edit.Edits, errs[0] = r.edits()
	request.Pace, errs[1] = r.pace()
	if r.to != "" {
		errs[2] = checkQueue("--to", r.to)
	}
	errs[3] = r.fits(ids)
	return source, request, wrongUsage(errors.Join(errs[:]...))
}

// fits refuses flags that do not go together.
func (r *requeueOptions) fits(ids []string) error {
	switch {
	case r.edit && len(ids) != 1:
		return errors.New("--edit: give exactly one ID")
	case r.edit && r.dryRun:
		return errors.New("--edit and --dry-run exclude one another")
	case r.reveal && !r.dryRun:
		return errors.New("--reveal belongs to --dry-run")
	}
	return nil
}

func (r *requeueOptions) edits() (edits edit.Edits, err error) {
	var problems []error
	edits.JQ = each("--jq", r.jq, edit.ParseJQ, &problems)
	edits.ReplaceHosts = each("--replace-host", r.replaceHost, edit.ParseReplaceHost, &problems)
	edits.Set = each("--set", r.set, edit.ParseSet, &problems)
	edits.Headers = append(
		each("--set-header", r.setHeader, edit.ParseHeader, &problems),
		each("--delete-header", r.deleteHeader, edit.ParseDeleteHeader, &problems)...)
	return edits, errors.Join(problems...)
}

// each parses every argument of a flag.
func each[T any](flag string, arguments []string, parse func(string) (T, error), problems *[]error) []T {
	var parsed []T
	for _, argument := range arguments {
		value, err := parse(argument)
		if err != nil {
			if !strings.HasPrefix(err.Error(), flag) {
				err = fmt.Errorf("%s: %w", flag, err)
			}
			*problems = append(*problems, err)
		}
		parsed = append(parsed, value)
	}
	return parsed
}

func (r *requeueOptions) pace() (journal.Pace, error) {
	rate, rateErr := rateFlag(r.rate)
	pace := journal.Pace{
		Canary: r.canary, CanaryWait: r.canaryWait, Rate: rate, StopAt: r.stopAt, Delay: r.delay, Spread: r.spread,
	}
	problems := []error{rateErr}
	check := func(wrong bool, problem string) {
		if wrong {
			problems = append(problems, errors.New(problem))
		}
	}
	check(r.canary < 0, "--canary: want a number of messages above 0")
	check(r.canary > 0 && r.canaryWait <= 0, "--canary-wait: give a duration above 0, such as 3m")
	check(!(r.stopAt >= 0 && r.stopAt <= 1), "--stop-at-failure-ratio: want a share from 0 to 1, such as 0.1")
	check(r.delay < 0 || r.spread < 0 || r.delay > queue.MaxDelay || r.delay+r.spread > queue.MaxDelay,
		fmt.Sprintf("--delay and --spread: a message can wait from 0s to %v", queue.MaxDelay))
	return pace, errors.Join(problems...)
}

// rateFlag reads a number a second; nothing is no limit.
func rateFlag(text string) (float64, error) {
	if text == "" {
		return 0, nil
	}
	rate, err := strconv.ParseFloat(strings.TrimSuffix(text, "/s"), 64)
	if err != nil || !(rate >= 0.001 && rate <= 1e6) { // not a number is neither
		return 0, fmt.Errorf("--rate %.40q: want a number of messages a second, such as 50 or 0.5/s", text)
	}
	return rate, nil
}

func (d *desk) requeue(ctx context.Context, source poison.Source, request poison.Requeue, r requeueOptions) error {
	if r.dryRun {
		return d.rehearse(ctx, source, request, inspect.Secrets(r.reveal))
	}
	if r.edit {
		found, err := d.account.Find(ctx, source, source.IDs[0])
		if err != nil {
			return err
		}
		d.tell.quiet()
		changed, err := d.edit(ctx, found, &request.Edit)
		if err != nil {
			return err
		}
		if !changed {
			d.tell.say("nothing was edited: nothing is done")
			return nil
		}
		source = poison.Source{Queues: []string{found.Queue}, IDs: []string{found.ID}, Force: source.Force}
	}
	plan, err := d.account.PlanRequeue(ctx, source, request)
	if err != nil {
		return err
	}
	return d.carryOut(ctx, plan, r.agreement)
}
