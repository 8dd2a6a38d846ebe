package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/program/demo/target"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/internal/storage/emulator"
	"asynccaller/handler/tools/azurite"
	"asynccaller/handler/tools/azurite/azuritetest"
	"asynccaller/handler/tools/testbed"
)

const (
	mainQueue   = "async-caller"
	poisonQueue = "async-caller-poison"
	// patience is long, because other packages are tested on the same two cores.
	patience = 3 * time.Minute
	// hostGrace is longer than a host waits for the invocations in progress.
	hostGrace = 30 * time.Second
)

// executable is async-caller, and localHost the stand-in for the Functions host, built once for all tests.
var executable, localHost string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "async-caller-e2e-")
	if err == nil {
		defer func() { _ = os.RemoveAll(folder) }()
		executable, err = testbed.Build(context.Background(), folder)
	}
	if err == nil {
		localHost, err = testbed.BuildHost(context.Background(), folder)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// fixture is one test's storage, target and app folder, and the host once it is started.
type fixture struct {
	t *testing.T
	// connectionString reaches the storage account, and endpoint is the URL of its queue service.
	connectionString, endpoint string

	store  *azure.Queues
	target *target.Target
	app    string
	host   *testbed.Host
}

// options are what a test needs. By default, the queues are on an emulator, which is fast, and there are no tables.
type options struct {
	// azurite puts queues and tables on an Azurite, tables adds those of the emulator.
	azurite, tables bool
	// dataType is that of the function; empty means binary.
	dataType string
}

func newFixture(t *testing.T, o options) *fixture {
	t.Helper()
	f := &fixture{t: t, app: t.TempDir()}
	f.openStorage(o)
	var err error
	f.store, err = testbed.OpenStore(f.connectionString)
	f.must(err)
	t.Cleanup(f.store.Close)
	f.target, err = target.Start(t.Context())
	f.must(err)
	t.Cleanup(f.target.Close)
	f.must(f.store.Create(t.Context(), mainQueue))
	f.stage(o)
	return f
}

func (f *fixture) openStorage(o options) {
	f.t.Helper()
	if o.azurite || underFunc {
		server := azuritetest.Start(f.t, azurite.Options{AnyVersion: underFunc})
		f.connectionString, f.endpoint = server.ConnectionString, server.Endpoint
		return
	}
	server, err := emulator.Start(f.t.Context(), emulator.Options{})
	f.must(err)
	f.t.Cleanup(server.Close)
	f.connectionString, f.endpoint = server.ConnectionString, server.QueueEndpoint
	if !o.tables {
		f.connectionString = withoutTables(server)
	}
}

// withoutTables returns a connection string without the tables of an emulator.
func withoutTables(server *emulator.Server) string {
	return strings.Replace(server.ConnectionString, ";TableEndpoint="+server.TableEndpoint, "", 1)
}

// stage fills the app folder with the project's files and the standard function.
func (f *fixture) stage(o options) {
	f.t.Helper()
	const project = "../../.."
	function, err := os.ReadFile(filepath.Join(project, "functions", "AC-standard", "function.json"))
	f.must(err)
	if o.dataType != "" {
		function = bytes.ReplaceAll(function, []byte(`"binary"`), []byte(strconv.Quote(o.dataType)))
	}
	// The failures of a script do not make other messages wait.
	f.must(os.WriteFile(filepath.Join(f.app, "targets.json"), []byte(`{"*":{"breaker":"off"}}`), 0o600))
	host, err := os.ReadFile(filepath.Join(project, "host.json"))
	f.must(err)
	f.must(os.WriteFile(filepath.Join(f.app, "host.json"), host, 0o600))
	f.must(os.Mkdir(filepath.Join(f.app, "AC-standard"), 0o700))
	f.must(os.WriteFile(filepath.Join(f.app, "AC-standard", "function.json"), function, 0o600))
	f.must(os.Symlink(executable, filepath.Join(f.app, "async-caller")))
}

// start starts the host. A failed message is visible again after a second, to keep tests short.
func (f *fixture) start(env []string, args ...string) {
	f.t.Helper()
	env = append([]string{"AzureFunctionsJobHost__extensions__queues__visibilityTimeout=00:00:01"}, env...)
	host, err := testbed.StartHost(f.t.Context(), testbed.HostOptions{
		Func: underFunc, Worker: underWorker, Executable: localHost, AppDir: f.app,
		ConnectionString: f.connectionString, Env: env, Args: args,
	})
	f.must(err)
	f.host = host
	f.t.Cleanup(func() {
		if err := host.Stop(hostGrace); err != nil {
			f.t.Errorf("stopping the host: %v", err)
		}
		if f.t.Failed() {
			f.t.Logf("host and handler:\n%s", host.Output())
		}
	})
}

// put puts an envelope with a request id on the queue; the target answers by the script.
func (f *fixture) put(id, script, members string) {
	f.t.Helper()
	f.putContent(fmt.Appendf(nil, `{"asyncCaller":1,"requestId":%q,"call":{"url":%q}%s}`, id, f.target.URL(script),
		members))
}

func (f *fixture) putContent(content []byte) {
	f.t.Helper()
	_, err := f.store.Put(f.t.Context(), mainQueue, storage.Item{Text: storage.Base64.Encode(content)})
	f.must(err)
}

// await waits until the condition holds.
func (f *fixture) await(what string, seen func() bool) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	err := testbed.Await(ctx, seen)
	if err != nil {
		f.t.Fatalf("waiting for %s: %v", what, err)
	}
}

func (f *fixture) awaitEmpty() {
	f.t.Helper()
	f.await("the queue to be empty", func() bool { return f.count(mainQueue) == 0 })
}

// delivered reports whether the latest call of each message r0, r1, … was answered 200.
func (f *fixture) delivered(messages int) bool {
	for n := range messages {
		calls := f.target.Calls(fmt.Sprintf("r%d", n))
		if len(calls) == 0 || calls[len(calls)-1].Answer != "200" {
			return false
		}
	}
	return true
}

// count returns the number of messages on a queue; -1 if storage does not answer.
func (f *fixture) count(name string) int {
	n, err := f.store.Count(f.t.Context(), name)
	if err != nil {
		return -1
	}
	return n
}

// drain receives all messages of a queue; a queue that does not exist has none.
func (f *fixture) drain(name string) (contents [][]byte) {
	f.t.Helper()
	for {
		messages, err := f.store.Receive(f.t.Context(), name, storage.MaxBatch, time.Hour)
		if errors.Is(err, storage.ErrNoQueue) {
			return nil
		}
		f.must(err)
		if len(messages) == 0 {
			return contents
		}
		for _, m := range messages {
			content, err := storage.Base64.Decode(m.Text)
			f.must(err)
			contents = append(contents, content)
		}
	}
}

// mustDeliverOnce stops the host and checks that it dequeued every message once and no invocation failed.
func (f *fixture) mustDeliverOnce() {
	f.t.Helper()
	f.stopAndCount(map[string]float64{"max_dequeue_count": 1, "failed": 0, "poisoned": 0})
}

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// reasons returns how the deliveries of a request id were settled.
func (f *fixture) reasons(id string) (reasons []string) {
	for _, line := range f.host.Lines("settled") {
		if line["request_id"] == id {
			reasons = append(reasons, fmt.Sprint(line["action"], " ", line["reason"]))
		}
	}
	return reasons
}
