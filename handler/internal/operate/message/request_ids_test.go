package message_test

import (
	"fmt"
	"testing"

	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/rules/envelope"
)

// TestManyRequestIDs: a list remembers a bounded number of request ids, and says that it has compared no others.
func TestManyRequestIDs(t *testing.T) {
	ids := &message.RequestIDs{}
	withRequestID := func(id string, n int) message.Message {
		return message.Message{ID: id, Format: envelope.FormatNative, RequestID: fmt.Sprint("r", n)}
	}
	for n := range message.MaxRequestIDs {
		if ids.Earlier(withRequestID(fmt.Sprint(n), n)) != "" || ids.Full {
			t.Fatal("a new request id is marked")
		}
	}
	beyond := withRequestID("x", message.MaxRequestIDs)
	if ids.Earlier(beyond) != "" || !ids.Full || ids.Earlier(beyond) != "" {
		t.Errorf("a request id is remembered beyond the limit, or the list does not say so: %t", ids.Full)
	}
	if ids.Earlier(withRequestID("y", 0)) != "0" || ids.Shared != 1 {
		t.Errorf("a remembered request id is not found: %d shared", ids.Shared)
	}
}
