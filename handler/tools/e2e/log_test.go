package e2e_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestLiveLog reads the log of a real run, as the local host prints it and as `func start` does.
func TestLiveLog(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	f.put("delivered", "503,200", `,"retry":{"schedule":["1s"]}`)
	f.put("rejected", "422", "")
	f.putContent([]byte("malformed"))
	f.start(nil)
	f.await("the end of all messages", func() bool {
		return len(f.target.Calls("delivered")) == 2 && f.count(poisonQueue) == 2
	})
	f.awaitEmpty()
	f.must(f.host.Stop(patience))

	for _, prefix := range []string{"", "[2026-11-24T10:00:00.000Z] "} {
		read := exec.CommandContext(t.Context(), executable, "log")
		read.Stdin = strings.NewReader(prefix + strings.ReplaceAll(f.host.Output(), "\n", "\n"+prefix))
		output, err := read.CombinedOutput()
		f.must(err)
		for _, want := range []string{
			`delivered  127\.0\.0\.1:\d+  attempt 1 \(\S+\): answered 503, temporary_status, next in 1s`,
			`delivered  127\.0\.0\.1:\d+  attempt 2 \(\S+\): answered 200, delivered`,
			`rejected  127\.0\.0\.1:\d+  attempt 1 \(\S+\): answered 422, dead letter, rejected`,
			`\S+  dead letter, malformed: not JSON: .*`,
		} {
			line := regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d  ` + want + `$`)
			if found := line.FindAllIndex(output, -1); len(found) != 1 {
				t.Errorf("%d lines match %s in\n%s", len(found), want, output)
			}
		}
		if !underFunc && strings.Contains(string(output), "{") { // func prints braces of its own
			t.Errorf("JSON in\n%s", output)
		}
	}
}
