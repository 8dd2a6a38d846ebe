package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
)

const (
	mainQueue   = "async-caller"
	poisonQueue = "async-caller-poison"
	// malformed is a message that is not an envelope.
	malformed = "this is not an envelope"
)

// scenario is one message and its expected end.
type scenario struct {
	name string
	// script has the answers of the target to an envelope's call, args are flags of send. A scenario without both sends
	// malformed.
	script string
	args   []string
	// answers and outcome are the expected answers of the target and the expected outcome. "..." stands for any others:
	// how many calls fit before a deadline depends on the host's polls.
	answers, outcome string
}

func (c *Check) scenarios() []scenario {
	return []scenario{
		{"delivered at once", "200", []string{"--body", "hello"}, "200", "delivered"},
		{
			"delivered at the third attempt", "503,reset,200",
			[]string{"--retry", "1s", "--json-body", `{"order":42}`},
			"503 reset 200", "delivered",
		},
		{
			"delivered with a callback", "200",
			[]string{"--callback", c.Target.URL("204")},
			"200", "delivered, callback 200",
		},
		{
			"only a body, by a route", "",
			[]string{"--queue", routedQueue, "--body", `{"order":44}`},
			"503 200", "delivered",
		},
		{"rejected", "400", nil, "400", "dead letter: rejected"},
		{"expired", "503", []string{"--retry", "1s", "--deadline", c.Deadline}, "503 503 ...", "dead letter: expired"},
		{"malformed", "", nil, "", "dead letter: malformed"},
	}
}

// row is a scenario and its result.
type row struct {
	scenario
	requestID string
	attempts  int
	// gotAnswers and gotOutcome compare with answers and outcome.
	gotAnswers, gotOutcome string
}

func (r row) asExpected() bool { return r.gotAnswers == r.answers && r.gotOutcome == r.outcome }

// play sends all messages and waits until each has ended as expected, or patience is over.
func (c *Check) play(ctx context.Context) ([]row, error) {
	began := time.Now()
	var rows []row
	for _, scenario := range c.scenarios() {
		id, err := c.send(ctx, scenario)
		if err != nil {
			return nil, fmt.Errorf("send %q: %w", scenario.name, err)
		}
		rows = append(rows, row{scenario: scenario, requestID: id})
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := c.await(waiting, func() bool {
		if waiting.Err() != nil {
			return false // storage cannot be asked any more
		}
		reasons := c.deadLetters(waiting)
		left, err := c.Store.Count(waiting, mainQueue)
		done := err == nil && left == 0
		for i := range rows {
			r := &rows[i]
			wasExpected := r.asExpected()
			r.observe(c, reasons)
			done = done && r.asExpected()
			if r.asExpected() && !wasExpected {
				fmt.Fprintf(c.Stderr, "  %4.1f s  %s: %s\n", time.Since(began).Seconds(), r.name, r.gotOutcome)
			}
		}
		return done
	})
	if errors.Is(err, ErrEnded) { // what would have become of the messages is not known
		return nil, err
	}
	return rows, nil
}

// send puts a message on the queue, with the command line as a user would.
func (c *Check) send(ctx context.Context, scenario scenario) (requestID string, err error) {
	if scenario.script == "" && scenario.args == nil {
		_, err := c.Store.Put(ctx, mainQueue, storage.Item{Text: storage.Base64.Encode([]byte(malformed))})
		return malformed, err
	}
	args := append([]string{"send"}, scenario.args...)
	if scenario.script != "" {
		args = append(args, "--url", c.Target.URL(scenario.script))
	}
	command := c.command(ctx, args...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	stdout, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(stdout)), nil
}

// command returns a command line as a user would type it.
func (c *Check) command(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, c.Executable, args...) //nolint:gosec // it is our own
	command.Args[0], command.Dir, command.Env = c.Name, c.App, c.Environ
	return command
}

// deadLetters returns the reasons of the dead letters by request id; a malformed message is its own id.
func (c *Check) deadLetters(ctx context.Context) map[string]string {
	reasons := map[string]string{}
	messages, _ := c.Store.Peek(ctx, poisonQueue, storage.MaxBatch) // at first the queue does not exist
	for _, m := range messages {
		content, err := storage.Base64.Decode(m.Text)
		if err != nil {
			continue
		}
		e, err := envelope.Parse(content)
		switch {
		case err != nil:
			reasons[string(content)] = "malformed"
		case e.DeadLetter != nil:
			reasons[e.RequestID] = e.DeadLetter.Reason
		}
	}
	return reasons
}

// observe fills in what is known so far.
func (r *row) observe(c *Check, reasons map[string]string) {
	var answers []string
	for _, call := range c.Target.Calls(r.requestID) {
		answers = append(answers, call.Answer)
	}
	r.attempts = len(answers)
	r.gotOutcome = "waiting"
	if r.attempts > 0 && answers[r.attempts-1] == "200" {
		r.gotOutcome = "delivered"
	}
	if strings.HasSuffix(r.answers, "...") && r.attempts >= 2 {
		answers = append(answers[:2], "...")
	}
	r.gotAnswers = strings.Join(answers, " ")
	for _, callback := range c.Target.Calls(r.requestID + ".callback") {
		var report struct {
			ID         string `json:"Id"`
			StatusCode int
		}
		if json.Unmarshal(callback.Body, &report) == nil && report.ID == r.requestID {
			r.gotOutcome += fmt.Sprintf(", callback %d", report.StatusCode)
		}
	}
	if reason := reasons[r.requestID]; reason != "" {
		r.gotOutcome = "dead letter: " + reason
	}
}

// report prints the table and returns how many messages did not end as expected.
func report(out io.Writer, rows []row) (unexpected int) {
	const form = "%-32s %8s  %-15s %-25s %s\n"
	fmt.Fprintln(out)
	fmt.Fprintf(out, form, "MESSAGE", "ATTEMPTS", "ANSWERS", "OUTCOME", "AS EXPECTED")
	for _, r := range rows {
		verdict := "yes"
		if !r.asExpected() {
			unexpected++
			verdict = "no"
		}
		fmt.Fprintf(out, form, r.name, fmt.Sprint(r.attempts), r.gotAnswers, r.gotOutcome, verdict)
		if !r.asExpected() {
			fmt.Fprintf(out, form, "  expected", "", r.answers, r.outcome, "")
		}
	}
	fmt.Fprintln(out)
	return unexpected
}
