package quickstart

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"asynccaller/handler/tools/testbed"
)

const (
	project = "../../.."
	// patience is long, because other packages are tested on the same two cores.
	patience = 3 * time.Minute
)

// bin is the folder of the executables, built once for all tests.
var bin string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	folder, err := os.MkdirTemp("", "async-caller-quickstart-")
	if err == nil {
		bin = folder
		defer func() { _ = os.RemoveAll(folder) }()
		_, err = testbed.Build(context.Background(), folder)
	}
	if err == nil {
		_, err = testbed.BuildHost(context.Background(), folder)
	}
	if err == nil {
		const demo = "asynccaller/handler/tools/demo"
		build := exec.CommandContext(context.Background(), "go", "build", "-o", folder, demo)
		build.Stderr = os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(project, path))
	must(t, err)
	return string(text)
}

// await waits until the condition holds.
func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := testbed.Await(ctx, condition); err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

// environ is the environment of a reader of the documents, who has chosen no storage account yet.
func environ(more ...string) []string {
	var kept []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "AzureWebJobsStorage") && !strings.HasPrefix(variable, "ASYNC_CALLER_") {
			kept = append(kept, variable)
		}
	}
	return append(kept, more...)
}

// mustRun runs a program and returns what it printed.
func mustRun(t *testing.T, dir string, env []string, program string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, args...)
	command.Dir, command.Env = dir, env
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, output)
	}
	return string(output)
}

// newDemo returns what `make run` starts, in a folder like the project's after make build, with the local host. There
// is no source to build from.
func newDemo(t *testing.T, arguments ...string) (demo *exec.Cmd) {
	t.Helper()
	folder := t.TempDir()
	dist := filepath.Join(folder, "dist")
	must(t, os.Mkdir(dist, 0o700))
	must(t, os.Symlink(filepath.Join(bin, "async-caller"), filepath.Join(dist, "async-caller")))
	root, err := filepath.Abs(project)
	must(t, err)
	functions, err := filepath.Glob(filepath.Join(root, "functions", "*"))
	must(t, err)
	for _, name := range []string{"host.json", "local.settings.json"} {
		functions = append(functions, filepath.Join(root, name))
		must(t, os.Symlink(filepath.Join(root, name), filepath.Join(folder, name)))
	}
	for _, path := range functions {
		must(t, os.Symlink(path, filepath.Join(dist, filepath.Base(path))))
	}
	for _, name := range []string{"handler", "functions"} {
		must(t, os.Symlink(filepath.Join(root, name), filepath.Join(folder, name)))
	}
	// Ctrl-C ends it.
	arguments = append([]string{"-host", filepath.Join(bin, "functionshost"), "-stay"}, arguments...)
	demo = exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(bin, "demo"), arguments...)
	demo.Dir, demo.Env = folder, environ()
	return demo
}

// start starts a program that runs until Ctrl-C, and waits until its output matches a pattern, whose groups it returns.
func start(t *testing.T, program *exec.Cmd, pattern string) (output *terminal, found []string) {
	t.Helper()
	output = &terminal{}
	program.Stdout, program.Stderr = output, output
	must(t, program.Start())
	ended := make(chan struct{})
	var result error
	go func() {
		result = program.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = program.Process.Signal(os.Interrupt) // Ctrl-C; it may have ended
		select {
		case <-ended:
		case <-time.After(patience):
			_ = program.Process.Kill()
			<-ended
		}
		if result != nil {
			t.Errorf("%s ended after Ctrl-C: %v", program, result)
		}
		if t.Failed() {
			t.Logf("%s:\n%s", program, output)
		}
	})
	invitation := regexp.MustCompile(pattern)
	await(t, "the invitation", func() bool {
		select {
		case <-ended:
			t.Fatalf("%s has ended", program)
		default:
		}
		found = invitation.FindStringSubmatch(output.String())
		return found != nil
	})
	return output, found
}

// terminal keeps what is printed. It is safe for concurrent use.
type terminal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *terminal) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *terminal) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
