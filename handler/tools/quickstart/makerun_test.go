package quickstart

import "testing"

// TestMakeRun does with a running app what the documents tell the reader to do.
func TestMakeRun(t *testing.T) {
	run := startMakeRun(t)
	t.Run("senders", func(t *testing.T) { deliverSenders(t, run) })
}
