package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/operate/send"
	"asynccaller/handler/internal/plain/bom"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/plain/nearest"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage/azure"
)

// sendOptions are the flags of send.
type sendOptions struct {
	draft               send.Draft
	body                *string // or @ with the name of its file
	queue               string
	dryRun, json, force bool
	app                 string
}

func newSend(env Env) *cobra.Command {
	command := &cobra.Command{
		Use:   "send [FILE]",
		Short: "Put envelopes on their queues",
		Long: `Put an envelope on the queue of its priority: async-caller, or async-caller-1 to async-caller-10.
The flags describe one envelope; FILE, or standard input for "-", contains any number of envelopes
as JSON, native ones and Nexus messages. A missing queue is created. The command prints the request
id of each envelope, and then the number of envelopes and the storage account to standard error.
An envelope that is larger than a message is sent with its body as gzip, if that helps: version 0.1
of the app does not deliver it. Warnings name members without effect, and headers that the C# app of
Nexus cannot read or send. An envelope whose callback or deadline is probably misspelt is refused.

While storage is busy, the command repeats a write. If storage's answer to a write is lost, the
envelope is perhaps sent: the exit code is 4, standard error names the request id, and --json prints
an object with "perhapsSent". Send it again with the same request id.

Other users of the machine can see the arguments of a command. Put secrets into files: give
--header @FILE, --body @FILE (@- for standard input), or an envelope in FILE, which can have all
members that an envelope has.

With --queue, put a body on the queue of a route: the message is the content of the call that
routes.json states.

The storage account is AzureWebJobsStorage, from the environment or local.settings.json. Settings of
an identity in the one and a connection string in the other are refused.`,
		Example: `  async-caller send --url https://example.com/orders --json-body '{"id":42}'
  async-caller send --url https://example.com/ping --retry 5s,1m,10m --deadline 2h
  async-caller send --url https://example.com/ --body @order.xml --header @headers.txt
  async-caller send --queue orders-in --body @order.xml
  async-caller send envelopes.jsonl`,
		Args: cobra.MaximumNArgs(1),
	}
	var o sendOptions
	flags := flagsOf(command)
	o.addTo(flags)
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		invalid, isInvalid := errors.AsType[*pflag.InvalidValueError](err)
		if isInvalid && invalid.GetFlag().Name == "json" {
			return errNoJSON
		}
		return err
	})
	command.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.check(flags, args); err != nil {
			return err
		}
		return o.run(cmd.Context(), env, args)
	}
	return command
}

func (o *sendOptions) addTo(flags *flagSet) {
	d := &o.draft
	plainFlag(flags, &d.Call.URL, "url", "`URL` to call; required without FILE")
	plainFlag(flags, &d.Call.Method, "method", "HTTP `method` (default POST with a body, else GET)")
	headerFlag(flags, &d.Call.Headers, addAsWritten, "`header` "+headerUsage)
	parsed(flags, &o.body, "body", "body as `text`, or @FILE with any bytes; @- is standard input",
		func(text string) (*string, error) { return &text, nil })
	parsed(flags, &o.queue, "queue", "`queue` of a route, which receives only a body", parseQueue)
	parsed(flags, &d.Call.JSON, "json-body", "body as `JSON`, sent as application/json", parseJSON)
	plainFlag(flags, &d.Callback.URL, "callback", "`URL` that receives the outcome")
	parsed(flags, &d.Priority, "priority",
		fmt.Sprintf("`priority` from 1 to %d (default the standard queue)", envelope.Priorities), atLeast(1))
	parsed(flags, &d.Deadline, "deadline",
		"latest `time` of the call (RFC 3339), or a duration from now", parseMoment)
	parsed(flags, &d.Retry, "retry",
		"retry `policy`: a name, delays such as 5s,1m,10m, or a JSON object", parseRetry)
	plainFlag(flags, &d.RequestID, "request-id", "`id` of the call (default a new UUID)")
	flags.command.MarkFlagsMutuallyExclusive("body", "json-body")

	flags.BoolVar(&o.force, "force", false, "also send envelopes whose callback or deadline is probably misspelt")
	flags.BoolVar(&o.dryRun, "dry-run", false, "print the envelopes and do not send them")
	flags.BoolVar(&o.json, "json", false, "print JSON, one object per line: requestId, queue, messageId, account")
	flags.StringVar(&o.app, "app", ".", "app folder with host.json and local.settings.json")
}

// addAsWritten adds a header in the user's spelling, which the target receives.
func addAsWritten(header http.Header, name, value string) { header[name] = append(header[name], value) }

// errNoJSON is the error for a body in the place of a file, or as the value of --json.
var errNoJSON = errors.New("FILE is the name of a file, and --json is for the output: give a body in JSON with " +
	"--json-body")

func (o *sendOptions) check(flags *flagSet, args []string) error {
	if len(args) == 1 && (strings.HasPrefix(args[0], "{") || strings.HasPrefix(args[0], "[")) {
		return usageError(errNoJSON)
	}
	if flags.Changed("queue") {
		hasMore := !reflect.DeepEqual(o.draft, send.Draft{}) || len(args) > 0 || o.dryRun || o.force
		flags.refuse(hasMore || o.body == nil,
			"--queue requires --body, and nothing else that describes a call: the route states it")
		return flags.err()
	}
	flags.refuse(len(args) == 0 && o.draft.Call.URL == "",
		"--url is missing; or give a FILE with envelopes, or --queue for a body on the queue of a route")
	describesEnvelope := o.body != nil || !reflect.DeepEqual(o.draft, send.Draft{})
	flags.refuse(describesEnvelope && len(args) == 1, "FILE excludes --url and other flags that describe an envelope")
	return flags.err()
}

func (o *sendOptions) run(ctx context.Context, env Env, args []string) error {
	if o.body != nil {
		content := []byte(*o.body)
		path, isFile := strings.CutPrefix(*o.body, "@")
		if isFile {
			var err error
			content, err = readFile(env, path)
			if err != nil {
				return usageError(fmt.Errorf("--body: %w", err))
			}
		}
		o.draft.Call.SetBody(content)
	}
	a, err := readApp(env, o.app)
	if err != nil {
		return err
	}
	sender := &send.Sender{Encoding: a.Host.Queues.MessageEncoding, Rules: a.Settings.Rules, Force: o.force}
	if !o.dryRun {
		store, err := openStore(a)
		if err != nil {
			return err
		}
		defer store.Close()
		sender.Store = store
		sender.Account = a.Connection.Account()
	}
	if len(args) == 1 {
		return o.sendFile(ctx, env, sender, args[0])
	}
	message, err := o.prepare(a, sender)
	if err != nil {
		return usageError(err)
	}
	status := newProgress(env)
	for _, warning := range message.Warnings {
		status.printf("warning: %s", warning)
	}
	if message.Compressed {
		reportCompressed(status, 1)
	}
	var receipt send.Receipt
	if !o.dryRun {
		receipt, err = sender.Send(ctx, message)
	}
	err = o.report(env.out, message, receipt, err)
	switch {
	case receipt.PerhapsSent:
		return fmt.Errorf("%w\n%s", err, o.again(receipt.RequestID))
	case err != nil:
		return err
	case o.queue == "":
		o.summarize(status, 1, sender.Account)
	default:
		status.printf("sent 1 message to %s in %s", o.queue, sender.Account)
	}
	if !o.dryRun {
		env.out.changed = "sent: request id " + receipt.RequestID
	}
	return nil
}

// report prints the result for a message: its receipt or, as JSON, also that it was perhaps sent. Err is the error of
// sending it. It returns the error for the user.
func (o *sendOptions) report(out *output, message send.Message, receipt send.Receipt, err error) error {
	if err == nil || o.json && receipt.PerhapsSent {
		_ = o.print(out, message, receipt) // output keeps the error
	}
	if !receipt.PerhapsSent {
		return err
	}
	id := ""
	if receipt.RequestID != "" {
		id = ": request id " + receipt.RequestID
	}
	return &codeError{exitPartly, fmt.Errorf("perhaps sent%s: %w", id, err)}
}

// again says how to send a message again that was perhaps sent, so that the target can recognize the second call.
func (o *sendOptions) again(id string) string {
	const same = ": the Idempotency-Key of both calls is this id"
	switch {
	case o.queue == "":
		return "to send it again, repeat the command with `--request-id " + format.ShellWord(id) + "`" + same
	case id != "":
		return "to send it again, repeat the command" + same
	}
	return "the request id is that of the message, and unknown: " +
		"before you send it again, look whether the target was called, or it is perhaps called twice"
}

// prepare returns the only message that the flags describe: an envelope, or the content of a call of a route.
func (o *sendOptions) prepare(a config.App, sender *send.Sender) (message send.Message, err error) {
	if o.queue == "" {
		content, err := o.draft.Encode()
		if err != nil {
			return message, err
		}
		return sender.Prepare(content)
	}
	to, hasRoute := a.Settings.Routes[o.queue]
	if !hasRoute {
		known := slices.Sorted(maps.Keys(a.Settings.Routes))
		return message, fmt.Errorf("--queue: %s has no route in %s%s\nqueues with a route: %s\n"+
			"name the app folder with --app, or omit --queue to send an envelope", o.queue,
			filepath.Join(o.app, config.RoutesFile), nearest.Hint(o.queue, known),
			cmp.Or(strings.Join(known, ", "), "none"))
	}
	if to.HTTPOnly {
		return message, fmt.Errorf(`--queue: nothing reads %s: its route has "queue": false in %s`, o.queue,
			filepath.Join(o.app, config.RoutesFile))
	}
	content := o.draft.Call.BodyBase64
	if o.draft.Call.Body != nil {
		content = []byte(*o.draft.Call.Body)
	}
	return sender.PrepareContent(to, content)
}

// mostWarnings is how many warnings about the envelopes of a file are printed. All may have the same mistake.
const mostWarnings = 20

// sendFile sends every envelope of a file and prints the results in the order of the file.
func (o *sendOptions) sendFile(ctx context.Context, env Env, sender *send.Sender, path string) error {
	input, err := env.open(path)
	if err != nil {
		return usageError(err)
	}
	defer input.Close()
	status := newProgress(env)
	defer status.clear()
	out := env.out
	out.progress = status
	sent, failed, perhapsSent, warned, compressed, latest := 0, 0, 0, 0, 0, 0
	advice := ""
	for sending := range sender.SendAll(ctx, bom.NewReader(input)) {
		message, receipt, err := sending.Wait()
		latest = sending.Number
		for _, warning := range message.Warnings {
			warned++
			if warned <= mostWarnings {
				status.printf("warning: envelope %d: %s", latest, warning)
			}
		}
		err = o.report(out, message, receipt, err)
		if message.Compressed {
			compressed++
		}
		switch {
		case err == nil:
			sent++
			status.count("", "sent", sent, 0)
			continue
		case receipt.PerhapsSent:
			perhapsSent++
		default:
			failed++
		}
		status.printf("%s: envelope %d: %v", programName, latest, err)
		advice = cmp.Or(advice, azure.Advice(err, azure.Roles))
	}
	if warned > mostWarnings {
		status.printf("%s not shown", format.Plural(warned-mostWarnings, "more warning"))
	}
	if compressed > 0 {
		reportCompressed(status, compressed)
	}
	o.summarize(status, sent, sender.Account)
	if sent+perhapsSent > 0 && !o.dryRun {
		out.changed = fmt.Sprintf("no envelope after number %d was sent", latest)
	}
	var problems []string
	if failed > 0 {
		problems = append(problems, format.Plural(failed, "envelope")+" not sent")
	}
	if perhapsSent > 0 {
		problems = append(problems, format.Plural(perhapsSent, "envelope")+" perhaps sent: to send it again, "+
			"give it the same request id: the Idempotency-Key of both calls is this id")
	}
	if ctx.Err() != nil && out.err == nil {
		problems = append(problems, fmt.Sprintf("interrupted after %s: none after number %d was sent",
			format.Plural(sent, "envelope"), latest))
	}
	if advice != "" {
		problems = append(problems, advice)
	}
	switch {
	case problems == nil:
		return nil
	case sent+perhapsSent > 0:
		return &codeError{exitPartly, errors.New(strings.Join(problems, "\n"))}
	}
	return errors.New(strings.Join(problems, "\n"))
}

// reportCompressed prints for how many envelopes [send.Message.Compressed] is set.
func reportCompressed(status *progress, n int) {
	status.printf("%s with the body as gzip, because it is larger than a message otherwise",
		format.Plural(n, "envelope"))
}

// print prints the receipt of a message, or the message for --dry-run.
func (o *sendOptions) print(out io.Writer, message send.Message, receipt send.Receipt) error {
	switch {
	case o.dryRun && o.json:
		_, err := fmt.Fprintf(out, "%s\n", message.Content)
		return err
	case o.dryRun:
		var content bytes.Buffer
		_ = json.Indent(&content, message.Content, "", "  ") // an envelope is JSON
		_, err := fmt.Fprintf(out, "%s\n", content.Bytes())
		return err
	case o.json:
		return printJSON(out, receipt)
	}
	_, err := fmt.Fprintln(out, receipt.RequestID)
	return err
}

// summarize prints how many envelopes were sent, and to which account.
func (o *sendOptions) summarize(status *progress, sent int, account string) {
	if sent > 0 && !o.dryRun {
		status.printf("sent %s to %s", format.Plural(sent, "envelope"), account)
	}
}
