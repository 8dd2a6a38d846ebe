package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"asynccaller/handler/internal/decision"
)

// lines shows the output of host and handler to a person: one line for each delivery of a message, and the warnings and
// errors. It is not safe for concurrent use.
type lines struct {
	out io.Writer
	// pending is the beginning of an unfinished line.
	pending []byte
}

// Write never fails: the demo goes on without its reader.
func (l *lines) Write(p []byte) (int, error) {
	l.pending = append(l.pending, p...)
	for {
		line, rest, found := bytes.Cut(l.pending, []byte("\n"))
		if !found {
			return len(p), nil
		}
		if text := readable(line); text != "" {
			fmt.Fprintln(l.out, text)
		}
		l.pending = append(l.pending[:0], rest...)
	}
}

// entry is a line of the log of host or handler.
type entry struct {
	Time      time.Time
	Level     string
	Message   string
	Error     string
	RequestID string `json:"request_id"`
	MessageID string `json:"message_id"`
	Action    decision.Action
	Reason    string
	Detail    string
	Attempt   int
	Status    int
	Delay     float64 // milliseconds
}

// readable returns a line for a person, or "" if the line is neither about a message nor about a problem.
func readable(line []byte) string {
	var e entry
	if json.Unmarshal(line, &e) != nil {
		return string(line)
	}
	text := e.Message
	switch {
	case e.Message == "settled":
		text = cmp.Or(e.RequestID, e.MessageID) + "  " + e.settled()
	case e.Level == "info" || e.Action != "": // "Giving up on envelope": the next line says it too
		return ""
	case e.Error != "":
		text += ": " + e.Error
	}
	return e.Time.Local().Format(time.TimeOnly) + "  " + text
}

// settled says how a delivery ended.
func (e entry) settled() string {
	var text string
	if e.Attempt > 0 {
		text = fmt.Sprintf("attempt %d: ", e.Attempt)
	}
	if e.Status > 0 {
		text += fmt.Sprintf("answered %d, ", e.Status)
	}
	switch e.Action {
	case decision.Finish:
		return text + "delivered"
	case decision.Reschedule:
		return text + fmt.Sprintf("%s, next in %v", e.Reason, (time.Duration(e.Delay)*time.Millisecond).
			Round(100*time.Millisecond))
	case decision.Callback:
		return text + fmt.Sprintf("%s, callback enqueued", e.Reason)
	case decision.DeadLetter:
		return text + fmt.Sprintf("dead letter, %s: %s", e.Reason, e.Detail)
	case decision.Drop, decision.Fault, decision.Hold, decision.Release, decision.Call:
	}
	return text + fmt.Sprintf("%s, %s", e.Action, e.Reason)
}
