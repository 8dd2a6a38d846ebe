package main

import (
	"regexp"
	"strings"
	"testing"
)

// TestAlerts: the template has the alerts of docs/operating.md.
func TestAlerts(t *testing.T) {
	alerts := func(path, pattern string) (found []string) {
		for _, alert := range regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, path), -1) {
			found = append(found, alert[1]+": "+strings.Join(strings.Fields(alert[2]), " "))
		}
		return found
	}
	documented := alerts("../docs/operating.md", `(?s)\n\d\. ([^.]+)\..*?\n\n((?: {8}[^\n]+\n)+)`)
	compare(t, "alerts", documented, alerts(template, `(?s)title: '([^\n]+)'.*?query: '''(.*?)'''`))
}

// TestQueries: a query finds lines of the log by a message that exists, and none in which a sender wrote that text, for
// example as its tenant: JSON escapes the quotes of what a sender writes.
func TestQueries(t *testing.T) {
	code := product(t, "internal/*/*.go")
	pages := []string{template, "../deploy/README.md", "../docs/operating.md", "../docs/log.md", "../docs/poison.md"}
	for _, page := range pages {
		searches := group(read(t, page), `(?m)^ +(traces [^\n]*message has (?:[^\n]*\n +\|)*[^\n]*)\n`)
		if len(searches) == 0 {
			t.Errorf("%s has no queries", page)
		}
		for _, query := range searches {
			text := mustMatch(t, query, `^[^\n]*? has ['"](.+?)['"](?:\s|$)`)[0]
			message, isMember := strings.CutPrefix(strings.TrimSuffix(text, `"`), `"message":"`)
			if !isMember && !strings.Contains(query, `tostring(line.message) startswith "`+message+`"`) {
				t.Errorf("%s: a sender can write what the query searches for: %s", page, query)
			}
			if !strings.Contains(code, `"`+message) {
				t.Errorf("%s: the handler logs no message %q", page, message)
			}
		}
	}
}
