package e2e_test

import (
	"os"
	"testing"
)

// underFunc says that the scenarios run on the Functions host, `func start` of the Core Tools on the PATH, in place of
// the local host: `make test-func`. Everything that differs is in this file, in package testbed (func.go), and where a
// scenario names underFunc.
var underFunc = os.Getenv("E2E_HOST") == "func"

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
	lines := f.host.Lines("host stopped")
	if len(lines) != 1 {
		f.t.Fatalf("%d summaries", len(lines))
	}
	for name, count := range want {
		if lines[0][name] != count {
			f.t.Errorf("the host counted %v, want %s %v", lines[0], name, count)
		}
	}
}
