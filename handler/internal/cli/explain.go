package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/explain"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/send"
)

// explainOptions are the flags of explain.
type explainOptions struct {
	queue, requestID, app string
	at                    time.Time
	status                int
	failure               decision.Failure
	headers               []header
	body, bodyFile        string
	json                  bool
}

func newExplain(env Env) *cobra.Command {
	command := &cobra.Command{
		Use:   "explain [FILE]",
		Short: "Show how the handler would process an envelope, and why",
		Long: `Run the handler's rules on one envelope, without a call and without changing a queue, and show the
decisions. With --status or --failure, also show what would follow that result of the call: the rule
that applies, the time of the next attempt, and the message that would be written.

The envelope comes from FILE, or standard input for "-", as JSON or base64; or, with --queue and
--request-id, from the first 32 visible messages of a queue or of its poison queue.

Settings come from the environment and from local.settings.json, host.json and retry.json in the app
folder. Query strings, user info, header values, bodies and the context are not shown.`,
		Example: `  async-caller explain order.json --status 503 --header 'Retry-After: 120'
  async-caller send --dry-run --url https://example.com/ping | async-caller explain - --failure dns
  async-caller explain --queue async-caller --request-id 42 --at 2026-12-24T18:00:00Z --json`,
		Args: cobra.MaximumNArgs(1),
	}
	var o explainOptions
	flags := flagsOf(command)
	o.addTo(flags)
	command.MarkFlagsMutuallyExclusive("status", "failure")
	command.MarkFlagsMutuallyExclusive("body", "body-file")
	command.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.check(flags, args); err != nil {
			return usageError(err)
		}
		return o.run(cmd.Context(), env, args)
	}
	return command
}

func (o *explainOptions) addTo(flags *flagSet) {
	flags.StringVar(&o.queue, "queue", "", "`queue` of the envelope")
	flags.StringVar(&o.requestID, "request-id", "", "request `id`, or message id, of the envelope on the queue")
	parsed(flags, &o.status, "status", "assume that the target answers with this `status`", parseFinalStatus)
	parsedList(flags, &o.headers, "header", "with --status: `header` of the answer as 'Name: value'; may be repeated", parseHeader)
	flags.StringVar(&o.body, "body", "", "with --status: body of the answer as `text`")
	flags.StringVar(&o.bodyFile, "body-file", "", "with --status: `file` with the body of the answer")
	parsed(flags, &o.failure, "failure", "assume this `failure` instead of an answer: "+failureNames(), parseFailure)
	parsed(flags, &o.at, "at", "`time` of the explanation (RFC 3339), or a duration from now (default now)", parseMoment)
	flags.BoolVar(&o.json, "json", false, "print one JSON object")
	flags.StringVar(&o.app, "app", ".", "app folder with host.json, retry.json and local.settings.json")
}

func failureNames() string {
	var names []string
	for _, failure := range decision.Failures() {
		names = append(names, string(failure))
	}
	return strings.Join(names, ", ")
}

func parseFailure(text string) (decision.Failure, error) {
	failure := decision.Failure(text)
	if !slices.Contains(decision.Failures(), failure) {
		return "", errors.New("want " + failureNames())
	}
	return failure, nil
}

// parseFinalStatus reads the status of an answer that is not a redirect.
func parseFinalStatus(text string) (int, error) {
	status, err := parseStatus(text)
	if slices.Contains([]int{301, 302, 303, 307, 308}, status) {
		return 0, errors.New("the handler follows redirects: give the final status, or --failure redirected")
	}
	return status, err
}

func (o *explainOptions) check(flags *flagSet, args []string) error {
	problems := flags.problems
	answer := flags.Changed("header") || flags.Changed("body") || flags.Changed("body-file")
	switch {
	case len(args) == 1 && o.requestID != "":
		problems = append(problems, errors.New("FILE and --request-id exclude each other"))
	case len(args) == 0 && (o.requestID == "" || o.queue == ""):
		problems = append(problems, errors.New(`give a FILE ("-" is standard input), or --queue and --request-id`))
	case answer && !flags.Changed("status"):
		problems = append(problems, errors.New("--header, --body and --body-file require --status"))
	}
	if o.queue != "" && len(args) == 0 {
		if _, err := parseQueue(o.queue); err != nil {
			problems = append(problems, fmt.Errorf("--queue: %w", err))
		}
	}
	return errors.Join(problems...)
}

func (o *explainOptions) run(ctx context.Context, env Env, args []string) error {
	outcome, err := o.outcome(env)
	if err != nil {
		return usageError(fmt.Errorf("--body-file: %w", err))
	}
	a, err := readApp(env, o.app)
	if err != nil {
		return err
	}
	question := explain.Question{Queue: o.queue, Now: o.at, MaxContentBytes: a.encoding.MaxContentBytes(), Targets: a.targets, Outcome: outcome}
	if o.at.IsZero() {
		question.Now = time.Now()
	}
	var source string
	if len(args) == 1 {
		err = o.readFile(a, args[0], &question)
	} else {
		source, err = o.peek(ctx, a, &question)
	}
	if err != nil {
		return err
	}
	explanation := explain.About(a.rules, question)
	if o.json {
		return printJSON(env.Stdout, explanation)
	}
	printField(env.Stdout, "found", source)
	printExplanation(env.Stdout, question.Now, explanation, o.assumption())
	return nil
}

// outcome returns the result of the call that the flags assume, or nil.
func (o *explainOptions) outcome(env Env) (*decision.Outcome, error) {
	switch {
	case o.failure != "":
		return &decision.Outcome{Failure: o.failure}, nil
	case o.status == 0:
		return nil, nil
	}
	outcome := &decision.Outcome{Status: o.status, Header: http.Header{}, Body: []byte(o.body)}
	for _, h := range o.headers {
		outcome.Header.Add(h.name, h.value)
	}
	var err error
	if o.bodyFile != "" {
		outcome.Body, err = readFile(env, o.bodyFile, maxBodyBytes)
	}
	return outcome, err
}

// assumption describes the result of the call that the flags assume.
func (o *explainOptions) assumption() string {
	switch {
	case o.failure != "":
		return fmt.Sprintf("there is no answer (%s)", o.failure)
	case o.status != 0:
		return fmt.Sprintf("the answer is %d", o.status)
	}
	return ""
}

// readFile reads the envelope from a file, as JSON or encoded as on a queue.
func (o *explainOptions) readFile(a app, path string, q *explain.Question) error {
	content, err := readFile(a.env, path, maxBodyBytes)
	if _, named := errors.AsType[*fs.PathError](err); err != nil && !named {
		err = fmt.Errorf("%s: %w", path, err)
	}
	if err != nil {
		return usageError(err)
	}
	if trimmed := bytes.TrimSpace(content); !bytes.HasPrefix(trimmed, []byte("{")) {
		if decoded, err := a.encoding.Decode(string(trimmed)); err == nil && bytes.HasPrefix(bytes.TrimSpace(decoded), []byte("{")) {
			content = decoded
		}
	}
	q.Content, q.MessageID = content, uuid.NewString()
	if q.Queue == "" {
		q.Queue = send.QueueFor(0)
		if received := a.rules.Open(content, q.MessageID, q.MaxContentBytes, q.Now).Received; received != nil {
			q.Queue = send.QueueFor(received.Priority)
		}
	}
	return nil
}

// peek finds the envelope on the queue or its poison queue, and describes where.
func (o *explainOptions) peek(ctx context.Context, a app, q *explain.Question) (source string, err error) {
	store, _, err := openStore(a.env)
	if err != nil {
		return "", err
	}
	defer store.Close()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return o.find(ctx, store, a, q)
}

func (o *explainOptions) find(ctx context.Context, store queue.Store, a app, q *explain.Question) (source string, err error) {
	names := []string{o.queue}
	if poison, ok := queue.PoisonName(o.queue); ok {
		names = append(names, poison)
	}
	var searched []string
	for _, name := range names {
		messages, err := store.Peek(ctx, name, queue.MaxBatch)
		if errors.Is(err, queue.ErrNoQueue) {
			searched = append(searched, name+" (does not exist)")
			continue
		}
		if err != nil {
			return "", err
		}
		searched = append(searched, fmt.Sprintf("%s (%d read)", name, len(messages)))
		for _, m := range messages {
			content, err := a.encoding.Decode(m.Text)
			if err != nil { // a malformed message
				content = []byte(m.Text)
			}
			if o.requestID != m.ID && o.requestID != a.rules.Open(content, m.ID, q.MaxContentBytes, q.Now).RequestID {
				continue
			}
			q.Content, q.MessageID = content, m.ID
			source = fmt.Sprintf("message %s on %s, dequeue count %d", m.ID, name, m.DequeueCount)
			if name != o.queue {
				source += "; the explanation applies once it is moved back to " + o.queue
			}
			return source, nil
		}
	}
	return "", &codeError{exitNothing, fmt.Errorf("no visible message with request id %.128q on %s: "+
		"only the first %d visible messages can be read, and a scheduled message is invisible", o.requestID, strings.Join(searched, " and "), queue.MaxBatch)}
}
