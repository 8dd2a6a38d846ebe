package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/tools/testbed"
)

const (
	mainQueue   = "async-caller"
	poisonQueue = "async-caller-poison"
	// rubbish is the message that is no envelope.
	rubbish = "this is not an envelope"
)

// scenario is one message and the fate that it should have.
type scenario struct {
	name string
	// script is what the target answers; args are flags of send. A scenario without script is rubbish.
	script string
	args   []string
	// answers are what the target should have given, and outcome is what should have become of it.
	answers, outcome string
}

func scenarios(p parts) []scenario {
	return []scenario{
		{"delivered at once", "200", []string{"--body", "hello"}, "200", "delivered"},
		{"delivered at the third attempt", "503,reset,200", []string{"--retry", "1s", "--json-body", `{"order":42}`}, "503 reset 200", "delivered"},
		{"delivered, sender told", "200", []string{"--callback", p.target.URL("204"), "--context", `{"order":43}`}, "200", "delivered, callback 200"},
		{"rejected", "400", nil, "400", "dead letter: rejected"},
		{"expired", "503", []string{"--retry", "1s", "--deadline", "4s"}, "503 503 ...", "dead letter: expired"},
		{"malformed", "", nil, "", "dead letter: malformed"},
	}
}

// row is what became of a scenario.
type row struct {
	scenario
	requestID string
	attempts  int
	// seen are the answers that the target gave, became what came of the message.
	seen, became string
	ok           bool
}

// play sends all messages and waits until each has met its fate, or patience is at an end.
func play(ctx context.Context, p parts) ([]row, error) {
	var rows []row
	for _, s := range scenarios(p) {
		id, err := send(ctx, p, s)
		if err != nil {
			return nil, fmt.Errorf("sending %q: %w", s.name, err)
		}
		rows = append(rows, row{scenario: s, requestID: id})
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("patience"))
	defer cancel()
	err := testbed.Await(ctx, func() bool {
		dead := deadLetters(ctx, p)
		for i := range rows {
			rows[i].observe(p, dead)
		}
		select {
		case <-p.host.Done():
			return true
		default:
		}
		return count(rows, func(r row) bool { return r.ok }) == len(rows) && empty(ctx, p)
	})
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return nil, errors.New("interrupted")
	}
	return rows, nil
}

// send puts a message on the queue, through the command line as a user would.
func send(ctx context.Context, p parts, s scenario) (requestID string, err error) {
	if s.script == "" {
		_, err := p.store.Put(ctx, mainQueue, queue.Item{Text: queue.Base64.Encode([]byte(rubbish))})
		return "", err
	}
	args := append([]string{"send", "--url", p.target.URL(s.script)}, s.args...)
	command := exec.CommandContext(ctx, executable, args...)
	command.Env = append(os.Environ(), "AzureWebJobsStorage="+p.azurite.ConnectionString)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	stdout, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(stdout)), nil
}

// deadLetters reads the poison queue: reasons by request id, rubbish under its own text.
func deadLetters(ctx context.Context, p parts) map[string]string {
	reasons := map[string]string{}
	messages, err := p.store.Peek(ctx, poisonQueue, queue.MaxBatch)
	if err != nil {
		return reasons // not there yet
	}
	for _, m := range messages {
		content, err := queue.Base64.Decode(m.Text)
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

func empty(ctx context.Context, p parts) bool {
	n, err := p.store.Count(ctx, mainQueue)
	return err == nil && n == 0
}

// observe fills in what is known of a row so far.
func (r *row) observe(p parts, dead map[string]string) {
	if r.script == "" {
		r.settle(nil, dead[rubbish], "")
		return
	}
	var answers []string
	for _, call := range p.target.Calls(r.requestID) {
		answers = append(answers, call.Answer)
	}
	told := ""
	if calls := p.target.Calls(r.requestID + ".callback"); len(calls) == 1 {
		told = toldStatus(calls[0].Body, r.requestID)
	}
	r.settle(answers, dead[r.requestID], told)
}

// settle says in words what was seen: the target's answers, the reason on a dead letter, and the status
// that a callback told.
func (r *row) settle(answers []string, deadReason, told string) {
	r.attempts = len(answers)
	r.seen = strings.Join(answers, " ")
	if len(answers) > 3 {
		r.seen = strings.Join(answers[:2], " ") + " ..."
	}
	switch {
	case deadReason != "":
		r.became = "dead letter: " + deadReason
	case told != "":
		r.became = "delivered, callback " + told
	case len(answers) > 0 && answers[len(answers)-1] == "200":
		r.became = "delivered"
	default:
		r.became = "waiting"
	}
	r.ok = r.became == r.outcome && r.seen == r.answers
}

// toldStatus is the status in a callback's body, if that is about the right call.
func toldStatus(body []byte, requestID string) string {
	var told struct {
		ID         string `json:"Id"`
		StatusCode int
	}
	if json.Unmarshal(body, &told) != nil || told.ID != requestID {
		return ""
	}
	return strconv.Itoa(told.StatusCode)
}
