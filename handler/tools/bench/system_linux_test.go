package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestKeepTo checks that a process which is started meanwhile is restricted too, and that the restriction ends.
func TestKeepTo(t *testing.T) {
	all, err := processors()
	if err != nil || len(all) == 0 {
		t.Fatalf("processors %v, %v", all, err)
	}
	var count []byte
	err = onProcessors(all[:1], all, func() (err error) {
		count, err = exec.CommandContext(t.Context(), "nproc").Output()
		return err
	})
	if err != nil || strings.TrimSpace(string(count)) != "1" {
		t.Errorf("a process that is started has %q processors, %v", count, err)
	}
	if now, err := processors(); err != nil || !slices.Equal(now, all) {
		t.Errorf("processors %v, %v; want %v again", now, err, all)
	}
}
