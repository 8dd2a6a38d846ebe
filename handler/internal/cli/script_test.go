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
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"asynccaller/handler/internal/cli"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/queue/azure"
	"asynccaller/handler/tools/azurite"
	"asynccaller/handler/tools/testbed"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"async-caller": func() { os.Exit(cli.Run(context.Background(), os.Args[1:], cli.ProcessEnv())) },
	})
}

// TestScripts runs the scripts in testdata/script: the command line as a person at a shell sees it. Beside
// testscript's own commands they know:
//
//   - exits CODE COMMAND ARGS... runs a command that must end with that code.
//   - azurite starts a storage account of the script's own and sets AzureWebJobsStorage.
//   - unreachable sets AzureWebJobsStorage to an account that nobody serves, with a planted key.
//   - dead [-raw] [-hex] [-ttl=DURATION] QUEUE FILE puts each line of a file on a queue, which is made: in
//     base64, or raw as it is; with -hex the line is the bytes' hex digits.
//   - queue NAME prints what stands on a queue: how many messages, then the visible ones, one a line.
//   - writes prints the requests that changed something on the account, in order, and forgets them.
//   - steady [-ages] FILE prints a file with what differs from run to run replaced by words; with -ages
//     also times, ages, the names of runs and the beginnings of ids.
//   - freeport NAME sets a variable to a port that nobody listens on.
//   - ready PORT waits for the handler on that port and prints its answer to GET /.
//   - until FILE TEXT waits until the file that a background command writes holds a text.
//   - fill FILE replaces $NAME in a file by the environment's variables.
//
// $PROGRAM is the program's path, for where the PATH must not lead to it.
func TestScripts(t *testing.T) {
	if err := azurite.Install(t.Context(), t.Output()); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Values[accountKey{}] = &account{}
			env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, ".state")) // journals
			env.Setenv("GORACE", "atexit_sleep_ms=0")                          // the race detector would add a second to every command
			program, err := exec.LookPath("async-caller")                      // as Main put it on the PATH
			env.Setenv("PROGRAM", program)
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "azurite": startAzurite, "unreachable": unreachable,
			"queue": printQueue, "writes": printWrites, "steady": steady, "fill": fill,
			"dead": putDead, "freeport": freePort, "ready": ready, "until": until,
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

// account is a script's storage account; its store is nil until the script starts it.
type account struct {
	store *azure.Store

	mu     sync.Mutex
	writes []string
}

// accountKey is where a script's account is kept.
type accountKey struct{}

func startAzurite(ts *testscript.TestScript, _ bool, _ []string) {
	server, err := azurite.Start(context.Background(), azurite.Options{})
	ts.Check(err)
	ts.Defer(func() { _ = server.Stop() })

	a := ts.Value(accountKey{}).(*account)
	target, err := url.Parse(server.Endpoint)
	ts.Check(err)
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: target.Scheme, Host: target.Host})
	recorder := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.record(r)
		proxy.ServeHTTP(w, r)
	}))
	ts.Defer(recorder.Close)

	connectionString := strings.Replace(server.ConnectionString, server.Endpoint, recorder.URL+target.Path, 1)
	ts.Setenv("AzureWebJobsStorage", connectionString)
	ts.Setenv("ACCOUNT", connectionString)
	connection, err := azure.ParseConnection(func(string) string { return server.ConnectionString }, "AzureWebJobsStorage")
	ts.Check(err)
	a.store, err = azure.Open(connection)
	ts.Check(err)
	ts.Defer(a.store.Close)
}

func (a *account) record(r *http.Request) {
	if r.Method == http.MethodGet {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	query := r.URL.Query()
	query.Del("timeout")
	a.writes = append(a.writes, strings.TrimSpace(r.Method+" "+strings.TrimPrefix(r.URL.Path, "/"+azurite.AccountName+"/")+" "+query.Encode()))
}

func mustAccount(ts *testscript.TestScript) *account {
	a := ts.Value(accountKey{}).(*account)
	if a.store == nil {
		ts.Fatalf("start azurite first")
	}
	return a
}

func unreachable(ts *testscript.TestScript, _ bool, _ []string) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close() // its port was free a moment ago
	ts.Setenv("AzureWebJobsStorage", "DefaultEndpointsProtocol=http;AccountName=away;AccountKey=C4naryC4naryC4naryC4nary;QueueEndpoint="+server.URL+"/away;")
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
			text = queue.Base64.Encode([]byte(text))
		}
		_, err := store.Put(context.Background(), name, queue.Item{Text: text, TTL: *ttl})
		ts.Check(err)
	}
}

func printQueue(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: queue NAME")
	}
	store := mustAccount(ts).store
	count, err := store.Count(context.Background(), args[0])
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "%d messages\n", count)
	messages, err := store.Peek(context.Background(), args[0], queue.MaxBatch)
	ts.Check(err)
	for _, m := range messages {
		content, err := queue.Base64.Decode(m.Text)
		if err != nil {
			content = []byte("not base64: " + m.Text)
		}
		fmt.Fprintf(ts.Stdout(), "%s\n", content)
	}
}

func printWrites(ts *testscript.TestScript, _ bool, _ []string) {
	a := mustAccount(ts)
	a.mu.Lock()
	defer a.mu.Unlock()
	out := ts.Stdout() // also where there is nothing to print: it replaces what was there
	for _, write := range a.writes {
		fmt.Fprintln(out, write)
	}
	a.writes = nil
}

// unsteady is what differs from run to run, and the words that stand for it.
type unsteady []struct {
	found *regexp.Regexp
	word  string
}

// always is what no script expects, nowAndThen what a script may have chosen itself.
var (
	always = unsteady{
		{regexp.MustCompile(`((?i:"createdAt"): ?)"[^"]+"`), `$1"NOW"`},
		{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), `UUID`},
	}
	nowAndThen = unsteady{
		{regexp.MustCompile(`\b[0-9]{8}-[0-9]{6}-([a-z]+)-[a-z0-9]{4}\b`), `RUN-$1`},
		{regexp.MustCompile(`\b[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z`), `TIME`},
		{regexp.MustCompile(`\b[0-9a-f]{8}\b`), `ID`},
		{regexp.MustCompile(` +[0-9]+[smhdy]\b`), ` AGE`},
	}
)

func steady(ts *testscript.TestScript, _ bool, args []string) {
	differs := always
	if len(args) == 2 && args[0] == "-ages" {
		differs, args = slices.Concat(always, nowAndThen), args[1:]
	}
	if len(args) != 1 {
		ts.Fatalf("usage: steady [-ages] FILE")
	}
	text := ts.ReadFile(args[0])
	for _, u := range differs {
		text = u.found.ReplaceAllString(text, u.word)
	}
	fmt.Fprint(ts.Stdout(), text)
}

func until(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: until FILE TEXT")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	ts.Check(testbed.Await(ctx, func() bool {
		content, err := os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && strings.Contains(string(content), args[1])
	}))
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
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	ts.Setenv(args[0], server.URL[strings.LastIndex(server.URL, ":")+1:])
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
