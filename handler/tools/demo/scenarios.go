package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/tools/testbed"
)

const (
	mainQueue   = "async-caller"
	poisonQueue = "async-caller-poison"
	// malformed is a message that is not an envelope.
	malformed = "this is not an envelope"
	// patience limits the time of all scenarios together; the slowest takes about 6 s.
	patience = 50 * time.Second
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

func (s system) scenarios() []scenario {
	return []scenario{
		{"delivered at once", "200", []string{"--body", "hello"}, "200", "delivered"},
		{
			"delivered at the third attempt", "503,reset,200",
			[]string{"--retry", "1s", "--json-body", `{"order":42}`},
			"503 reset 200", "delivered",
		},
		{
			"delivered with a callback", "200",
			[]string{"--callback", s.target.URL("204")},
			"200", "delivered, callback 200",
		},
		{
			"only a body, by a route", "",
			[]string{"--queue", routedQueue, "--body", `{"order":44}`},
			"503 200", "delivered",
		},
		{"rejected", "400", nil, "400", "dead letter: rejected"},
		{"expired", "503", []string{"--retry", "1s", "--deadline", "4s"}, "503 503 ...", "dead letter: expired"},
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
func (s system) play(ctx context.Context) ([]row, error) {
	var rows []row
	for _, scenario := range s.scenarios() {
		id, err := s.send(ctx, scenario)
		if err != nil {
			return nil, fmt.Errorf("send %q: %w", scenario.name, err)
		}
		rows = append(rows, row{scenario: scenario, requestID: id})
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_ = testbed.Await(waiting, func() bool { // the rows have the result
		if waiting.Err() != nil {
			return false // storage cannot be asked any more
		}
		reasons := s.deadLetters(waiting)
		left, err := s.store.Count(waiting, mainQueue)
		done := err == nil && left == 0
		for i := range rows {
			rows[i].observe(s, reasons)
			done = done && rows[i].asExpected()
		}
		return done || s.host.Ended()
	})
	switch {
	case ctx.Err() != nil:
		return nil, errors.New("interrupted")
	case s.host.Ended(): // what would have become of the messages is not known
		return nil, errHostEnded
	}
	return rows, nil
}

// send puts a message on the queue, with the command line as a user would.
func (s system) send(ctx context.Context, scenario scenario) (requestID string, err error) {
	if scenario.script == "" && scenario.args == nil {
		_, err := s.store.Put(ctx, mainQueue, storage.Item{Text: storage.Base64.Encode([]byte(malformed))})
		return malformed, err
	}
	args := append([]string{"send"}, scenario.args...)
	if scenario.script != "" {
		args = append(args, "--url", s.target.URL(scenario.script))
	}
	command := s.command(ctx, args...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	stdout, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(stdout)), nil
}

// command returns a command line as a user would type it. It runs in the app folder, so that it reads no file of the
// user, and its journals are in the demo's folder.
func (s system) command(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, filepath.Join(s.app, filepath.Base(executable)), args...)
	command.Args[0], command.Dir = executable, s.app
	command.Env = append(slices.Clip(s.environ),
		"AzureWebJobsStorage="+s.azurite.ConnectionString, testbed.LoopbackAllowed,
		"XDG_STATE_HOME="+s.state)
	return command
}

// deadLetters returns the reasons of the dead letters by request id; a malformed message is its own id.
func (s system) deadLetters(ctx context.Context) map[string]string {
	reasons := map[string]string{}
	messages, _ := s.store.Peek(ctx, poisonQueue, storage.MaxBatch) // at first the queue does not exist
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
func (r *row) observe(s system, reasons map[string]string) {
	var answers []string
	for _, call := range s.target.Calls(r.requestID) {
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
	for _, callback := range s.target.Calls(r.requestID + ".callback") {
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
