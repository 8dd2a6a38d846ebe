package quickstart

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/observers/sight/sighttest"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/internal/storage/rows"
	"asynccaller/handler/tools/azurite/azuritetest"
	"asynccaller/handler/tools/testbed"
)

// operator is at the machine of an operator, in the folder of an app that does not run.
type operator struct {
	folder string
	env    []string
	// connection is the connection string of the account.
	connection string
	// latest is the latest run that can be undone.
	latest string
	// beat does what the timer functions of the app did when it ran: it says that the app records outcomes.
	beat func(*testing.T)
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	server := azuritetest.Run(t) // whose blob service a check of the doctor reads
	fillAccount(t, server.ConnectionString)
	root, err := filepath.Abs(project)
	must(t, err)
	folder := t.TempDir()
	must(t, os.Symlink(filepath.Join(root, "host.json"), filepath.Join(folder, "host.json")))
	functions, err := os.ReadDir(filepath.Join(root, "functions"))
	must(t, err)
	for _, function := range functions {
		must(t, os.Symlink(filepath.Join(root, "functions", function.Name()), filepath.Join(folder, function.Name())))
	}
	for name, text := range map[string]string{
		"async-caller": "not executable",
		"order.json":   orderJSON(t),
		"order.xml":    "<order/>",
		"message.json": `{"asyncCaller":1,"call":{"url":"https://example.com/orders","json":{"id":42}}}`,
	} {
		must(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	must(t, os.Chmod(filepath.Join(folder, "async-caller"), 0o644))
	o := &operator{folder: folder, connection: server.ConnectionString, env: environ(
		"PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "XDG_STATE_HOME="+t.TempDir(),
		"AzureWebJobsStorage="+server.ConnectionString,
	)}
	o.beat = func(t *testing.T) {
		t.Helper()
		environ := []string{"AzureWebJobsStorage=" + server.ConnectionString}
		connection, err := azure.ParseConnection(environ, storage.ConnectionName)
		must(t, err)
		table, err := azure.OpenTable(connection, storage.ScheduledTable)
		must(t, err)
		defer table.Close()
		app := heartbeat.App{Name: "local", Version: "test"}
		must(t, heartbeat.Beat(t.Context(), table, app, functionapp.MonitorTimer))
	}
	return o
}

// orderJSON returns the file order.json that docs/preview.md shows.
func orderJSON(t *testing.T) string {
	t.Helper()
	for _, s := range steps(read(t, "docs/preview.md")) {
		if s.command == "" && strings.HasPrefix(s.output, "{") {
			return s.output
		}
	}
	t.Fatal("docs/preview.md shows no order.json")
	return ""
}

// fillAccount puts the messages of the examples on the queues.
func fillAccount(t *testing.T, connectionString string) {
	t.Helper()
	connection, err := azure.ParseConnection([]string{"AzureWebJobsStorage=" + connectionString},
		storage.ConnectionName)
	must(t, err)
	store, err := azure.Open(connection)
	must(t, err)
	defer store.Close()
	table, err := azure.OpenTable(connection, storage.ScheduledTable)
	must(t, err)
	defer table.Close()
	put := func(name, text string, item storage.Item) storage.Message {
		must(t, store.Create(t.Context(), name))
		item.Text = text
		m, err := store.Put(t.Context(), name, item)
		must(t, err)
		if account.MainQueue(name) != name { // recorded, as AC-monitor does it
			m.Text = text
			dead := message.Read(message.Rules{}, name, m)
			must(t, rows.Put(t.Context(), table, message.ToRow(dead, message.Rules{}.Content(text))))
			must(t, rows.Put(t.Context(), table, record.Reading{
				Key: storage.Key{Partition: name, ID: record.ReadingID}, ReadAt: time.Now(),
			}))
		}
		return m
	}
	const headers = `"method":"POST","headers":{"Authorization":"Bearer C4nary"}`
	dead := func(id int, host, reason, detail, trail string) {
		content := fmt.Appendf(nil, `{"asyncCaller":1,"requestId":"order-%[1]d",`+
			`"call":{"url":"https://%[2]s/orders/%[1]d?key=C4nary",%[3]s},"attempts":1,`+
			`"trail":[%[4]s],"deadLetter":{"at":%[5]q,"reason":%[6]q,"detail":%[7]q,"queue":"async-caller",`+
			`"attempts":1}}`,
			id, host, headers, trail, time.Now().Format(time.RFC3339), reason, detail)
		put(mainQueue+storage.PoisonSuffix, storage.Base64.Encode(content), storage.Item{})
	}
	at := time.Now().Add(-time.Minute).Format(time.RFC3339)
	for i := range 42 {
		dead(4711+i, "crm.example.com", "expired", "no answer: connection refused",
			fmt.Sprintf(`{"at":%q,"error":"connect: connection refused","tookMs":1}`, at))
	}
	for i := range 9 {
		dead(5000+i, "erp.example.com", "rejected", "answered 400",
			fmt.Sprintf(`{"at":%q,"status":400,"tookMs":1}`, at))
	}
	for range 3 {
		put(mainQueue+storage.PoisonSuffix, storage.Base64.Encode([]byte(`{"asyncCaller":1,`+
			`"call":{"ulr":"https://crm.example.com/"}}`)), storage.Item{})
	}
	put("async-caller-1-poison", storage.Base64.Encode([]byte(`{"asyncCaller":1,`+
		`"call":{"url":"https://www.example.com/"}}`)), storage.Item{TTL: storage.MaxDelay})
	put("async-caller-1-poison", "not base64!", storage.Item{TTL: storage.MaxDelay})

	schedule := func(id int, host string, status int, delay time.Duration) {
		content := fmt.Appendf(nil, `{"asyncCaller":1,"requestId":"order-%[1]d",`+
			`"call":{"url":"https://%[2]s/orders/%[1]d"},"callback":{"url":"https://example.com/done"}}`, id, host)
		m := put(mainQueue, storage.Base64.Encode(content), storage.Item{Delay: delay})
		must(t, rows.Put(t.Context(), table, record.Row{
			Key:        storage.Key{Partition: mainQueue, ID: m.ID},
			PopReceipt: m.PopReceipt, RequestID: fmt.Sprintf("order-%d", id), TargetHost: host,
			PathPattern: "/orders/{n}", Status: status, Attempts: 1,
			Reason: "temporary_status", CreatedAt: time.Now(), NextAttemptAt: time.Now().Add(delay),
			Deadline: time.Now().Add(24 * time.Hour), Content: content,
		}))
	}
	for i := range 48 {
		schedule(6000+i, "crm.example.com", 503*(i%2), []time.Duration{
			20 * time.Minute, 30 * time.Minute,
			30 * time.Minute, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour,
		}[i%6])
	}
	for i := range 12 {
		schedule(7000+i, "old.example.com", 503, 2*time.Hour)
	}
	for i := range 3 {
		schedule(8000+i, "api.example.com", 429, time.Duration(12+14*i)*time.Minute)
	}
	targets, err := azure.OpenTable(connection, storage.SightTable)
	must(t, err)
	defer targets.Close()
	fails := func(host, cause, answer string, since time.Duration, openAt time.Time) {
		sighttest.Fail(t, targets, sight.Target{
			App: "acme", Host: host, Cause: cause, Answer: answer,
			Since: time.Now().Add(-since), Latest: time.Now(), OpenAt: openAt,
		})
	}
	fails("crm.example.com", "503", `{"error":"maintenance until 14:00"}`, 150*time.Minute, time.Now())
	fails("old.example.com", "certificate has expired or is not valid yet", "", 73*time.Hour, time.Time{})
	fails("api.example.com", "429", "", 40*time.Minute+30*time.Second, time.Time{})
}

// TestRunbook runs the commands of the pages for operators, with messages like those of the examples.
func TestRunbook(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	t.Run("looks", o.looks)
	t.Run("examples", o.examples)
	t.Run("malformed", o.fixMalformed)
}

// examples runs the commands whose output is in a page, and compares it.
func (o *operator) examples(t *testing.T) {
	ran := 0
	for _, page := range []string{"docs/operating.md", "docs/calls.md", "docs/preview.md"} {
		for _, s := range steps(strings.ReplaceAll(read(t, page), " \\\n    ", " ")) {
			// TestBeside, the tutorial, and the scripts of edits: here only rows are there, and no messages
			isChange := strings.Contains(s.command, "calls retry --state scheduled") ||
				strings.Contains(s.command, "calls edit")
			if s.command == "" || s.output == "" || isChange {
				continue
			}
			ran++
			if output := o.run(t, s.command); !shows(example(output), example(s.output)) {
				t.Errorf("%s: %s prints\n%s\nwant\n%s", page, s.command, output, s.output)
			}
		}
	}
	if ran < 12 {
		t.Errorf("only %d commands", ran)
	}
}

// putPoison puts a message on the poison queue of the main queue.
func putPoison(t *testing.T, connectionString, content string) {
	t.Helper()
	store, err := testbed.OpenStore(connectionString)
	must(t, err)
	defer store.Close()
	_, err = store.Put(t.Context(), mainQueue+storage.PoisonSuffix, storage.Item{
		Text: storage.Base64.Encode([]byte(content)),
	})
	must(t, err)
}

// fixMalformed runs the command that docs/calls.md previews for malformed messages, which cannot fix all of them.
func (o *operator) fixMalformed(t *testing.T) {
	for _, s := range steps(read(t, "docs/calls.md")) {
		command, isPreview := strings.CutSuffix(s.command, " --dry-run --limit 1")
		if !isPreview || !strings.Contains(command, "--reason malformed --jq") {
			continue
		}
		putPoison(t, o.connection, `{"asyncCaller":1,"call":{"url":"https://crm.example.com/"},"priority":11}`)
		putPoison(t, o.connection, "{")
		output, err := shell(t, o.folder, o.env, command+" --yes")
		exit, _ := errors.AsType[*exec.ExitError](err)
		if exit == nil || exit.ExitCode() != 4 || !strings.Contains(output, "retried 3 of 3") ||
			!strings.Contains(output, "2 messages cannot be retried") {
			t.Errorf("%s: %v\n%s", command, err, output)
		}
		left, _ := shell(t, o.folder, o.env, "async-caller calls list --state poison --reason malformed --json")
		if strings.Count(left, `"reason":"malformed"`) != 2 {
			t.Errorf("left are\n%s", left)
		}
		return
	}
	t.Error("docs/calls.md has no preview for malformed messages")
}

// looks runs the commands of all pages that change nothing, but for the examples.
func (o *operator) looks(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(project, "docs", "*.md"))
	must(t, err)
	shown := regexp.MustCompile("(?m)(?:^    |`)(async-caller " +
		"(?:status|explain|show|runs list|calls list)\\b[^`\\n]*)")
	commands := map[string]bool{}
	for _, page := range append(pages, filepath.Join(project, "README.md")) {
		text, err := os.ReadFile(page)
		must(t, err)
		for _, match := range shown.FindAllStringSubmatch(string(text), -1) {
			commands[match[1]] = true
		}
	}
	delete(commands, "async-caller explain") // without a file
	routes := filepath.Join(o.folder, "routes.json")
	must(t, os.WriteFile(routes, []byte(`{"orders-in":{"url":"https://shop.example.com/orders"}}`), 0o600))
	defer func() { must(t, os.Remove(routes)) }()
	for command := range commands {
		hasWord := strings.HasSuffix(command, " ID") || strings.HasSuffix(command, " FILE")
		if hasWord || strings.ContainsAny(command, "[…|") {
			continue
		}
		if output, err := shell(t, o.folder, o.env, command); err != nil {
			t.Errorf("%s: %v\n%s", command, err, output)
		}
	}
	if len(commands) < 15 {
		t.Errorf("only %d commands", len(commands))
	}
}

// untilCanaries runs a command in the background and interrupts it when it waits for the app, which does not run.
const untilCanaries = `%s --yes >said 2>&1 &
	while kill -0 $! && ! grep -qs '^sent ' said; do sleep 0.1; done
	kill -TERM $!; wait $!; cat said`

// run runs a command as the operator does. It confirms what the page confirms, and does not wait for the app.
func (o *operator) run(t *testing.T, line string) string {
	t.Helper()
	switch {
	case strings.Contains(line, "--canary"):
		o.beat(t)
		line = fmt.Sprintf(untilCanaries, line)
	case strings.Contains(line, " undo "):
		line = regexp.MustCompile(`\d{8}-\S+`).ReplaceAllString(line, o.latest)
	}
	output, _ := shell(t, o.folder, o.env, line) // the output ends with the error
	if found := regexp.MustCompile("undo: `async-caller runs undo (\\S+)`").FindStringSubmatch(output); found != nil {
		o.latest = found[1]
	}
	return output
}

// inExamples matches what is different in the examples: the account, the folder of journals, ids within lines, and
// questions.
var inExamples = []struct {
	pattern     *regexp.Regexp
	replacement string
}{
	{regexp.MustCompile(`127\.0\.0\.1:\d+/devstoreaccount1|acme\.queue\.core\.windows\.net`), "ACCOUNT"},
	{regexp.MustCompile(`\b[0-9a-f]{8}  `), "ID  "},
	{regexp.MustCompile(`(?m)^.* \[y/N\] .*\n`), ""},
	{regexp.MustCompile(`stopped: .*`), "stopped"},
	{regexp.MustCompile(`order-\d+|orders/\d+`), "ORDER"},
	{regexp.MustCompile(`│|·`), ""},
	{regexp.MustCompile(`certificate has .* valid yet`), "CERTIFICATE"}, // the times determine where it is cut
	{regexp.MustCompile(`(?m)^(\d{8}-\d{6}-\S+ +\S+ +\S+) +\S+`), "$1 BY"},
	{regexp.MustCompile(`(undo of|undone by) \S+`), "$1 RUN"}, // the name in BY determines where it is cut
}

// example returns output without what is different in the examples.
func example(output string) string {
	for _, v := range inExamples {
		output = v.pattern.ReplaceAllString(output, v.replacement)
	}
	return output
}
