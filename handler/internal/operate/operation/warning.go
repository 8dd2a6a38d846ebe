package operation

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/message/edit"
	"asynccaller/handler/internal/operate/run"
)

// Name identifies a message.
type Name = run.Name

// Warning is what a person should know before a plan is confirmed. It concerns Count messages; Messages are the
// first of them.
type Warning struct {
	Why      string `json:"why"`
	Count    int    `json:"count"`
	Messages []Name `json:"messages"`
}

// The reasons for warnings that do not depend on edits.
const (
	repeatedWrite = "storage did not answer when the message was written, so that there may be a second message " +
		"of the call, which the record does not have"
	callbackSent = "a callback has told the sender that the call is cancelled; undo does not revoke it"
	noCallback   = "no callback is sent, because there may be a second message of the call"
)

// maxWarnings limits the warnings of a plan: an edit can have another result for each message.
const maxWarnings = 20

// warn adds a message to the warning for a reason.
func (p *Plan) warn(why string, m Name) { p.Warnings = addWarning(p.Warnings, why, m) }

func addWarning(warnings []Warning, why string, m Name) []Warning {
	n := slices.IndexFunc(warnings, func(w Warning) bool { return w.Why == why })
	if n < 0 {
		n = len(warnings)
		if n == maxWarnings {
			return warnings
		}
		warnings = append(warnings, Warning{Why: why})
	}
	w := &warnings[n]
	w.Count++
	if len(w.Messages) < maxRefusals {
		w.Messages = append(w.Messages, m)
	}
	return warnings
}

// ErrNoEffect means that an edit does nothing, so that its path is probably misspelt.
var ErrNoEffect = errors.New("edits without effect are refused without --force")

// notes are what a person should know of edits: warnings, and edits that have no effect.
type notes struct{ warnings, idle []Warning }

// add notes what a person should know of the edits of one message.
func (n *notes) add(o edit.Options, before, after []byte, m Name) {
	for _, why := range o.Warnings(before, after) {
		n.warnings = addWarning(n.warnings, why, m)
	}
	for _, why := range o.WithoutEffect(before, after) {
		n.idle = addWarning(n.idle, why, m)
	}
}

// judge returns the warnings of a plan, and an [ErrNoEffect] if edits do nothing and are not forced.
func (n *notes) judge(force bool) (warnings []Warning, err error) {
	warnings = slices.Concat(n.idle, n.warnings)
	if force || len(n.idle) == 0 {
		return warnings, nil
	}
	var texts []string
	for _, w := range n.idle[:min(len(n.idle), mostIdle)] {
		texts = append(texts, w.Why)
	}
	if more := len(n.idle) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return warnings, fmt.Errorf("%w: %s", ErrNoEffect, strings.Join(texts, "; "))
}

// mostIdle is the largest number of edits without effect that an error names.
const mostIdle = 3

// nameOf returns the name of the message of a row, whose texts are printable.
func nameOf(row record.Row) Name {
	m := message.FromRow(row)
	return Name{Queue: m.Queue, ID: m.ID, RequestID: m.RequestID}
}
