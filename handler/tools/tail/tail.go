// Package tail keeps the end of a child process's output, which explains why the process ended.
package tail

import "sync"

// Max is the number of bytes kept: enough for the stack trace of a Node program.
const Max = 8 << 10

// Writer keeps the last [Max] bytes of its input. The zero value is ready to use; it is safe for concurrent use.
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

// String returns the kept bytes.
func (w *Writer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.text)
}
