package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/queue/azure"
)

const (
	// maxInputBytes bounds one envelope that is read from a file or standard input.
	maxInputBytes = 1 << 20
	// putTimeout is longer than storage ever takes that works, and short enough for a person to wait.
	putTimeout = 30 * time.Second
)

func newSend(s Surroundings) *cobra.Command {
	draft := newDraft()
	var options sendOptions
	command := &cobra.Command{
		Use:   "send [FILE]",
		Short: "Put an envelope on its queue",
		Long: `Send puts envelopes on the queue that their priority says: async-caller, or async-caller-1 to
-10. It makes one envelope from flags, or takes one or many, whole, from FILE ("-" is standard
input): JSON objects one after the other, as in JSON lines. It prints the request id of each.

With --nexus it writes the envelope as the C# SDK of Nexus Async Caller does, for a C# function app
on the same queues. That format has no place for --timeout, --retry and --give-up.

The storage account is AzureWebJobsStorage, from the environment or from local.settings.json in the
app folder. A queue that does not exist is made.`,
		Example: `  async-caller send --url https://example.com/orders --json-body '{"id":42}'
  async-caller send --url https://example.com/ping --retry 5s,1m,10m --deadline 2h
  async-caller send --url https://example.com/orders --body-file order.xml \
      --header 'Content-Type: application/xml' --callback https://example.com/done
  async-caller send --dry-run --url https://example.com/ping --not-before 2026-12-24T18:00:00Z
  async-caller send --nexus --organization acme --environment prd --url https://example.com/ping
  async-caller send envelopes.jsonl`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !options.nexus && options.tenant != (envelope.Tenant{}) {
				return wrongUsage(errors.New("--organization and --environment belong to --nexus: a native envelope has no tenant"))
			}
			if len(args) == 1 {
				if err := draft.checkUnused(); err != nil {
					return wrongUsage(err)
				}
				return sendFile(cmd.Context(), s, options, args[0])
			}
			return sendDraft(cmd.Context(), s, options, draft)
		},
	}
	command.Flags().SortFlags = false
	command.Flags().AddFlagSet(draft.flags)
	command.Flags().BoolVar(&options.nexus, "nexus", false, "write it as the C# SDK of Nexus Async Caller does")
	command.Flags().StringVar(&options.tenant.Organization, "organization", "", "with --nexus: the tenant's organization")
	command.Flags().StringVar(&options.tenant.Environment, "environment", "", "with --nexus: the tenant's environment")
	command.Flags().BoolVar(&options.dryRun, "dry-run", false, "print the envelope instead of sending it")
	command.Flags().BoolVar(&options.json, "json", false, "print a JSON object a message: requestId, queue, messageId")
	command.Flags().StringVar(&options.app, "app", ".", "app folder, for host.json and local.settings.json")
	return command
}

type sendOptions struct {
	dryRun, json bool
	app          string
	// nexus writes native envelopes in the Nexus format, as tenant's.
	nexus  bool
	tenant envelope.Tenant
}

// sendDraft sends the one envelope that the flags describe.
func sendDraft(ctx context.Context, s Surroundings, options sendOptions, draft *draft) error {
	content, err := draft.encode(time.Now(), s.Stdin)
	if err != nil {
		return wrongUsage(err)
	}
	sender, err := newSender(s, options)
	if err != nil {
		return wrongUsage(err)
	}
	defer sender.close()
	ready, err := sender.prepare(content)
	if err != nil {
		return wrongUsage(err)
	}
	return sender.send(ctx, ready)
}

// sendFile sends every envelope of a file. One that is wrong does not keep the others from being sent.
func sendFile(ctx context.Context, s Surroundings, options sendOptions, path string) error {
	input := s.Stdin
	if path != "-" {
		file, err := os.Open(path) //nolint:gosec // the operator names it
		if err != nil {
			return wrongUsage(err)
		}
		defer file.Close()
		input = file
	}
	sender, err := newSender(s, options)
	if err != nil {
		return wrongUsage(err)
	}
	defer sender.close()

	progress := newProgress(s.Stderr, "sent")
	defer progress.end()
	sent, problems := 0, []error{}
	reader := json.NewDecoder(input)
	for n := 1; ctx.Err() == nil; n++ {
		var content json.RawMessage
		err := reader.Decode(&content)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil { // where the next one begins is unknown
			problems = append(problems, fmt.Errorf("envelope %d: not JSON: %w; it and all after it were not sent", n, err))
			break
		}
		ready, err := sender.prepare(content)
		if err == nil {
			err = sender.send(ctx, ready)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("envelope %d: %w", n, err))
			continue
		}
		sent++
		progress.step()
	}
	if ctx.Err() != nil {
		problems = append(problems, fmt.Errorf("interrupted after %d envelopes", sent))
	}
	return partly(sent, problems)
}

// partly makes the error of a run of which some parts failed.
func partly(done int, problems []error) error {
	err := errors.Join(problems...)
	if err != nil && done > 0 {
		return &codeError{exitPartly, err}
	}
	return err
}

// sender puts envelopes on queues, or prints them.
type sender struct {
	options  sendOptions
	out      io.Writer
	store    *azure.Store
	encoding queue.Encoding
	rules    decision.Rules
}

func newSender(s Surroundings, options sendOptions) (*sender, error) {
	// A sender needs no app folder; where there is one, it says how messages are encoded.
	book, err := readRules(s, options.app)
	if err != nil {
		return nil, err
	}
	s.Environ = book.environ
	sender := &sender{options: options, out: s.Stdout, encoding: book.encoding, rules: book.rules}
	if options.dryRun {
		return sender, nil
	}
	connection, err := azure.ParseConnection(s.getenv, functionapp.ConnectionName)
	if err != nil {
		return nil, err
	}
	sender.store, err = azure.Open(connection)
	return sender, err
}

func (s *sender) close() {
	if s.store != nil {
		s.store.Close()
	}
}

// ready is an envelope that was checked and completed.
type ready struct {
	requestID, queue string
	content          []byte
	delay            time.Duration
}

// prepare checks an envelope as the handler would, and adds a request id and the time.
func (s *sender) prepare(content []byte) (ready, error) {
	if len(content) > maxInputBytes {
		return ready{}, fmt.Errorf("%d bytes: a message holds %d", len(content), s.encoding.MaxContentBytes())
	}
	now, limit := time.Now(), s.encoding.MaxContentBytes()
	in := s.rules.Open(content, uuid.NewString(), limit, now)
	if in.Malformed != nil {
		return ready{}, in.Malformed
	}
	e := in.Envelope
	if !e.Deadline.IsZero() && !e.Deadline.After(now) {
		return ready{}, errors.New("deadline: has passed already: no call would be made")
	}
	encoded, err := s.encode(e, limit)
	if err != nil {
		return ready{}, err
	}
	return ready{
		requestID: e.RequestID,
		queue:     queueFor(e.Priority),
		content:   encoded,
		delay:     min(max(e.DueAt().Sub(now), 0), queue.MaxDelay),
	}, nil
}

// encode writes an accepted envelope in the format that is asked for.
func (s *sender) encode(e *envelope.Envelope, limit int) ([]byte, error) {
	if s.options.nexus && e.Format() == envelope.FormatNative {
		content, err := e.ToNexus(s.options.tenant, e.GiveUpAt(s.rules.Expiration))
		if err != nil {
			return nil, err
		}
		return content, s.rules.Open(content, e.RequestID, limit, e.CreatedAt).Malformed
	}
	content, err := e.Successor(limit)
	return content.Bytes, err
}

// queueFor names the queue of a priority, 1 to 10, or the standard queue for 0.
func queueFor(priority int) string {
	if priority == 0 {
		return "async-caller"
	}
	return fmt.Sprintf("async-caller-%d", priority)
}

func (s *sender) send(ctx context.Context, r ready) error {
	if s.options.dryRun {
		_, err := fmt.Fprintf(s.out, "%s\n", indent(r.content, s.options.json))
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	item := queue.Item{Text: s.encoding.Encode(r.content), Delay: r.delay}
	message, err := s.store.Put(ctx, r.queue, item)
	if errors.Is(err, queue.ErrNoQueue) {
		if err = s.store.Create(ctx, r.queue); err == nil {
			message, err = s.store.Put(ctx, r.queue, item)
		}
	}
	if err != nil {
		return err
	}
	if !s.options.json {
		_, err = fmt.Fprintln(s.out, r.requestID)
		return err
	}
	return json.NewEncoder(s.out).Encode(struct {
		RequestID string `json:"requestId"`
		Queue     string `json:"queue"`
		MessageID string `json:"messageId"`
	}{r.requestID, r.queue, message.ID})
}

// indent lays JSON out for a person; a machine gets it on one line.
func indent(content []byte, machine bool) []byte {
	var b bytes.Buffer
	if machine || json.Indent(&b, content, "", "  ") != nil {
		return content
	}
	return b.Bytes()
}
