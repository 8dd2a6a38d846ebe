package cli

import (
	"fmt"
	"io"
	"time"
)

// Progress is shown once work lasts longer than a person waits without wondering, and only to a person.
const (
	progressAfter = 2 * time.Second
	progressEvery = 200 * time.Millisecond
)

// progress counts on a terminal's last line.
type progress struct {
	out            io.Writer
	verb           string
	count          int
	started, shown time.Time
}

// newProgress starts to count; out is written to only if it is a terminal.
func newProgress(out io.Writer, verb string) *progress {
	if !isTerminal(out) {
		out = nil
	}
	return &progress{out: out, verb: verb, started: time.Now()}
}

func (p *progress) step() {
	p.count++
	now := time.Now()
	elapsed := now.Sub(p.started)
	if p.out == nil || elapsed < progressAfter || now.Sub(p.shown) < progressEvery {
		return
	}
	p.shown = now
	fmt.Fprintf(p.out, "\r%s %d, %.0f/s ", p.verb, p.count, float64(p.count)/elapsed.Seconds())
}

func (p *progress) end() {
	if p.out != nil && !p.shown.IsZero() {
		fmt.Fprintf(p.out, "\r%s %d in %v\n", p.verb, p.count, time.Since(p.started).Round(time.Second))
	}
}
