package cli

import (
	"fmt"
	"io"
	"sync"
)

// teller tells a person how work goes. It is the one that writes to standard error, so that a line of
// progress is never in the way of another. It is safe for concurrent use.
type teller struct {
	mu   sync.Mutex
	err  io.Writer
	line *progress
	// about is what line counts: a queue that is looked at, or the run.
	about string
}

// Scanned tells how many messages of a queue were looked at. Each queue starts to count anew.
func (t *teller) Scanned(queueName string, seen, total int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counting("queue "+queueName, "looked at")
	t.line.to(seen, total, "about ")
}

// Advanced tells how many messages of a run are over and done with.
func (t *teller) Advanced(done, total int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counting("run", "done with")
	t.line.to(done, total, "")
}

// Note tells something worth a line of its own.
func (t *teller) Note(text string) { t.say("%s", text) }

func (t *teller) counting(about, verb string) {
	if t.about == about {
		return
	}
	t.clear()
	t.about, t.line = about, newProgress(t.err, verb)
}

// say writes a line to standard error.
func (t *teller) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clear()
	fmt.Fprintf(t.err, format+"\n", args...)
}

// quiet takes the line of progress away before something else is written to the terminal.
func (t *teller) quiet() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clear()
}

func (t *teller) clear() {
	if t.line != nil {
		t.line.clear()
	}
}
