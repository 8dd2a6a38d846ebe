package delivery_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "write what follows from the cases of testdata/settlement")

// TestSettlement plays the settlement table: from the moment at which the host receives a message to the queues, rows
// and log lines that remain. Each file of testdata/settlement has a rule in its comment, and cases in two sections:
// NAME says what is given, in the lines that [directives] explains, and NAME.follows what happens. All of it is exact:
// the clock begins at 0s and shows whole seconds, calls take 40 ms, and there is no jitter.
//
// In both sections CALL, CALLBACK and SEEN503 stand for the members of an envelope in [shorthand]. In what follows,
// "as sent" is the content of the message, byte for byte; TARGET, BODY and SENDER are the URLs and the body of CALL and
// CALLBACK; m1, m2 … are the ids of messages in the order of their appearance, t1, t2 … those of traces, and s1, s2 …
// those of spans. A line of the log has R1 for the request and the target of most cases.
func TestSettlement(t *testing.T) {
	files, err := filepath.Glob("testdata/settlement/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if testCases(t, archive) && *update {
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// testCases plays the cases of a file, and puts what follows into the archive. It reports whether anything changed.
func testCases(t *testing.T, archive *txtar.Archive) (changed bool) {
	t.Helper()
	var sections []txtar.File
	for i, given := range archive.Files {
		name := given.Name
		if strings.HasSuffix(name, followsSuffix) {
			continue
		}
		var want []byte
		if next := i + 1; next < len(archive.Files) && archive.Files[next].Name == name+followsSuffix {
			want = archive.Files[next].Data
		}
		got := want // unless -run leaves the case out
		t.Run(name, func(t *testing.T) {
			got = []byte(playCase(t, string(given.Data)))
			if bytes.Equal(want, got) {
				return
			}
			changed = true
			if !*update {
				diff := cmp.Diff(lines(string(want)), lines(string(got)))
				t.Errorf("%s (-want +got):\n%s", name+followsSuffix, diff)
			}
		})
		sections = append(sections, given, txtar.File{Name: name + followsSuffix, Data: got})
	}
	archive.Files = sections
	return changed
}

const followsSuffix = ".follows"

func lines(text string) []string { return strings.Split(text, "\n") }

// playCase plays a case, and returns what follows.
func playCase(t *testing.T, given string) (follows string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPlay(t)
		for line := range strings.Lines(given) {
			line = strings.TrimSuffix(line, "\n")
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			name, arguments, _ := strings.Cut(line, " ")
			direct, isKnown := directives[name]
			if !isKnown {
				t.Fatalf("no directive %q", name)
			}
			direct(p, shorthand.Replace(arguments))
		}
		hasFaults := len(p.store.faults) > 0
		p.run()
		follows = named(p.out.String())
		if hasFaults { // the pauses between two tries are random
			follows = fraction.ReplaceAllString(follows, "$1$2")
			follows = milliseconds.ReplaceAllString(follows, "age=${1}s")
		}
	})
	for line := range strings.Lines(follows) {
		isTold := strings.Contains(line, " log ") || strings.Contains(line, " answered ")
		if isTold && strings.Contains(line, canary) {
			t.Errorf("a secret is in %s", line)
		}
	}
	return follows
}

var (
	fraction     = regexp.MustCompile(`(:[0-5][0-9])\.[0-9]+(Z|\+)`)
	milliseconds = regexp.MustCompile(`age=([0-9]+)[0-9]{3}\b`)
	ticket       = regexp.MustCompile(`"reserved":[0-9]+`)
	// anyID matches the ids that differ from run to run: of messages and requests, of traces, and of spans.
	anyID = regexp.MustCompile(
		`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b[0-9a-f]{32}\b|\b[0-9a-f]{16}\b`)
)

// shorthand abbreviates the members of envelopes. The call has something of everything, so that it can be seen to
// survive, and a secret wherever one can be.
var (
	shortened = []string{
		"CALL", `"call":{ "url":"` + callURL + `","method":"PUT","headers":{"Authorization":"` + canary +
			`","X-A":["1","2"]},"json":` + callBody + ` }`,
		"CALLBACK", `"callback":{"url":"` + callbackURL + `","headers":{"X-Key":"` + canary +
			`"}},"context":{ "order":[42] }`,
		"SEEN503", `"attempts":3,"latestAttemptAt":"1999-12-31T23:59:00Z","trail":[{"at":"1999-12-31T23:59:00Z",` +
			`"status":503,"tookMs":12}]`,
	}
	shorthand = strings.NewReplacer(
		"CALLBACK", shortened[3], "CALL", shortened[1], "SEEN503", shortened[5],
	)
	abbreviate = strings.NewReplacer(
		shortened[1], "CALL", shortened[3], "CALLBACK", shortened[5], "SEEN503",
	)
)

const (
	canary      = "C4nary"
	callURL     = "https://user:" + canary + "@target.example:8443/orders/42?code=" + canary
	callBody    = `{"b":1.50, "a":"` + canary + `"}`
	callbackURL = "https://sender.example/done?code=" + canary
)

// named gives ids names in the order of their appearance, and leaves out tickets, which are random.
func named(text string) string {
	text = ticket.ReplaceAllString(text, `"reserved":…`)
	known, counts := map[string]string{}, map[string]int{}
	return anyID.ReplaceAllStringFunc(text, func(id string) string {
		if known[id] == "" {
			kind := map[int]string{36: "m", 32: "t", 16: "s"}[len(id)]
			counts[kind]++
			known[id] = fmt.Sprint(kind, counts[kind])
		}
		return known[id]
	})
}
