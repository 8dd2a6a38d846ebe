package browser_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"asynccaller/handler/internal/observers/sight/sighttest"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/internal/storage/rows"
)

const (
	mainQueue   = "async-caller"
	poisonQueue = "async-caller-poison"
	appName     = "orders-prd"
)

// sample fills an account as an app and its operators do.
type sample struct {
	t           *testing.T
	now         time.Time
	store       *azure.Queues
	tables      storage.Tables
	accountName string
}

func openSample(t *testing.T, connection string) *sample {
	t.Helper()
	app := config.ReadApp(t.TempDir(), []string{"AzureWebJobsStorage=" + connection}, config.Operator)
	store := must(azure.Open(app.Connection))
	t.Cleanup(store.Close)
	tables := must(azure.OpenTables(app.Connection))
	s := &sample{t: t, now: time.Now().UTC(), store: store, tables: tables, accountName: app.Connection.Account()}
	for _, name := range []string{mainQueue, poisonQueue} {
		s.must(store.Create(t.Context(), name))
	}
	return s
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (s *sample) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *sample) table(name string) storage.Table { return s.tables.Table(name) }

func (s *sample) ago(d time.Duration) time.Time { return s.now.Add(-d) }

// host is the target of the call of that number.
func host(n int) string {
	return []string{
		"crm.example.com", "crm.example.com", "billing.example.com", "stock.westeurope.internal.example.com:8443",
		"mail.example.com",
	}[n%5]
}

// causes are why the calls to the targets fail.
var causes = map[string]struct {
	status        int
	cause, answer string
}{
	"crm.example.com":                            {503, "status 503", `{"error":"maintenance until 14:00"}`},
	"billing.example.com":                        {422, "status 422", `{"error":"unknown customer C-4711"}`},
	"stock.westeurope.internal.example.com:8443": {0, "timeout", ""},
	"mail.example.com":                           {429, "status 429", "too many requests"},
}

// id returns a message id of storage's form.
func id(kind, n int) string { return fmt.Sprintf("%08x-%04x-4000-8000-0123456789ab", n, kind) }

// scheduled records scheduled messages.
func (s *sample) scheduled(from, to int) {
	s.t.Helper()
	for ; from < to; from += 100 {
		var list []record.Row
		for n := from; n < min(from+100, to); n++ {
			c := causes[host(n)]
			due := time.Duration(n%97)*7*time.Minute + time.Duration(n%59)*time.Minute + 30*time.Second
			list = append(list, record.Row{
				Key: storage.Key{Partition: mainQueue, ID: id(1, n)}, PopReceipt: "receipt",
				RequestID: fmt.Sprintf("order-%d", n), Method: "POST", TargetHost: host(n), PathPattern: "/orders/{n}",
				Reason: "temporary_status", Status: c.status, Cause: c.cause, Answer: c.answer, Attempts: 1 + n%9,
				CreatedAt: s.ago(time.Duration(n%300) * time.Minute), NextAttemptAt: s.now.Add(due),
				Deadline: s.now.Add(120 * time.Hour), Content: []byte(s.envelope(n, "")),
			})
		}
		s.must(rows.Put(s.t.Context(), s.table(storage.ScheduledTable), list...))
	}
}

// envelope returns an envelope with two attempts. Members follow its other members.
func (s *sample) envelope(n int, members string) string {
	c := causes[host(n)]
	attempt := func(ago time.Duration) string {
		return fmt.Sprintf(`{"at":%q,"status":%d,"tookMs":%d}`, s.ago(ago).Format(time.RFC3339), c.status, 180+n%50)
	}
	return fmt.Sprintf(`{"asyncCaller":1,"requestId":"order-%d","createdAt":%q,"attempts":2,"trail":[%s,%s],`+
		`"call":{"url":"https://%s/orders/%d?token=CANARY","headers":{"Authorization":"CANARY"},"method":"POST",`+
		`"json":{"customer":"C-%d","password":"CANARY","lines":[{"article":"A-1","quantity":2}]}}%s}`,
		n, s.ago(5*time.Hour).Format(time.RFC3339), attempt(5*time.Hour), attempt(4*time.Hour),
		host(n), 1000+n, 4000+n%20, members)
}

// poison writes dead letters and their rows.
func (s *sample) poison(from, to int) {
	s.t.Helper()
	reasons := []string{"rejected", "rejected", "expired", "target_denied"}
	var group errgroup.Group
	group.SetLimit(4)
	list := make([]record.Row, to-from)
	for n := from; n < to; n++ {
		group.Go(func() error {
			deadLetter := fmt.Sprintf(`,"deadLetter":{"at":%q,"reason":%q,"detail":"the target answered 422",`+
				`"queue":%q,"attempts":2,"answer":{"status":422,"mediaType":"application/json",`+
				`"text":"{\"error\":\"unknown customer\",\"customer\":\"C-%d\"}"}}`,
				s.ago(time.Duration(n%200)*time.Minute).Format(time.RFC3339), reasons[n%4], mainQueue, 4000+n%20)
			text := storage.Base64.Encode([]byte(s.envelope(n, deadLetter)))
			m, err := s.store.Put(s.t.Context(), poisonQueue, storage.Item{Text: text})
			m.Text = text
			list[n-from] = message.ToRow(message.Read(rules, poisonQueue, m), rules.Content(text))
			return err
		})
	}
	s.must(group.Wait())
	s.recorded(list)
}

// rules are those of an app without settings.
var rules = message.Rules{Encoding: storage.Base64}

// recorded writes rows of dead letters, as if AC-monitor had compared them with the queue.
func (s *sample) recorded(list []record.Row) {
	s.t.Helper()
	table := s.table(storage.ScheduledTable)
	for part := range slices.Chunk(list, 100) {
		s.must(rows.Put(s.t.Context(), table, part...))
	}
	key := storage.Key{Partition: poisonQueue, ID: record.ReadingID}
	s.must(rows.Put(s.t.Context(), table, record.Reading{Key: key, ReadAt: s.now}))
}

// traffic records the state of the app and its targets, and the numbers of the last hour.
func (s *sample) traffic() {
	s.t.Helper()
	ctx := s.t.Context()
	for _, timer := range []string{"AC-monitor", "AC-poison-keeper"} {
		app := heartbeat.App{Name: appName, Version: "0.2.0"}
		s.must(heartbeat.Beat(ctx, s.table(storage.ScheduledTable), app, timer))
	}
	for n, name := range []string{"crm.example.com", "stock.westeurope.internal.example.com:8443", "mail.example.com"} {
		c := causes[name]
		s.target(sight.Target{
			Host: name, Reason: "temporary_status", Cause: c.cause, Status: 503, Answer: c.answer,
			Since: s.ago(time.Duration(n+1) * 40 * time.Minute), Latest: s.ago(20 * time.Second),
			OpenAt: s.ago(time.Minute),
		})
	}
	for _, made := range []setting.Setting{
		{Host: "crm.example.com", Member: setting.Pause, Until: s.now.Add(2 * time.Hour), Reason: "INC-4711"},
		{Host: "mail.example.com", Member: setting.Rate, Value: "5/s", Reason: "INC-4712"},
	} {
		made.Since, made.By = s.ago(time.Hour), "ann@ops-1"
		s.must(setting.Write(ctx, s.table(storage.AppTable), made))
	}
	for n := 1; n <= 75; n++ {
		s.numbers(s.now.Add(-time.Duration(n)*time.Minute), n)
	}
}

// target writes the row of a target that fails.
func (s *sample) target(failing sight.Target) {
	s.t.Helper()
	failing.App = appName
	sighttest.Fail(s.t, s.table(storage.SightTable), failing)
}

// numbers writes the numbers of a minute.
func (s *sample) numbers(minute time.Time, n int) {
	s.t.Helper()
	interval := sight.Interval{Hosts: map[string]*sight.Counts{}}
	for i, name := range []string{"crm.example.com", "billing.example.com", "mail.example.com"} {
		c := &sight.Counts{Delivered: 40 + (n*7+i*13)%30 + 20*(n%24)/(i+1)}
		if n%24 < 6 || i == 2 {
			c.Failed = map[string]int{"temporary_status": 5 + (n*5)%17}
		}
		c.Durations[2], c.Durations[3+n%2], c.Durations[5+n%3] = c.Delivered, 20, 3
		interval.Hosts[name] = c
	}
	sighttest.Count(s.t, s.table(storage.SightTable), appName, minute, interval)
}

// runsOfOthers publishes the runs of a colleague.
func (s *sample) runsOfOthers() {
	s.t.Helper()
	words := map[string]string{
		"requeue": "retry --state poison", "expedite": "retry --state scheduled", "cancel": "delete --state scheduled",
	}
	for n, command := range slices.Sorted(maps.Keys(words)) {
		summary := run.Summary{Command: command, Total: 500, Done: 500 - n, Skipped: n, State: run.Finished}
		s.publish(n, summary, "async-caller calls "+words[command]+" --host crm.example.com")
	}
}

// publish writes the row of a run of that number.
func (s *sample) publish(n int, about run.Summary, commandLine string) {
	s.t.Helper()
	type row struct {
		storage.Key

		Content []byte `row:"content"`
	}
	about.At, about.Account = s.ago(time.Duration(n+1)*time.Hour), s.accountName
	about.Run = about.At.Format("20060102-150405") + "-run-k3xw"
	about.Operator = journal.Operator{User: "ann", Machine: "ops-1", CommandLine: commandLine}
	content := must(json.Marshal(operation.RunSummary{Summary: about}))
	key := storage.Key{Partition: record.RunsPartition, ID: about.Run}
	s.must(rows.Put(s.t.Context(), s.table(storage.RunTable), row{key, content}))
}

// delivered records the end of a call in the history.
func (s *sample) delivered(requestID string) {
	s.t.Helper()
	e := must(envelope.Parse(fmt.Appendf(nil, `{"asyncCaller":1,"requestId":%q,"createdAt":%q,`+
		`"call":{"url":"https://crm.example.com/orders/4711"}}`, requestID, s.ago(time.Hour).Format(time.RFC3339))))
	h := history.New(s.tables, 30*24*time.Hour, zerolog.Nop())
	entry := h.NewEntry(e, s.ago(time.Minute))
	entry.Queue, entry.MessageID, entry.Attempts = mainQueue, id(3, 1), 2
	entry.Action, entry.Reason, entry.Status = string(decision.Finish), history.Delivered, 200
	entry.Trail = []history.Attempt{
		{At: s.ago(time.Hour), Status: 503, TookMs: 120}, {At: s.ago(time.Minute), Status: 200, TookMs: 80},
	}
	h.Acknowledge(s.t.Context(), entry, s.now)
	h.Close(time.Second)
}
