package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// alert is a rule of the template, or an alert of docs/operating.md. Its times are written as in a query: 5m, 2d.
type alert struct{ Title, Every, Window, Query string }

// duration reads a time of an alert.
func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	day, hasDays := strings.CutSuffix(text, "d")
	if hasDays {
		text = day + "h"
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	if hasDays {
		d *= 24
	}
	return d
}

// TestAlerts: the templates have the alerts of docs/operating.md, Azure accepts their times, and none misses a row that
// arrives late or fires because there are no rows: before the first deployment there are none.
func TestAlerts(t *testing.T) {
	var documented, made []alert
	item := regexp.MustCompile(`(?s)\n\d\. ([^.]+)\.(.*?)\n\n((?: {8}[^\n]+\n)+)`)
	times := regexp.MustCompile(`(?i)every (\d+) ([mhd])\w+ over (\d+) ([mhd])\w+\.`)
	for _, found := range item.FindAllStringSubmatch(read(t, "../docs/operating.md"), -1) {
		when := times.FindStringSubmatch(oneLine(found[2]))
		if when == nil {
			t.Fatalf("the page does not say when the alert %q is evaluated", found[1])
		}
		documented = append(documented, alert{found[1], when[1] + when[2], when[3] + when[4], oneLine(found[3])})
	}
	text := read(t, alertsModule)
	rule := regexp.MustCompile(`(?s)title: '([^\n]+)'\n    severity: \d\n    every: '(\w+)'\n    window: '(\w+)'\n` +
		`    resolves: (\w+)\n    query: '''(.*?)'''`)
	iso := func(text string) string { return strings.ToLower(strings.TrimLeft(text, "PT")) }
	for _, found := range rule.FindAllStringSubmatch(text, -1) {
		a := alert{found[1], iso(found[2]), iso(found[3]), oneLine(found[5])}
		made = append(made, a)
		if found[4] == "true" == strings.Contains(a.Query, "seen <") {
			t.Errorf("%s: resolves is %s; with its last row out of the window, silence would look like health", a.Title,
				found[4])
		}
	}
	if diff := cmp.Diff(documented, made); diff != "" {
		t.Errorf("alerts (-docs/operating.md +template):\n%s", diff)
	}
	// https://github.com/Azure/azure-rest-api-specs/issues/21258 has the times that Azure accepts.
	accepted := strings.Fields("5m 10m 15m 30m 45m 1h 2h 3h 4h 5h 6h 1d 2d")
	const late = 10 * time.Minute // the rows of most logs can be queried after 5 minutes
	for _, a := range made {
		if !slices.Contains(accepted, a.Every) || !slices.Contains(accepted, a.Window) || a.Every == "2d" {
			t.Errorf("%s: Azure refuses every %s over %s", a.Title, a.Every, a.Window)
		}
		if duration(t, a.Window)-duration(t, a.Every) < late {
			t.Errorf("%s: a row that is %v late is never seen: every %s over %s", a.Title, late, a.Every, a.Window)
		}
		if !strings.HasPrefix(a.Query, "traces | where timestamp > ago("+a.Window+") ") {
			t.Errorf("%s: the query does not read its window of %s", a.Title, a.Window)
		}
		_, condition, _ := strings.Cut(a.Query[strings.LastIndex(a.Query, " | where "):], "where ")
		if !regexp.MustCompile(`^\S+ > \d|^seen < ago\(15m\)$`).MatchString(condition) {
			t.Errorf("%s: can be true if there are no rows: %s", a.Title, condition)
		}
	}
	// Azure refuses muteActionsDuration for an alert that resolves.
	for _, want := range []string{
		"evaluationFrequency: rule.every windowSize: rule.window autoMitigate: rule.resolves " +
			"muteActionsDuration: rule.resolves ? null : 'PT1H'",
		// An app that may have no instance is silent then. The prefix makes the table traces where there is none.
		"for rule in alerts: if (alwaysOn || rule.name != 'alive') {", "query: '${prefix}${rule.query}'",
		"param prefix string = ''", "param alwaysOn bool = true",
	} {
		if !strings.Contains(oneLine(text), want) {
			t.Errorf("want in the module: %s", want)
		}
	}
}

// TestReasonsWithoutCalls: a message for which no call was made is neither a failure of its host nor a late delivery.
// target_down and auth are: the target has failed before, or gives no token, which an operator has to know.
func TestReasonsWithoutCalls(t *testing.T) {
	page := read(t, "../docs/operating.md")
	failing := mustMatch(t, page, `\n6\. More than half of the attempts for one host fail\.[^!]*!in \(([^)]*)\)`)[0]
	reasons := group(read(t, "../docs/log.md"), "(?m)^\\| `(\\w+)` \\| no call was made")
	if len(reasons) < 4 {
		t.Fatalf("only %q without a call", reasons)
	}
	for _, reason := range append(reasons, "not_due") {
		isFailure := reason == "target_down" || reason == "auth"
		if !isFailure && !strings.Contains(failing, `"`+reason+`"`) {
			t.Errorf("the alert about a failing host counts %s", reason)
		}
	}
	mustMatch(t, page, `\n## Delivery objective\n[^#]*tostring\(line\.reason\) != "duplicate"`)
}

// workbook is what the tests read of deploy/workbook.json.
type workbook struct {
	Items []struct {
		Type    int
		Content struct {
			Title, Query, Visualization, TimeContextFromParameter, ResourceType string

			Parameters []struct{ Name string }
		}
	}
}

// readWorkbook returns the workbook, its titles and its queries.
func readWorkbook(t *testing.T) (w workbook, titles, queries []string) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, "../deploy/workbook.json")), &w); err != nil {
		t.Fatal(err)
	}
	for _, item := range w.Items {
		if item.Type == 3 { // a query
			titles = append(titles, item.Content.Title)
			queries = append(queries, item.Content.Query)
		}
	}
	return w, titles, queries
}

// TestWorkbook: the workbook of the template has the parts that docs/operating.md names, each for the chosen period.
func TestWorkbook(t *testing.T) {
	w, titles, _ := readWorkbook(t)
	section := mustMatch(t, read(t, "../docs/operating.md"), `(?s)\n## Workbook\n(.*?)\n## `)[0]
	documented := group(section, `(?m)^\| ([A-Z][^|]*) \|`)
	if diff := cmp.Diff(documented, titles); diff != "" {
		t.Errorf("parts (-docs/operating.md +workbook.json):\n%s", diff)
	}
	period := w.Items[0].Content.Parameters[0].Name
	for _, item := range w.Items[1:] {
		c := item.Content
		if c.TimeContextFromParameter != period || c.ResourceType != "microsoft.insights/components" {
			t.Errorf("%s: is not about the chosen period of Application Insights: %+v", c.Title, c)
		}
		if strings.Contains(c.Query, "bin(timestamp, {"+period+":grain})") != (c.Visualization == "timechart") {
			t.Errorf("%s: a chart over time, and only that, needs points in time: %s", c.Title, c.Query)
		}
	}
	want := "    sourceId: insights.id\n    serializedData: string(union(loadJsonContent('workbook.json'), " +
		"{ fallbackResourceIds: [insights.id] }))\n"
	if !strings.Contains(read(t, template), want) {
		t.Errorf("want in the template:\n%s", want)
	}
}

// TestQueries: a query finds lines of the log by a message that exists, and none in which a sender wrote that text, for
// example as its tenant: JSON escapes the quotes of what a sender writes. It reads fields that exist. One query shows
// whether a delivery objective is met.
func TestQueries(t *testing.T) {
	code := product(t, "internal/*/*/*.go")
	fields := append(group(product(t, "internal/deliver/logs/logs.go"), `(?m)^\t\w+ += "(\w+)"$`), "message")
	queries := map[string][]string{}
	for _, page := range []string{
		alertsModule, "../deploy/README.md", "../docs/operating.md", "../docs/log.md", "../docs/calls.md",
	} {
		queries[page] = group(read(t, page), `(?m)^ +(traces [^\n]*message has (?:[^\n]*\n +\|)*[^\n]*)\n`)
	}
	_, _, queries["../deploy/workbook.json"] = readWorkbook(t)
	for page, searches := range queries {
		if len(searches) == 0 {
			t.Errorf("%s has no queries", page)
		}
		for _, query := range searches {
			text := mustMatch(t, query, `^[^\n]*? has ['"](.+?)['"](?:\s|$)`)[0]
			message, isMember := strings.CutPrefix(strings.TrimSuffix(text, `"`), `"message":"`)
			if !isMember && !strings.Contains(query, `tostring(line.message) startswith "`+message+`"`) {
				t.Errorf("%s: a sender can write what the query searches for: %s", page, query)
			}
			logged := `Msgf?\("` + regexp.QuoteMeta(message)
			if strings.HasSuffix(text, `"`) {
				logged += `"`
			}
			if !regexp.MustCompile(logged).MatchString(code) {
				t.Errorf("%s: the handler logs no message %q", page, message)
			}
			for _, field := range group(query, `\bline\.(\w+)`) {
				if !slices.Contains(fields, field) {
					t.Errorf("%s: the handler logs no field %s: %s", page, field, query)
				}
			}
		}
	}
	mustMatch(t, read(t, "../docs/operating.md"), `\n## Delivery objective\n[^#]*\n {4}[^\n#]*tolong\(line\.age\) <= `)
}
