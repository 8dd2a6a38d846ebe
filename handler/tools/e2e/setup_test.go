package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/queue/azure"
	"asynccaller/handler/tools/azurite"
	"asynccaller/handler/tools/azurite/azuritetest"
	"asynccaller/handler/tools/testbed"
)

const (
	mainQueue   = "async-caller"
	poisonQueue = "async-caller-poison"
	// patience is generous: other packages are tested on the same two cores.
	patience = 3 * time.Minute
)

// executable is async-caller, built once for all tests.
var executable string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "async-caller-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	executable = filepath.Join(dir, "async-caller")
	build := exec.CommandContext(context.Background(), "go", "build", "-o", executable, "asynccaller/handler")
	if output, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building async-caller: %v\n%s", err, output)
		return 1
	}
	return m.Run()
}

// bed is one test's storage, target and app folder. The host is started when the test wants it.
type bed struct {
	t       *testing.T
	azurite *azurite.Server
	store   *azure.Store
	target  *testbed.Target
	app     string
	host    *testbed.Host
}

type options struct {
	azurite azurite.Options
	// dataType of the function; empty is binary.
	dataType string
}

func newBed(t *testing.T, o options) *bed {
	t.Helper()
	b := &bed{t: t, app: t.TempDir(), azurite: azuritetest.Start(t, o.azurite)}
	var err error
	b.store, err = testbed.OpenStore(b.azurite.ConnectionString)
	b.must(err)
	t.Cleanup(b.store.Close)
	b.target, err = testbed.NewTarget(t.Context())
	b.must(err)
	t.Cleanup(b.target.Close)
	b.must(b.store.Create(t.Context(), mainQueue))
	b.stage(o.dataType)
	return b
}

// stage makes an app folder out of the project's own files, with the standard function only.
func (b *bed) stage(dataType string) {
	b.t.Helper()
	const project = "../../.."
	function, err := os.ReadFile(filepath.Join(project, "functions", "AC-standard", "function.json"))
	b.must(err)
	if dataType != "" {
		function = bytes.ReplaceAll(function, []byte(`"binary"`), []byte(strconv.Quote(dataType)))
	}
	host, err := os.ReadFile(filepath.Join(project, "host.json"))
	b.must(err)
	b.must(os.WriteFile(filepath.Join(b.app, "host.json"), host, 0o600))
	b.must(os.Mkdir(filepath.Join(b.app, "AC-standard"), 0o700))
	b.must(os.WriteFile(filepath.Join(b.app, "AC-standard", "function.json"), function, 0o600))
	b.must(os.Symlink(executable, filepath.Join(b.app, "async-caller")))
}

// start starts the local host. A failed message is visible again after a second, so that tests are short.
func (b *bed) start(env []string, args ...string) {
	b.t.Helper()
	env = append([]string{"AzureFunctionsJobHost__extensions__queues__visibilityTimeout=00:00:01"}, env...)
	host, err := testbed.StartHost(b.t.Context(), testbed.HostOptions{
		Executable: executable, AppDir: b.app, ConnectionString: b.azurite.ConnectionString, Env: env, Args: args,
	})
	b.must(err)
	b.host = host
	b.t.Cleanup(func() {
		if err := host.Stop(30 * time.Second); err != nil {
			b.t.Errorf("stopping the host: %v", err)
		}
		if b.t.Failed() {
			b.t.Logf("host and handler:\n%s", host.Output())
		}
	})
}

// put puts an envelope on the queue: a call to the given script, under the given id.
func (b *bed) put(id, script, members string) {
	b.t.Helper()
	b.putContent(fmt.Appendf(nil, `{"asyncCaller":1,"requestId":%q,"call":{"url":%q}%s}`, id, b.target.URL(script), members))
}

func (b *bed) putContent(content []byte) {
	b.t.Helper()
	_, err := b.store.Put(b.t.Context(), mainQueue, queue.Item{Text: queue.Base64.Encode(content)})
	b.must(err)
}

// await waits until something is seen, and fails the test when the host ends or patience does.
func (b *bed) await(what string, seen func() bool) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	err := testbed.Await(ctx, seen)
	if err != nil {
		b.t.Fatalf("waiting for %s: %v", what, err)
	}
}

func (b *bed) awaitEmpty() {
	b.t.Helper()
	b.await("the queue to be empty", func() bool { return b.count(mainQueue) == 0 })
}

// delivered reports whether the latest call of each message r0, r1, … was answered 200.
func (b *bed) delivered(messages int) bool {
	for n := range messages {
		calls := b.target.Calls(fmt.Sprintf("r%d", n))
		if len(calls) == 0 || calls[len(calls)-1].Answer != "200" {
			return false
		}
	}
	return true
}

// count is the number of messages on a queue; -1 when storage does not tell.
func (b *bed) count(name string) int {
	n, err := b.store.Count(b.t.Context(), name)
	if err != nil {
		return -1
	}
	return n
}

// deadLetters takes everything off the poison queue.
func (b *bed) deadLetters() (contents []map[string]any) {
	b.t.Helper()
	_, err := b.store.Count(b.t.Context(), poisonQueue) // there must be one
	b.must(err)
	for _, content := range b.drain(poisonQueue) {
		var e map[string]any
		b.must(json.Unmarshal(content, &e))
		contents = append(contents, e)
	}
	return contents
}

// drain takes everything off a queue; a queue that does not exist holds nothing.
func (b *bed) drain(name string) (contents [][]byte) {
	b.t.Helper()
	for {
		messages, err := b.store.Receive(b.t.Context(), name, queue.MaxBatch, time.Hour)
		if errors.Is(err, queue.ErrNoQueue) {
			return nil
		}
		b.must(err)
		if len(messages) == 0 {
			return contents
		}
		for _, m := range messages {
			content, err := queue.Base64.Decode(m.Text)
			b.must(err)
			contents = append(contents, content)
		}
	}
}

// summary stops the host and returns what it says of its run.
func (b *bed) summary() map[string]any {
	b.t.Helper()
	b.must(b.host.Stop(30 * time.Second))
	lines := b.host.Lines("host stopped")
	if len(lines) != 1 {
		b.t.Fatalf("%d summaries", len(lines))
	}
	return lines[0]
}

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}
