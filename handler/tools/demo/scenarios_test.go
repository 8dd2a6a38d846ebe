package main

import (
	"os"
	"strings"
	"testing"

	"asynccaller/handler/tools/target"
)

// TestReadme: the README shows what the demo prints if all is as expected.
func TestReadme(t *testing.T) {
	server, err := target.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	var rows []row
	for _, s := range (system{target: server}).scenarios() {
		answers := strings.Fields(strings.Replace(s.answers, "...", "503 503", 1)) // four, as in the README
		rows = append(rows, row{scenario: s, attempts: len(answers), gotAnswers: s.answers, gotOutcome: s.outcome})
	}
	var printed strings.Builder
	report(&printed, rows)
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.ReplaceAll("\n"+strings.TrimSpace(printed.String()), "\n",
		"\n    "); !strings.Contains(string(readme), want) {
		t.Errorf("README does not have %s", want)
	}
}
