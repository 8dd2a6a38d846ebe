// Package tail keeps the end of what a child process prints: enough to say why it ended, however much it was.
package tail

import "sync"

// Max is how much is kept, in bytes: enough for the stack trace of a Node program.
const Max = 8 << 10

// Writer keeps the last [Max] bytes of what is written to it. The zero value is ready; it is safe for
// concurrent use.
type Writer struct {
	mu   sync.Mutex
	text []byte
}

// Write never fails.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, p...)
	if extra := len(w.text) - Max; extra > 0 {
		w.text = append(w.text[:0], w.text[extra:]...)
	}
	return len(p), nil
}

// String is what is kept.
func (w *Writer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.text)
}
