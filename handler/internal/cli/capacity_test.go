package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/cli"
	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/tools/capacity"
)

const capacityDocument = "../../../docs/capacity.md"

func readText(tb testing.TB, path string) string {
	tb.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// runCapacity runs the command with no settings, and no app folder but one that is asked for.
func runCapacity(tb testing.TB, args ...string) string {
	tb.Helper()
	var out, problems bytes.Buffer
	code := cli.Run(tb.Context(), append([]string{"capacity"}, args...), cli.Surroundings{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &problems})
	if code != 0 || problems.Len() > 0 {
		tb.Fatalf("capacity %s: code %d, %s", strings.Join(args, " "), code, problems.String())
	}
	return out.String()
}

// planned is what the test reads of the JSON.
type planned struct {
	Layout struct {
		Accounts  int `json:"storageAccounts"`
		Queues    int `json:"queues"`
		Instances int `json:"instances"`
	} `json:"layout"`
	Transactions struct {
		Items []struct {
			Name     string `json:"name"`
			PerMonth int64  `json:"perMonth"`
		} `json:"items"`
		PerMonth int64 `json:"perMonth"`
	} `json:"transactions"`
	Ends []capacity.End `json:"aMillionCalls"`
}

func plan(tb testing.TB, args ...string) (p planned) {
	tb.Helper()
	if err := json.Unmarshal([]byte(runCapacity(tb, append(args, "--json")...)), &p); err != nil {
		tb.Fatal(err)
	}
	return p
}

// tables are those of a document whose first title is the given one, each as rows of cells, titles first.
func tables(tb testing.TB, document, title string) (found [][][]string) {
	tb.Helper()
	var current [][]string
	for line := range strings.Lines(document + "\n\n") {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "| "), " | ")
		switch {
		case !strings.HasPrefix(line, "|"):
			if len(current) > 1 && current[0][0] == title {
				found = append(found, current)
			}
			current = nil
		case !strings.HasPrefix(cells[0], "---"):
			current = append(current, cells)
		}
	}
	return found
}

// TestCapacityDocument: every figure in the tables and examples of docs/capacity.md is the command's.
func TestCapacityDocument(t *testing.T) {
	document := readText(t, capacityDocument)
	byRate := tables(t, document, "calls/s")
	if len(byRate) != 3 {
		t.Fatalf("%d tables by calls/s, want 3", len(byRate))
	}
	t.Run("instances_as_shipped", func(t *testing.T) { checkLayouts(t, byRate[0], ".") })
	t.Run("instances_with_more_in_flight", func(t *testing.T) {
		settings := regexp.MustCompile(`The same with batchSize (\d+) and newBatchThreshold (\d+):`).FindStringSubmatch(document)
		if settings == nil {
			t.Fatal("the second table has lost its settings")
		}
		checkLayouts(t, byRate[1], appWith(t, settings[1], settings[2]))
	})
	t.Run("receives", func(t *testing.T) { checkReceives(t, byRate[2]) })
	t.Run("aMillionCalls", func(t *testing.T) {
		ends := tables(t, document, "a million calls")
		if len(ends) != 1 {
			t.Fatalf("%d tables of a million calls", len(ends))
		}
		checkEnds(t, ends[0])
	})
	t.Run("examples", func(t *testing.T) { checkExamples(t, document) })
}

// appWith makes an app folder with our host.json, changed.
func appWith(t *testing.T, batchSize, newBatchThreshold string) string {
	t.Helper()
	text := readText(t, "../../../host.json")
	for name, value := range map[string]string{"batchSize": batchSize, "newBatchThreshold": newBatchThreshold} {
		text = regexp.MustCompile(`"`+name+`": \d+`).ReplaceAllString(text, `"`+name+`": `+value)
	}
	app := t.TempDir()
	if err := os.WriteFile(filepath.Join(app, "host.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return app
}

func checkLayouts(t *testing.T, table [][]string, app string) {
	t.Helper()
	if len(table) < 6 || len(table[0]) < 5 {
		t.Fatalf("the table is gone: %q", table)
	}
	for _, row := range table[1:] {
		for i, latency := range table[0][1:] {
			l := plan(t, "--rate", row[0], "--latency", latency, "--app", app).Layout
			want := fmt.Sprintf("%d / %d", l.Instances, l.Queues)
			if l.Accounts > 1 {
				want += fmt.Sprintf(" / %d", l.Accounts)
			}
			if got := row[i+1]; got != want {
				t.Errorf("%s calls/s of %s: the document says %s, the command %s", row[0], latency, got, want)
			}
		}
	}
}

func checkReceives(t *testing.T, table [][]string) {
	t.Helper()
	for _, row := range table[1:] {
		p := plan(t, "--rate", row[0], "--latency", "500ms").Transactions
		want := []string{row[0]}
		for _, name := range []string{"receives_that_find_messages", "receives_in_vain", "receives_of_queues_without_calls"} {
			for _, item := range p.Items {
				if item.Name == name {
					want = append(want, fmt.Sprint(item.PerMonth))
				}
			}
		}
		if diff := cmp.Diff(append(want, fmt.Sprint(p.PerMonth)), row); diff != "" {
			t.Errorf("(-command +document):\n%s", diff)
		}
	}
}

func checkEnds(t *testing.T, table [][]string) {
	t.Helper()
	names := map[string]string{
		"delivered_at_once": "delivered at once", "delivered_after_1_retry": "after 1 retry", "delivered_after_3_retries": "after 3 retries",
		"delivered_at_once_with_callback": "with a callback", "dead_letter_at_once": "dead letter at once",
	}
	want := [][]string{}
	for _, e := range plan(t, "--rate", "1", "--latency", "1s").Ends {
		row := []string{names[e.Name]}
		for _, n := range []int64{e.SenderPuts, e.Writes, e.Deletes, e.ReceivesLeast, e.ReceivesMost, e.Least, e.Most} {
			row = append(row, fmt.Sprint(n))
		}
		want = append(want, row)
	}
	if diff := cmp.Diff(want, table[1:]); diff != "" {
		t.Errorf("(-command +document):\n%s", diff)
	}
}

// checkExamples runs each command and finds in its output, in order, what the document shows of it, where ...
// stands for lines left out.
func checkExamples(t *testing.T, document string) {
	t.Helper()
	examples := regexp.MustCompile(`(?m)^ {4}\$ async-caller capacity (.*)\n((?: {4}.*\n|\n)*)`).FindAllStringSubmatch(document, -1)
	if len(examples) < 2 {
		t.Fatalf("%d examples", len(examples))
	}
	for _, example := range examples {
		output := runCapacity(t, strings.Fields(example[1])...)
		for part := range strings.SplitSeq(strings.ReplaceAll("\n"+example[2], "\n    ", "\n"), "...\n") {
			part = strings.Trim(part, "\n")
			_, rest, found := strings.Cut(output, part)
			if !found {
				t.Errorf("capacity %s does not print\n%s\nbut\n%s", example[1], part, output)
			}
			output = rest
		}
	}
}

// What stands in for a missing host.json is what we ship.
func TestCapacityAsShipped(t *testing.T) {
	host, err := functionapp.LoadHost("../../..", nil)
	if err != nil {
		t.Fatal(err)
	}
	functions, err := filepath.Glob("../../../functions/*/function.json")
	if err != nil {
		t.Fatal(err)
	}
	timers := 0
	for _, path := range functions {
		if strings.Contains(readText(t, path), "timerTrigger") {
			timers++
		}
	}
	want := capacity.Host{
		BatchSize: host.Queues.BatchSize, NewBatchThreshold: host.Queues.NewBatchThreshold, MaxPollingInterval: host.Queues.MaxPollingInterval,
		Encoding: host.Queues.MessageEncoding, QueueFunctions: len(functions) - timers,
	}
	if diff := cmp.Diff(want, capacity.Shipped()); diff != "" {
		t.Errorf("(-files +Shipped):\n%s", diff)
	}
}

// Whatever is asked, it fits a terminal.
func TestCapacityFits(t *testing.T) {
	for _, args := range []string{
		"--rate 500 --latency 2s",
		"--rate 0.001 --latency 1ms --instances 100000",
		"--rate 1000000 --latency 120s --failing 100% --message 48KiB --outage 8784h --spare 1000% --storage-latency 10s",
		"--rate 5000 --latency 200ms --queues 1 --failing 0.5 --outage 48h --policy cycles",
	} {
		for line := range strings.Lines(runCapacity(t, strings.Fields(args)...)) {
			if width := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); width > 100 {
				t.Errorf("%s: %d columns: %s", args, width, line)
			}
		}
	}
}
