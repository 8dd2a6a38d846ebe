package cli_test

import (
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/plain/fold"
	"asynccaller/handler/internal/program/cli"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/internal/storage/emulator"
	"asynccaller/handler/internal/storage/rows"
	"asynccaller/handler/tools/freeport"
	"asynccaller/handler/tools/testbed"
)

func TestMain(m *testing.M) {
	testscript.Main(configured{m}, map[string]func(){
		"async-caller": func() { os.Exit(cli.Run(context.Background(), os.Args[1:], cli.ProcessEnv())) },
	})
}

// configured runs tests after it has set what they share.
type configured struct{ *testing.M }

func (m configured) Run() int {
	flag.Parse()
	const parallel = "8" // most of the parallel tests wait for another process, or for a timeout
	if err := flag.Set("test.parallel", parallel); err != nil {
		panic(err)
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // its goroutine must not belong to the bubble of a test
	return m.M.Run()
}

// TestScripts runs the scripts in testdata/script, which use the command line as in a shell. Besides
// testscript's own commands they can use:
//
//   - exits CODE COMMAND ARGS... runs a command that must end with this exit code.
//   - account gives the script a storage account of its own in memory and sets AzureWebJobsStorage.
//   - unreachable sets AzureWebJobsStorage to an account that does not respond, with a planted key.
//   - dead [-raw] [-hex] [-ttl=DURATION] QUEUE FILE creates a queue and puts each line of a file on it, in
//     base64 unless -raw is given; with -hex the line contains hex digits.
//   - scheduled QUEUE FILE creates a queue and schedules each envelope of a file, as a handler does after an attempt.
//   - queue NAME prints the number of messages on a queue, then the visible ones, one per line.
//   - tick PORT FUNCTION does what the Functions host does when a timer function is due.
//   - beat does what the timer functions of the app do for --canary: it says that the app records outcomes.
//   - deliver QUEUE receives the visible messages of a queue like an app whose calls succeed, with the history on.
//   - writes prints the requests that changed the account since the last time, in order.
//   - steady [-ages] FILE prints a file and replaces everything that differs between runs by words; with
//     -ages also times, ages, the names of runs and the beginnings of ids.
//   - freeport NAME sets a variable to an unused port.
//   - ready PORT waits for the handler on a port and prints its answer to GET /.
//   - fill FILE replaces $NAME in a file by environment variables.
//
// $PROGRAM is the path of the executable, for scripts that change PATH.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Values[accountKey{}] = &account{}
			env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, ".state")) // journals
			// the race detector would add a second to every command
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			program, err := exec.LookPath("async-caller") // as Main put it on the PATH
			env.Setenv("PROGRAM", program)
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "account": startAccount, "unreachable": unreachable,
			"beat": putBeat, "tick": tick, "deliver": deliver,
			"queue": printQueue, "writes": printWrites, "steady": steady, "fill": fill,
			"dead": putDead, "scheduled": putScheduled, "freeport": freePort, "ready": ready,
		},
	})
}

func exits(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND ARGS...")
	}
	code := 0
	err := ts.Exec(args[1], args[2:]...)
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		code = ended.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// account is the storage account of a script. Its store is nil until the script asks for it.
type account struct {
	store           *azure.Queues
	table, outcomes *azure.Table
	tables          *azure.Tables
	prefix          string // of the paths of its URLs

	mu     sync.Mutex
	writes []string
}

// accountKey is the key of the account in the script's values.
type accountKey struct{}

func startAccount(ts *testscript.TestScript, _ bool, _ []string) {
	server, err := emulator.Start(context.Background(), emulator.Options{})
	ts.Check(err)
	ts.Defer(server.Close)
	a := ts.Value(accountKey{}).(*account)
	target, err := url.Parse(server.QueueEndpoint)
	ts.Check(err)
	a.prefix = target.Path + "/"
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: target.Scheme, Host: target.Host})
	recorder := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.record(r)
		r.Host = target.Host // the emulator refuses others
		proxy.ServeHTTP(w, r)
	}))
	ts.Defer(recorder.Close)

	direct := server.ConnectionString
	connectionString := strings.Replace(direct, server.QueueEndpoint, recorder.URL+target.Path, 1)
	ts.Setenv("AzureWebJobsStorage", connectionString)
	ts.Setenv("ACCOUNT", connectionString)
	connection, err := azure.ParseConnection([]string{"AzureWebJobsStorage=" + direct}, "AzureWebJobsStorage")
	ts.Check(err)
	a.store, err = azure.Open(connection)
	ts.Check(err)
	ts.Defer(a.store.Close)
	a.table, err = azure.OpenTable(connection, storage.ScheduledTable)
	ts.Check(err)
	ts.Defer(a.table.Close)
	a.outcomes, err = azure.OpenTable(connection, storage.RunTable)
	ts.Check(err)
	ts.Defer(a.outcomes.Close)
	a.tables, err = azure.OpenTables(connection)
	ts.Check(err)
	ts.Defer(a.tables.Close)
}

func (a *account) record(r *http.Request) {
	if r.Method == http.MethodGet {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	query := r.URL.Query()
	query.Del("timeout")
	a.writes = append(a.writes,
		strings.TrimSpace(r.Method+" "+strings.TrimPrefix(r.URL.Path, a.prefix)+" "+query.Encode()))
}

func mustAccount(ts *testscript.TestScript) *account {
	a := ts.Value(accountKey{}).(*account)
	if a.store == nil {
		ts.Fatalf("the script has no account: use account")
	}
	return a
}

func unreachable(ts *testscript.TestScript, _ bool, _ []string) {
	address, err := freeport.Address(context.Background())
	ts.Check(err)
	ts.Setenv("AzureWebJobsStorage", "DefaultEndpointsProtocol=http;AccountName=away;"+
		"AccountKey=C4naryC4naryC4naryC4nary;QueueEndpoint=http://"+address+"/away;")
}

func putDead(ts *testscript.TestScript, _ bool, args []string) {
	flags := flag.NewFlagSet("dead", flag.ContinueOnError)
	raw, inHex := flags.Bool("raw", false, ""), flags.Bool("hex", false, "")
	ttl := flags.Duration("ttl", 0, "")
	ts.Check(flags.Parse(args))
	if flags.NArg() != 2 {
		ts.Fatalf("usage: dead [-raw] [-hex] [-ttl=DURATION] QUEUE FILE")
	}
	store, name := mustAccount(ts).store, flags.Arg(0)
	ts.Check(store.Create(context.Background(), name))
	for line := range strings.Lines(ts.ReadFile(flags.Arg(1))) {
		text := strings.TrimSuffix(line, "\n")
		if *inHex {
			content, err := hex.DecodeString(text)
			ts.Check(err)
			text = string(content)
		}
		if !*raw {
			text = storage.Base64.Encode([]byte(text))
		}
		_, err := store.Put(context.Background(), name, storage.Item{Text: text, TTL: *ttl})
		ts.Check(err)
	}
}

func putScheduled(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: scheduled QUEUE FILE")
	}
	const delay = 2 * time.Hour
	a, ctx, now := mustAccount(ts), context.Background(), time.Now().UTC()
	ts.Check(a.store.Create(ctx, args[0]))
	for line := range strings.Lines(ts.ReadFile(args[1])) {
		e, err := envelope.Parse([]byte(line))
		ts.Check(err)
		ts.Check(e.Accept(now, "id", storage.Base64.MaxContentBytes()))
		e = e.WithState(envelope.State{Attempts: 1, CreatedAt: now, NextAttemptAt: now.Add(delay)})
		content, err := e.Successor(storage.Base64.MaxContentBytes())
		ts.Check(err)
		m, err := a.store.Put(ctx, args[0], storage.Item{Text: storage.Base64.Encode(content.Bytes), Delay: delay})
		ts.Check(err)
		ts.Check(rows.Put(ctx, a.table, record.Row{
			Key: storage.Key{Partition: args[0], ID: m.ID}, PopReceipt: m.PopReceipt, RequestID: e.RequestID,
			Method: e.Call.Method, TargetHost: e.Call.Target.Host, PathPattern: fold.Path(e.Call.Target.Path),
			Reason: "temporary_status",
			Status: http.StatusServiceUnavailable, Attempts: 1, CreatedAt: now, NextAttemptAt: now.Add(delay),
			Deadline: e.GiveUpAt(week), Content: content.Bytes,
		}))
	}
}

// week is how long a call without a deadline is tried.
const week = 7 * 24 * time.Hour

func printQueue(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: queue NAME")
	}
	store := mustAccount(ts).store
	count, err := store.Count(context.Background(), args[0])
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "%d messages\n", count)
	messages, err := store.Peek(context.Background(), args[0], storage.MaxBatch)
	ts.Check(err)
	for _, m := range messages {
		content, err := storage.Base64.Decode(m.Text)
		if err != nil {
			content = []byte("not base64: " + m.Text)
		}
		fmt.Fprintf(ts.Stdout(), "%s\n", content)
	}
}

func tick(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: tick PORT FUNCTION")
	}
	url := "http://127.0.0.1:" + args[0] + "/" + args[1]
	body := strings.NewReader(`{"Data":{"timer":{}},"Metadata":{}}`)
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, body)
	ts.Check(err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Azure-Functions-InvocationId", uuid.NewString())
	answer, err := http.DefaultClient.Do(request)
	ts.Check(err)
	ts.Check(answer.Body.Close())
	if answer.StatusCode != http.StatusOK {
		ts.Fatalf("%s answered %d", args[1], answer.StatusCode)
	}
}

func putBeat(ts *testscript.TestScript, _ bool, args []string) {
	table, problem := mustAccount(ts).table, strings.Join(args, " ")
	app := heartbeat.App{Name: "local", Version: "test", Problem: problem}
	ts.Check(heartbeat.Beat(context.Background(), table, app, functionapp.MonitorTimer))
}

func deliver(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: deliver QUEUE")
	}
	a, ctx := mustAccount(ts), context.Background()
	outcomes := record.NewOutcomeWriter(a.outcomes, 1<<20, zerolog.Nop())
	defer outcomes.Close(time.Minute)
	kept := history.New(a.tables, 90*24*time.Hour, zerolog.Nop())
	defer kept.Close(time.Minute)
	received, err := a.store.Receive(ctx, args[0], storage.MaxBatch, time.Minute)
	ts.Check(err)
	for _, m := range received {
		content, err := storage.Base64.Decode(m.Text)
		ts.Check(err)
		e, err := envelope.Parse(content)
		ts.Check(err)
		ts.Check(a.store.Delete(ctx, args[0], m.ID, m.PopReceipt))
		outcome := record.Outcome{
			Run: e.Run, RequestID: e.RequestID, Attempt: 1, Called: true, Action: "finish", Reason: "delivered",
			At: time.Now(),
		}
		outcomes.Put(outcome.Keyed())
		ts.Check(e.Accept(time.Now(), m.ID, storage.Base64.MaxContentBytes()))
		entry := kept.NewEntry(e, time.Now())
		entry.Queue, entry.MessageID, entry.Action, entry.Reason = args[0], m.ID, "finish", "delivered"
		entry.Attempts, entry.Trail = 1, []history.Attempt{{At: time.Now(), Status: 204, TookMs: 12}}
		kept.Record(entry)
	}
}

func printWrites(ts *testscript.TestScript, _ bool, _ []string) {
	a := mustAccount(ts)
	a.mu.Lock()
	defer a.mu.Unlock()
	out := ts.Stdout() // replaces the previous output even if there is nothing to print
	for _, write := range a.writes {
		fmt.Fprintln(out, write)
	}
	a.writes = nil
}

// replacements replace everything that differs between runs by words.
type replacements []struct {
	pattern *regexp.Regexp
	word    string
}

// The -ages replacements concern values that a script may have chosen itself.
var (
	alwaysReplaced = replacements{
		{regexp.MustCompile(`((?i:"createdAt"): ?)"[^"]+"`), `$1"NOW"`},
		{regexp.MustCompile(`("traceparent": ?)"[^"]+"`), `$1"TRACE"`},
		{regexp.MustCompile(`\b127\.0\.0\.1:[0-9]+/demo\b`), `ACCOUNT`},
		{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), `UUID`},
	}
	agesReplaced = replacements{
		{regexp.MustCompile(`\b[0-9]{8}-[0-9]{6}-([a-z]+)-[a-z0-9]{4}\b`), `RUN-$1`},
		{regexp.MustCompile(`\b[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z`), `TIME`},
		{regexp.MustCompile(`\b[0-9a-f]{8}\b`), `ID`},
		{regexp.MustCompile(` +(?:[0-9]+[smhd])+\b`), ` AGE`},
		{regexp.MustCompile(`AGE ago +`), `AGE ago  `},
	}
)

func steady(ts *testscript.TestScript, _ bool, args []string) {
	replaced := alwaysReplaced
	if len(args) == 2 && args[0] == "-ages" {
		replaced, args = slices.Concat(alwaysReplaced, agesReplaced), args[1:]
	}
	if len(args) != 1 {
		ts.Fatalf("usage: steady [-ages] FILE")
	}
	text := ts.ReadFile(args[0])
	for _, r := range replaced {
		text = r.pattern.ReplaceAllString(text, r.word)
	}
	fmt.Fprint(ts.Stdout(), text)
}

func fill(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: fill FILE")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(os.Expand(ts.ReadFile(args[0]), ts.Getenv)), 0o600))
}

func freePort(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: freeport NAME")
	}
	port, err := freeport.Find(context.Background())
	ts.Check(err)
	ts.Setenv(args[0], strconv.Itoa(port))
}

func ready(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: ready PORT")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var answer string
	err := testbed.Await(ctx, func() bool {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+args[0]+"/", http.NoBody)
		ts.Check(err)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		answer = string(body)
		return err == nil && response.StatusCode == http.StatusOK
	})
	ts.Check(err)
	fmt.Fprint(ts.Stdout(), answer)
}
