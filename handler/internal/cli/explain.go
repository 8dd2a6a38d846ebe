package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/explain"
	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/queue/azure"
)

type explainOptions struct {
	queue, requestID, app, at    string
	status                       int
	failure, body, bodyFile      string
	headers                      []string
	json, hasBody, supposesReply bool
}

func newExplain(s Surroundings) *cobra.Command {
	var options explainOptions
	command := &cobra.Command{
		Use:   "explain [FILE]",
		Short: "Tell what the handler would do with an envelope, and why",
		Long: `Explain runs the handler's own code on one envelope, with nothing called and nothing written,
and tells what it decides: is it an envelope, is it due, what is done with it now. With --status
(and the answer's headers and body) or --failure it tells what that would lead to: which rule
matches, when the next attempt comes, and what is written.

The envelope comes from FILE ("-" is standard input), as JSON or as base64 of it, or with --queue
and --request-id from a queue. There it is only peeked at, which disturbs nothing and sees the first
32 visible messages; <queue>-poison is searched too.

Settings come from the environment and, in the app folder, from local.settings.json, host.json and
retry.json. Query strings, user info, header values, bodies and the context are never shown.`,
		Example: `  async-caller explain order.json --status 503 --header 'Retry-After: 120'
  async-caller send --dry-run --url https://example.com/ping | async-caller explain - --failure dns
  async-caller explain --queue async-caller --request-id 42 --at 2026-12-24T18:00:00Z --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			options.hasBody = cmd.Flags().Changed("body")
			options.supposesReply = cmd.Flags().Changed("status")
			return runExplain(cmd.Context(), s, options, args)
		},
	}
	flags := command.Flags()
	flags.SortFlags = false
	flags.StringVar(&options.queue, "queue", "", "queue to take the envelope from; for a FILE, where it would stand")
	flags.StringVar(&options.requestID, "request-id", "", "request id, or message id, of the envelope on the queue")
	flags.IntVar(&options.status, "status", 0, "suppose that the target answers with this status")
	flags.StringArrayVar(&options.headers, "header", nil, "header of that answer as 'Name: value'; may be repeated")
	flags.StringVar(&options.body, "body", "", "body of that answer")
	flags.StringVar(&options.bodyFile, "body-file", "", "file that holds that body")
	flags.StringVar(&options.failure, "failure", "", "suppose that there is no answer: "+strings.Join(failures(), ", "))
	flags.StringVar(&options.at, "at", "", "moment of the explanation: a time (RFC 3339), or a duration from now (default now)")
	flags.BoolVar(&options.json, "json", false, "print one JSON object")
	flags.StringVar(&options.app, "app", ".", "app folder, for host.json, retry.json and local.settings.json")
	return command
}

// failures lists what --failure takes.
func failures() []string {
	var names []string
	for _, f := range decision.Failures() {
		names = append(names, string(f))
	}
	return names
}

func runExplain(ctx context.Context, s Surroundings, options explainOptions, args []string) error {
	fromQueue := options.requestID != ""
	switch {
	case len(args) == 1 && fromQueue:
		return wrongUsage(errors.New("FILE and --request-id exclude one another"))
	case len(args) == 0 && (!fromQueue || options.queue == ""):
		return wrongUsage(errors.New(`name a FILE ("-" is standard input), or --queue and --request-id`))
	}
	now, err := momentOf(options.at)
	if err != nil {
		return wrongUsage(err)
	}
	outcome, err := options.outcome()
	if err != nil {
		return wrongUsage(err)
	}
	book, err := readRules(s, options.app)
	if err != nil {
		return wrongUsage(err)
	}
	q := explain.Question{Queue: options.queue, Now: now, MaxContentBytes: book.encoding.MaxContentBytes(), Targets: book.targets, Outcome: outcome}
	var source string
	if fromQueue {
		s.Environ = book.environ
		source, err = options.peek(ctx, s, book.encoding, &q)
	} else {
		err = readQuestion(s, args[0], book.encoding, &q)
	}
	if err != nil {
		return err
	}
	explanation := explain.About(book.rules, q)
	if options.json {
		return json.NewEncoder(s.Stdout).Encode(explanation)
	}
	printExplanation(s.Stdout, source, now, explanation, options.supposed())
	return nil
}

func momentOf(at string) (time.Time, error) {
	now := time.Now()
	text, err := momentFlag("--at", at, now)
	if err != nil || text == "" {
		return now, err
	}
	return time.Parse(time.RFC3339Nano, text)
}

// outcome is the answer that the flags suppose, or nil.
func (o explainOptions) outcome() (*decision.Outcome, error) {
	answered := o.supposesReply
	switch {
	case answered && o.failure != "":
		return nil, errors.New("--status and --failure exclude one another")
	case !answered && (o.headers != nil || o.hasBody || o.bodyFile != ""):
		return nil, errors.New("--header, --body and --body-file belong to an answer: give --status too")
	case o.hasBody && o.bodyFile != "":
		return nil, errors.New("--body and --body-file exclude one another")
	case o.failure != "" && !slices.Contains(failures(), o.failure):
		return nil, fmt.Errorf("--failure: want %s", strings.Join(failures(), ", "))
	case o.failure != "":
		return &decision.Outcome{Failure: decision.Failure(o.failure)}, nil
	case !answered:
		return nil, nil
	case o.status < 100 || o.status > 999:
		return nil, errors.New("--status: want a number from 100 to 999")
	case slices.Contains([]int{301, 302, 303, 307, 308}, o.status):
		return nil, errors.New("--status: a redirect is followed: give the status that it ends with, or --failure redirected")
	}
	lines, err := parseHeaderFlags(o.headers)
	if err != nil {
		return nil, err
	}
	outcome := &decision.Outcome{Status: o.status, Header: http.Header{}, Body: []byte(o.body)}
	for name, values := range lines {
		for _, value := range values {
			outcome.Header.Add(name, value)
		}
	}
	if o.bodyFile != "" {
		if outcome.Body, err = readBody(o.bodyFile, strings.NewReader("")); err != nil {
			return nil, fmt.Errorf("--body-file: %w", err)
		}
	}
	return outcome, nil
}

// supposed says in words what the flags suppose.
func (o explainOptions) supposed() string {
	switch {
	case o.failure != "":
		return "there is no answer (" + o.failure + ")"
	case o.supposesReply:
		return fmt.Sprintf("the answer is %d", o.status)
	}
	return ""
}

// readQuestion takes the envelope from a file: as it is, or as it stands on a queue.
func readQuestion(s Surroundings, path string, encoding queue.Encoding, q *explain.Question) error {
	content, err := readBody(path, s.Stdin)
	if err != nil {
		if _, isPath := errors.AsType[*os.PathError](err); !isPath {
			err = fmt.Errorf("%s: %w", path, err)
		}
		return wrongUsage(err)
	}
	if trimmed := bytes.TrimSpace(content); len(trimmed) > 0 && trimmed[0] != '{' {
		if decoded, err := encoding.Decode(string(trimmed)); err == nil && bytes.HasPrefix(bytes.TrimSpace(decoded), []byte("{")) {
			content = decoded
		}
	}
	q.Content, q.MessageID = content, uuid.NewString()
	if q.Queue == "" {
		q.Queue = queueFor(0)
		if e, err := envelope.Parse(content); err == nil {
			q.Queue = queueFor(e.Priority)
		}
	}
	return nil
}

// peek finds the envelope on the queue or its poison queue, and says where.
func (o explainOptions) peek(ctx context.Context, s Surroundings, encoding queue.Encoding, q *explain.Question) (source string, err error) {
	if !queue.ValidName(o.queue) {
		return "", wrongUsage(fmt.Errorf("--queue: %.70q is no queue's name: 3 to 63 lower-case letters, digits and single dashes", o.queue))
	}
	connection, err := azure.ParseConnection(s.getenv, functionapp.ConnectionName)
	if err != nil {
		return "", wrongUsage(err)
	}
	store, err := azure.Open(connection)
	if err != nil {
		return "", wrongUsage(err)
	}
	defer store.Close()
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	return o.find(ctx, store, encoding, q)
}

// peeker reads messages and leaves them as they are.
type peeker interface {
	Peek(ctx context.Context, queue string, limit int) ([]queue.Message, error)
}

func (o explainOptions) find(ctx context.Context, store peeker, encoding queue.Encoding, q *explain.Question) (source string, err error) {
	names := []string{o.queue}
	if poison, ok := queue.PoisonName(o.queue); ok {
		names = append(names, poison)
	}
	var searched []string
	for _, name := range names {
		messages, err := store.Peek(ctx, name, queue.MaxBatch)
		switch {
		case errors.Is(err, queue.ErrNoQueue):
			searched = append(searched, name+" (does not exist)")
			continue
		case err != nil:
			return "", err
		}
		searched = append(searched, fmt.Sprintf("%s (%d seen)", name, len(messages)))
		for _, m := range messages {
			if content, ok := o.matches(m, encoding); ok {
				q.Content, q.MessageID = content, m.ID
				return foundOn(name, o.queue, m), nil
			}
		}
	}
	return "", &codeError{exitNothing, fmt.Errorf(
		"no visible message with request id %.128q on %s: only the first %d can be peeked at, and one that waits for its next attempt is invisible",
		o.requestID, strings.Join(searched, " and "), queue.MaxBatch)}
}

// matches reports whether a message is the one that is looked for; one without a request id goes by its
// own, as the call does.
func (o explainOptions) matches(m queue.Message, encoding queue.Encoding) (content []byte, ok bool) {
	content, err := encoding.Decode(m.Text)
	if err != nil { // explained as what it is
		return []byte(m.Text), m.ID == o.requestID
	}
	if e, err := envelope.Parse(content); err == nil && e.RequestID == o.requestID {
		return content, true
	}
	return content, m.ID == o.requestID
}

func foundOn(name, main string, m queue.Message) string {
	source := fmt.Sprintf("message %s on %s, dequeued %d times", m.ID, name, m.DequeueCount)
	if name != main {
		source += "; what follows is what happens once it is moved back to " + main
	}
	return source
}
