package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestKeepTo: what is started is kept to the processors too, and all of them can be had again.
func TestKeepTo(t *testing.T) {
	all, err := processors()
	if err != nil || len(all) == 0 {
		t.Fatalf("processors %v, %v", all, err)
	}
	t.Cleanup(func() {
		if err := keepTo(all); err != nil {
			t.Error(err)
		}
		if now, err := processors(); err != nil || !slices.Equal(now, all) {
			t.Errorf("processors %v, %v; want %v again", now, err, all)
		}
	})
	if err := keepTo(all[:1]); err != nil {
		t.Fatal(err)
	}
	if now, err := processors(); err != nil || !slices.Equal(now, all[:1]) {
		t.Errorf("processors %v, %v; want %v", now, err, all[:1])
	}
	count, err := exec.CommandContext(t.Context(), "nproc").Output()
	if err != nil || strings.TrimSpace(string(count)) != "1" {
		t.Errorf("a program that is started has %q processors, %v", count, err)
	}
}
