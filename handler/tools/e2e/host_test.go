package e2e_test

import (
	"os"
	"testing"
)

// underFunc says that the scenarios run on the Functions host, `func start` of the Core Tools on the PATH, in place of
// the local host: `make test-func`. Everything that differs is in this file, in package testbed (func.go), and where a
// scenario names underFunc.
var underFunc = os.Getenv("E2E_HOST") == "func"

// underWorker says that `async-caller work` runs the scenarios.
var underWorker = os.Getenv("E2E_HOST") == "work"

// needsHost skips a scenario that a worker cannot have, and says why.
func needsHost(t *testing.T, why string) {
	t.Helper()
	if underWorker {
		t.Skip("not in a worker:", why)
	}
}

// onlyLocal skips a scenario that the Functions host of Core Tools cannot run, and says why.
func onlyLocal(t *testing.T, why string) {
	t.Helper()
	if underFunc {
		t.Skip("not under func start:", why)
	}
}

// stopAndCount stops the host and checks the counts in its last log line. The Functions host counts nothing: it is only
// stopped.
func (f *fixture) stopAndCount(want map[string]float64) {
	f.t.Helper()
	f.must(f.host.Stop(hostGrace))
	if underFunc {
		return
	}
	summary := "host stopped"
	if underWorker {
		summary = "worker stopped"
	}
	lines := f.host.Lines(summary)
	if len(lines) != 1 {
		f.t.Fatalf("%d summaries", len(lines))
	}
	for name, count := range want {
		if lines[0][name] != count {
			f.t.Errorf("the host counted %v, want %s %v", lines[0], name, count)
		}
	}
}
