package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// exitDone is the exit code of a command that succeeds, also with an empty list.
const exitDone = 0

// early is a call that would wait ten minutes for its second attempt, and is delivered within seconds.
var early = scenario{script: "503,200", args: []string{"--retry", "10m", "--request-id", "order-4711"}}

// runEarly sends the call, and prints how an operator lists it and makes its next attempt due now. It returns an error
// unless the call is listed, then delivered, and then not listed any more.
func (c *Check) runEarly(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("gave up after %v", patience))
	defer cancel()
	id, err := c.send(ctx, early)
	if err != nil {
		return fmt.Errorf("send a message that waits: %w", err)
	}
	isListed := func(list command) bool { return strings.Contains(list.output, id) }
	listed, err := c.listUntil(ctx, isListed)
	if err != nil {
		return fmt.Errorf("%s was not listed as scheduled: %w", id, err)
	}
	fmt.Fprintf(c.Stdout, "The target answered 503 to %s. The next attempt is due in ten minutes. "+
		"To make it now:\n\n%s", id, listed)
	began := time.Now()
	retried := c.execute(ctx, "calls", "retry", id, "--yes")
	fmt.Fprint(c.Stdout, retried)
	if retried.code != exitDone {
		return fmt.Errorf("`%s` ended with exit code %d, want %d", retried.typed, retried.code, exitDone)
	}
	err = c.await(ctx, func() bool { return c.delivered(ctx, id) })
	if err != nil {
		return fmt.Errorf("%s was not delivered after `%s`: %w", id, retried.typed, err)
	}
	gone, err := c.listUntil(ctx, func(list command) bool { return !isListed(list) })
	if err != nil {
		return fmt.Errorf("%s was delivered, but did not leave the list of scheduled calls: %w", id, err)
	}
	calls := c.Target.Calls(id)
	delivery := calls[len(calls)-1]
	fmt.Fprintf(c.Stdout, "%s\nAttempt %s was answered %s, %v after the command started.\n\n",
		gone, delivery.Attempt, delivery.Answer, delivery.At.Sub(began).Round(time.Millisecond))
	return nil
}

// delivered reports whether the target has answered 200 to a call, and its message is deleted.
func (c *Check) delivered(ctx context.Context, id string) bool {
	calls := c.Target.Calls(id)
	if len(calls) == 0 || calls[len(calls)-1].Answer != "200" {
		return false
	}
	left, err := c.Store.Count(ctx, mainQueue)
	return err == nil && left == 0
}

// command is a command that has ended.
type command struct {
	typed, output string
	code          int // -1 if it was killed or could not be started
}

// String returns the command and its output as on a terminal, indented.
func (c command) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "  $ %s\n", c.typed)
	for line := range strings.Lines(c.output) {
		text.WriteString(strings.TrimRight("  "+line, " \n") + "\n")
	}
	return text.String()
}

// execute runs the command line as a user would.
func (c *Check) execute(ctx context.Context, args ...string) command {
	var output bytes.Buffer
	process := c.command(ctx, args...)
	process.Stdout, process.Stderr = &output, &output
	result := command{typed: strings.Join(process.Args, " ")}
	if err := process.Run(); err != nil {
		result.code = -1
		if exited, ok := errors.AsType[*exec.ExitError](err); ok {
			result.code = exited.ExitCode()
		} else {
			fmt.Fprintln(&output, err)
		}
	}
	result.output = output.String()
	return result
}

// listUntil lists scheduled messages until the result is as wanted, because the record of them is written in the
// background.
func (c *Check) listUntil(ctx context.Context, wanted func(command) bool) (latest command, err error) {
	found := false
	err = c.await(ctx, func() bool {
		list := c.execute(ctx, "calls", "list", "--state", "scheduled")
		if ctx.Err() == nil { // otherwise it was killed
			latest = list
		}
		found = latest.code == exitDone && wanted(latest)
		return found || latest.code != exitDone
	})
	switch {
	case found:
		return latest, nil
	case err != nil:
		return latest, fmt.Errorf("%w; the latest list is %q", err, latest.output)
	}
	return latest, fmt.Errorf("`%s` ended with exit code %d: %s", latest.typed, latest.code,
		strings.TrimSpace(latest.output))
}
