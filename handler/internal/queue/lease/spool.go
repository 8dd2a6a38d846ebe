package lease

import (
	"fmt"
	"os"
	"sync"
)

// spool keeps texts on disk, so that a queue of any length needs little memory. Nobody else can read its file,
// which is gone when the process ends. The zero value is an empty spool.
type spool struct {
	file *os.File

	mu   sync.Mutex
	size int64
}

// span locates a text in the file.
type span struct {
	at     int64
	length int
}

func (s *spool) append(text string) (span, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		file, err := os.CreateTemp("", "async-caller-*")
		if err != nil {
			return span{}, fmt.Errorf("temporary file for messages: %w", err)
		}
		// Unix keeps an open file without a name until it is closed. Elsewhere close removes it.
		_ = os.Remove(file.Name())
		s.file = file
	}
	where := span{at: s.size, length: len(text)}
	if _, err := s.file.WriteAt([]byte(text), where.at); err != nil {
		return span{}, fmt.Errorf("temporary file for messages: %w", err)
	}
	s.size += int64(len(text))
	return where, nil
}

func (s *spool) text(where span) (string, error) {
	text := make([]byte, where.length)
	if n, err := s.file.ReadAt(text, where.at); n < len(text) {
		return "", fmt.Errorf("temporary file for messages: %w", err)
	}
	return string(text), nil
}

func (s *spool) close() {
	if s.file == nil {
		return
	}
	_ = s.file.Close()
	_ = os.Remove(s.file.Name())
}
