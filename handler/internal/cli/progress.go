package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Progress is shown once work lasts longer than a person waits without wondering, and only to a person.
const (
	progressAfter = 2 * time.Second
	progressEvery = 200 * time.Millisecond
)

// progress counts on a terminal's last line.
type progress struct {
	out   io.Writer
	verb  string
	count int
	// base is how many were done before it began, by somebody else.
	base           int
	begun          bool
	now            func() time.Time
	started, shown time.Time
	// width is that of the line that stands there, 0 for none.
	width int
}

// newProgress starts to count; out is written to only if it is a terminal.
func newProgress(out io.Writer, verb string) *progress {
	if !isTerminal(out) {
		out = nil
	}
	return &progress{out: out, verb: verb, now: time.Now, started: time.Now()}
}

// step counts one more, of nobody knows how many.
func (p *progress) step() { p.to(p.count+1, 0, "") }

// to says that count of total are done; a total of 0 is not known. About stands before the total where that
// is only about right.
func (p *progress) to(count, total int, about string) {
	if !p.begun {
		p.base, p.begun = count-1, true
	}
	p.count = count
	now := p.now()
	if p.out == nil || now.Sub(p.started) < progressAfter || now.Sub(p.shown) < progressEvery {
		return
	}
	p.shown = now
	line := progressLine(p.verb, about, count, total, p.rate(now))
	p.clear()
	fmt.Fprint(p.out, line)
	p.width = len(line)
}

// rate is how many a second are done.
func (p *progress) rate(now time.Time) float64 {
	return float64(p.count-p.base) / now.Sub(p.started).Seconds()
}

// progressLine says how far work has come: "looked at 3,200 of about 10,000, 450/s, 15s left".
func progressLine(verb, about string, count, total int, rate float64) string {
	if total <= 0 {
		return fmt.Sprintf("%s %s, %.0f/s", verb, thousands(count), rate)
	}
	line := fmt.Sprintf("%s %s of %s%s, %.0f/s", verb, thousands(count), about, thousands(max(total, count)), rate)
	if rate > 0 {
		left := time.Duration(float64(max(total-count, 0)) / rate * float64(time.Second))
		line += fmt.Sprintf(", %v left", left.Round(time.Second))
	}
	return line
}

// clear takes the line away, so that something else can stand there.
func (p *progress) clear() {
	if p.out != nil && p.width > 0 {
		fmt.Fprintf(p.out, "\r%s\r", strings.Repeat(" ", p.width)) // not every terminal knows escape sequences
		p.width = 0
	}
}

func (p *progress) end() {
	if p.out != nil && !p.shown.IsZero() {
		p.clear()
		fmt.Fprintf(p.out, "%s %s in %v\n", p.verb, thousands(p.count), p.now().Sub(p.started).Round(time.Second))
	}
}

// thousands writes a number as people read it: 12,345.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}
