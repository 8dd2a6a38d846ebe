package main

import (
	"errors"
	"testing"
)

// TestOwnProcess: the real files have the form that the parsers expect.
func TestOwnProcess(t *testing.T) {
	_, err := cpuTime("self")
	now, peak, memoryErr := memory("self")
	if err := errors.Join(err, memoryErr); err != nil {
		t.Fatal(err)
	}
	if now <= 0 || peak < now/2 || most() <= 0 {
		t.Errorf("memory %d, at most %d, %d calls", now, peak, most())
	}
}
