package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/itchyny/gojq"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/program/terminal"
	"asynccaller/handler/internal/rules/envelope"
)

// TestExportToTable checks that the jq expression of docs/calls.md makes a row of each line of an export.
func TestExportToTable(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(project, "docs", "calls.md"))
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile(`calls export .*\| jq -r '(.+)'`).FindSubmatch(page)
	if shown == nil {
		t.Fatal("the page shows no export to jq")
	}
	expression, err := gojq.Parse(string(shown[1]))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		answered := `{"asyncCaller":1,"requestId":"r1","call":{"url":"https://t.example/a"},"trail":[{"status":400}],` +
			`"deadLetter":{"reason":"rejected","detail":"answered \"400\""}}`
		d := newTestSession(t, answered, `{"asyncCaller":1,"call":{"ulr":"https://t.example/a"}}`)
		if err := d.writeExport(t.Context(), ofPoison(account.Source{}), d.out); err != nil {
			t.Fatal(err)
		}
		var rows []any
		for line := range strings.Lines(d.stdout.String()) {
			var exported any
			if err := json.Unmarshal([]byte(line), &exported); err != nil {
				t.Fatal(err)
			}
			row, _ := expression.Run(exported).Next()
			rows = append(rows, row)
		}
		want := []any{`"r1","t.example","/a",400,"answered ""400"""`, `"","",,,"call.url: missing"`}
		if diff := cmp.Diff(want, rows); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// TestTablesFit checks that no table is wider than the terminal, and that ids and runs are whole.
func TestTablesFit(t *testing.T) {
	const many = 123_456_789
	long, name := strings.Repeat("x", 300), strings.Repeat("q", 56)+"-poison"
	old := time.Now().Add(-999 * 24 * time.Hour)
	shown := message.Message{
		ID: "0A1B2C3D-1", Queue: name, Reason: long, Detail: long, Attempts: many, Status: 999, Since: old,
		Format: envelope.FormatNative, Method: long, Host: long, Path: long,
	}
	const requeue, undo = "20261119-120000-requeue-cccc", "20261121-115900-undo-aaaa"
	runs := []operation.RunSummary{
		{Here: true, Summary: run.Summary{Run: undo, At: old, Total: 3, Done: 3, State: "finished", Of: requeue}},
		{Here: true, Summary: run.Summary{
			Run: requeue, At: old, Total: 100_000, Done: 99_999, State: "partly undone", UndoneBy: undo,
		}},
		{Here: true, Summary: run.Summary{Run: requeue, State: "unreadable", Problem: long}},
	}
	for table, c := range map[string]struct {
		print func(io.Writer)
		lines int
		whole []string
	}{
		"list": {func(out io.Writer) {
			fmt.Fprint(out, poisonLine(poisonTable(out), message.Recorded{Message: shown}, ""))
		}, 1, []string{"0a1b2c3d "}},
		"groups": {func(out io.Writer) {
			printGroups(out, []message.Row{{Key: long, Count: many, First: old, Last: old, Sample: shown}})
		}, 2, []string{" 0a1b2c3d "}},
		"runs": {func(out io.Writer) { printRuns(out, runs, time.Now()) }, 4, []string{undo + " ", requeue + " "}},
	} {
		for _, width := range []int{40, 60, 80, terminal.DefaultWidth, 200} {
			out := &screen{width: width}
			c.print(out)
			for line := range strings.Lines(out.String()) {
				if n := terminal.DisplayWidth(strings.TrimSuffix(line, "\n")); n > width {
					t.Errorf("%s: %d columns instead of %d: %s", table, n, width, line)
				}
			}
			if n := strings.Count(out.String(), "\n"); n != c.lines {
				t.Errorf("%s: %d lines, want %d:\n%s", table, n, c.lines, out)
			}
			for _, want := range c.whole {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%s: no %q in %d columns:\n%s", table, want, width, out)
				}
			}
		}
	}
	var piped bytes.Buffer
	printRuns(&piped, runs, time.Now())
	for _, want := range []string{"undo of " + requeue + "\n", "partly undone by " + undo + "\n"} {
		if !strings.Contains(piped.String(), want) {
			t.Errorf("no %q:\n%s", want, piped.String())
		}
	}
}
