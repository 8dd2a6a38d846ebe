package lease

import "testing"

// PopReceipt returns the message's newest receipt.
func (m *Message) PopReceipt() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.popReceipt
}

// Text returns the message's text.
func (h *Holder) Text(m *Message) (string, error) { return h.texts.text(m.text) }

// TestSpoolCutShort checks that a missing text is an error, because zeros in its place would be written back to
// the queue.
func TestSpoolCutShort(t *testing.T) {
	var s spool
	defer s.close()
	where, err := s.append("a message")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := s.text(where); text != "a message" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if err := s.file.Truncate(4); err != nil {
		t.Fatal(err)
	}
	if text, err := s.text(where); err == nil {
		t.Errorf("read %q of a text that is cut short", text)
	}
}
