package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/deliver/outbound"
	"asynccaller/handler/internal/operate/call"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/program/terminal"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/explain"
)

// explainOptions are the flags of explain.
type explainOptions struct {
	explain.Question
	outcome decision.Outcome
	body    string // or @ with the name of its file
	app     string
	json    bool
}

func newExplain(env Env) *cobra.Command {
	command := &cobra.Command{
		Use:   "explain FILE",
		Short: "Show how the handler would process an envelope, and why",
		Long: `Run the handler's rules on one envelope, without a call and without changing a queue, and show the
decisions. With --status or --failure, also show what would follow that result of the call: the rule
that applies, the time of the next attempt, and the message that would be written. Without them,
show the attempts that the retry policy would make at a target that never responds: the delay before
each, and its time after now, with the shortest and the longest delays that the jitter allows.

The exit code is 1 if no call is made, whatever the result would be, and no callback reports that to
the sender: the message is malformed, the target is refused, or the deadline passes before a call is
allowed.

The envelope comes from FILE, or standard input for "-", as JSON or base64. Nothing in the account
is read, so pauses and limits that operators have set do not count. "show ID" finds a message on the
queues, and says what the handler does with it.

Settings come from the environment and from local.settings.json, host.json, retry.json, targets.json
and routes.json in the app folder. The explanation begins with the values that these files have by
${NAME}, and says where they come from. Query strings, user info, header values, bodies and the
context are not shown otherwise.`,
		Example: `  async-caller explain order.json --status 503 --header 'Retry-After: 120'
  async-caller send --dry-run --url https://t.example/ --retry 5s,1m | async-caller explain -
  async-caller explain order.json --at 2026-12-24T18:00:00Z --json`,
		Args: cobra.ExactArgs(1),
	}
	var o explainOptions
	flags := flagsOf(command)
	o.addTo(flags)
	command.MarkFlagsMutuallyExclusive("status", "failure")
	command.RunE = func(_ *cobra.Command, args []string) error {
		if err := o.check(flags); err != nil {
			return err
		}
		return o.run(env, args[0])
	}
	return command
}

func (o *explainOptions) addTo(flags *flagSet) {
	parsed(flags, &o.outcome.Status, "status", "assume that the target answers with this `status`", parseFinalStatus)
	headerFlag(flags, &o.outcome.Header, http.Header.Add, "with --status: `header` of the answer "+headerUsage)
	plainFlag(flags, &o.body, "body", "with --status: body of the answer as `text`, or @FILE")
	parsed(flags, &o.outcome.Failure, "failure",
		"assume this `failure` instead of an answer: "+failureNames(), parseFailure)
	parsed(flags, &o.Now, "at",
		"`time` of the explanation (RFC 3339), or a duration from now (default now)", parseMoment)
	flags.BoolVar(&o.json, "json", false, "print one JSON object")
	flags.StringVar(&o.app, "app", ".", "app folder with host.json, local.settings.json and the other files")
}

func failureNames() string {
	var names []string
	for _, failure := range decision.Failures() {
		names = append(names, string(failure))
	}
	return strings.Join(names, ", ")
}

func parseFailure(text string) (decision.Failure, error) {
	if !slices.Contains(decision.Failures(), decision.Failure(text)) {
		return "", errors.New("want " + failureNames())
	}
	return decision.Failure(text), nil
}

// parseFinalStatus reads the status of an answer that is not a redirect.
func parseFinalStatus(text string) (int, error) {
	status, err := parseStatus(text)
	if outbound.IsRedirect(status) {
		return 0, errors.New("the handler follows redirects: give the final status, or --failure redirected")
	}
	return status, err
}

func (o *explainOptions) check(flags *flagSet) error {
	describesAnswer := o.outcome.Header != nil || flags.Changed("body")
	hasAnswer := o.outcome.Status != 0 || o.outcome.Failure == decision.FailureRedirected
	flags.refuse(describesAnswer && !hasAnswer,
		"--header and --body require --status, or --failure redirected")
	return flags.err()
}

func (o *explainOptions) run(env Env, file string) error {
	if err := o.readBody(env); err != nil {
		return usageError(fmt.Errorf("--body: %w", err))
	}
	if o.outcome.Status != 0 || o.outcome.Failure != "" {
		o.Outcome = &o.outcome
	}
	a, err := readApp(env, o.app)
	if a.SettingsErr != nil {
		err = usageError(fmt.Errorf("%w\na handler with these settings makes no calls: outside Development it is in "+
			"hold mode (docs/operating.md) until they are corrected and the app is restarted", err))
	}
	if err != nil {
		return err
	}
	o.MaxContentBytes = a.Host.Queues.MessageEncoding.MaxContentBytes()
	o.Guard = a.Settings.Guard
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	if err := o.readFile(env, a, file); err != nil {
		return err
	}
	explanation := explain.About(a.Settings.Rules, o.Question)
	var schedule explain.Schedule
	if o.Outcome == nil && explanation.NoCall == "" && explanation.Envelope.Refused == "" {
		schedule = explain.Simulate(a.Settings.Rules, o.Question)
	}
	if o.json {
		err = printJSON(env.out, struct {
			explain.Explanation
			Schedule  explain.Schedule  `json:"schedule,omitzero"`
			Variables []config.Variable `json:"variables,omitempty"`
		}{explanation, schedule, a.Settings.Variables})
	} else {
		for _, v := range a.Settings.Variables {
			terminal.PrintField(env.out, "variable", v.String())
		}
		printExplanation(env.out, o.Question, explanation)
		printSchedule(env.out, schedule)
	}
	if err == nil && explanation.NoCall != "" {
		err = &codeError{exitFailed, errors.New("no call is made: " + explanation.NoCall)}
	}
	return err
}

// readBody reads the body of the answer as serve does.
func (o *explainOptions) readBody(env Env) error {
	var body io.Reader = strings.NewReader(o.body)
	path, isFile := strings.CutPrefix(o.body, "@")
	if isFile {
		file, err := env.open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		body = file
	}
	return outbound.ReadAnswer(&o.outcome, body, -1, func() {})
}

// readFile reads the envelope from a file, as JSON or encoded as on a queue.
func (o *explainOptions) readFile(env Env, a config.App, path string) error {
	content, err := readText(env, path)
	if err != nil {
		return usageError(err)
	}
	o.MessageID = uuid.NewString()
	o.Content = content
	decoded, err := a.Host.Queues.MessageEncoding.Decode(string(bytes.TrimSpace(content)))
	_, forms := envelope.Unwrap(decoded)
	isObject := bytes.HasPrefix(bytes.TrimSpace(decoded), []byte("{"))
	if err == nil && (isObject || forms != nil) {
		o.Content = decoded
	}
	o.Queue = envelope.QueueFor(0)
	received := o.Open(a.Settings.Rules).Received
	if received != nil {
		o.Queue = envelope.QueueFor(received.Priority)
	}
	return nil
}

// printExplanation prints an explanation as text.
func printExplanation(out io.Writer, q explain.Question, x explain.Explanation) {
	if x.Envelope == nil {
		terminal.PrintLine(out, "envelope", "no: %s", x.Arrival.Detail)
	} else {
		terminal.PrintLine(out, "envelope", "yes, %s, %d bytes", x.Envelope.Format, x.Envelope.Bytes)
		printEnvelope(out, x.Envelope, q.Now)
	}
	for _, unknown := range x.Unknown {
		terminal.PrintLine(out, "warning", "%s", unknown)
	}
	fmt.Fprintf(out, "\nnow, %s\n", format.Moment(q.Now))
	printLines(out, "  ", call.StepLines(x.Arrival))
	switch {
	case x.AfterCall == nil && q.Outcome == nil:
		return
	case x.AfterCall == nil:
		fmt.Fprintf(out, "\nno call is made, so it does not matter that %s\n", assumption(*q.Outcome))
		return
	case x.Envelope.Refused != "":
		fmt.Fprintf(out, "\nno request is sent, because the target is refused, %s\n", format.Moment(x.AfterCall.At))
	default:
		fmt.Fprintf(out, "\nif %s, %s\n", assumption(*q.Outcome), format.Moment(x.AfterCall.At))
	}
	printAfterCall(out, *x.AfterCall, x.Envelope)
	if x.Otherwise != nil {
		fmt.Fprint(out, "\nor, if the random part of the delay is too long\n")
		printAfterCall(out, *x.Otherwise, x.Envelope)
	}
}

func assumption(o decision.Outcome) string {
	if o.Failure != "" {
		return fmt.Sprintf("there is no answer (%s)", o.Failure)
	}
	return fmt.Sprintf("the answer is %d", o.Status)
}

func printEnvelope(out io.Writer, e *explain.Envelope, now time.Time) {
	terminal.PrintField(out, "request id", e.RequestID)
	terminal.PrintField(out, "callback of", e.OriginalRequestID)
	terminal.PrintField(out, "tenant", call.TenantText(e.Organization, e.Environment))
	terminal.PrintField(out, "correlation id", e.CorrelationID)
	terminal.PrintLine(out, "call", "%s %s", e.Method, e.Target)
	if e.MovedTo != "" {
		terminal.PrintLine(out, "moved to", "%s (targets.json), which gets the sender's headers, query and body",
			e.MovedTo)
	}
	if e.RefusedIfShort != "" {
		terminal.PrintLine(out, "", "if only the handler's search list knows the host, %s", e.RefusedIfShort)
	}
	terminal.PrintField(out, "credential", e.Credential)
	terminal.PrintField(out, "signed with", e.SignedWith)
	terminal.PrintField(out, "headers", strings.Join(e.Headers, ", "))
	terminal.PrintLine(out, "body", "%d bytes", e.BodyBytes)
	terminal.PrintField(out, "callback", e.Callback)
	if e.MovedBack != nil {
		terminal.PrintLine(out, "dead letter", "%s after %d attempts: %s; it starts again",
			e.MovedBack.Reason, e.MovedBack.Attempts, e.MovedBack.Detail)
	}
	terminal.PrintField(out, "attempts", call.AttemptsText(e.Attempts, e.LatestStatus))
	switch {
	case e.DueAt == nil:
		terminal.PrintLine(out, "due", "yes")
	case e.Due:
		terminal.PrintLine(out, "due", "yes, since %s", format.Moment(*e.DueAt))
	default:
		terminal.PrintLine(out, "due", "no, not before %s, in %s", format.Moment(*e.DueAt),
			format.Duration(e.DueAt.Sub(now)))
	}
	left := e.Deadline.Sub(now)
	if left > 0 {
		terminal.PrintLine(out, "deadline", "%s, %s left; then %s",
			format.Moment(e.Deadline), format.Duration(left), call.Consequence(e.IfExpired))
	} else {
		terminal.PrintLine(out, "deadline", "%s, passed %s ago", format.Moment(e.Deadline),
			format.Duration(now.Sub(e.Deadline)))
	}
	if e.DeadlineLimited != "" {
		terminal.PrintLine(out, "", "limited by the operator: %s", e.DeadlineLimited)
	}
	terminal.PrintField(out, "profile", e.Profile)
	terminal.PrintField(out, "policy", policyText(e.Policy, e.MaxAttempts, e.Limited))
}

func printAfterCall(out io.Writer, s explain.Step, e *explain.Envelope) {
	terminal.PrintLine(out, "  rule", "%s", s.Rule)
	printLines(out, "  ", call.StepLines(s))
	if s.Next != nil {
		terminal.PrintLine(out, "  time left", "%s until the deadline at %s",
			format.Duration(e.Deadline.Sub(s.At)), format.Moment(e.Deadline))
	}
	callback := "no"
	if s.Callback {
		callback = "yes, to " + e.Callback
	}
	terminal.PrintLine(out, "  callback", "%s", callback)
}

// The rows of the first and of the last attempts that a schedule shows.
const (
	firstRows = 4
	lastRows  = 3
)

// printSchedule prints a row per attempt, unless there are none.
func printSchedule(out io.Writer, s explain.Schedule) {
	if len(s.Attempts) == 0 {
		return
	}
	fmt.Fprint(out, "\nif the target never responds\n")
	attempts := terminal.NewTable(out,
		terminal.Right("attempt", 9), terminal.Left("delay", 21), terminal.Flex("from now", 0))
	hidden := len(s.Attempts) - firstRows - lastRows
	for i, a := range s.Attempts {
		if i == firstRows && hidden > 1 {
			attempts.Row("…", format.Number(hidden)+" more", "")
		}
		if hidden > 1 && i >= firstRows && i < firstRows+hidden {
			continue
		}
		delay := "-"
		if i > 0 {
			delay = format.Range(a.ShortestWait, a.LongestWait)
		}
		attempts.Row(strconv.Itoa(a.N), delay, format.Range(a.Earliest, a.Latest))
	}
	count := format.Plural(s.Shortest.Attempts, "attempt")
	if s.Longest.Attempts < s.Shortest.Attempts {
		count = format.Number(s.Longest.Attempts) + " to " + count
	}
	end := count + " until the deadline"
	if s.Longest.Reason == decision.Exhausted {
		end = count + ": the policy allows no more"
	}
	if s.Shortest.Reason == "" { // it was cut
		end = "more than " + format.Plural(s.Longest.Attempts, "attempt")
	}
	fmt.Fprintf(out, "  %s\n", end)
}
