package quickstart

import (
	"bytes"
	"cmp"
	"context"
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

// makeRun is what `make run` starts, without the messages of the demo.
type makeRun struct {
	// folder is like the project's folder after make run.
	folder string
	// export is the connection string that it printed, or empty if the commands need none; target is the address of
	// the target that it printed.
	export, target string
	// output is what it printed, to the terminal of make run.
	output *terminal
}

// connection is what the programs of docs/senders.md need.
func (r makeRun) connection() string { return cmp.Or(r.export, "UseDevelopmentStorage=true") }

// layOut makes a folder like the project's folder after make build. The demo is the program behind make run, with the
// local host, because the folder has no source to build it from.
func layOut(t *testing.T) (folder string, demo func(context.Context, ...string) *exec.Cmd) {
	t.Helper()
	folder = t.TempDir()
	dist := filepath.Join(folder, "dist")
	tool := filepath.Join(folder, "demo")
	mustRun(t, ".", os.Environ(), "go", "build", "-o", filepath.Join(dist, "async-caller"), "asynccaller/handler")
	mustRun(t, ".", os.Environ(), "go", "build", "-o", tool, "asynccaller/handler/tools/demo")
	localHost, err := testbed.BuildHost(t.Context(), t.TempDir())
	must(t, err)
	root, err := filepath.Abs(project)
	must(t, err)
	link := func(name, folder string) {
		must(t, os.Symlink(filepath.Join(root, name), filepath.Join(folder, filepath.Base(name))))
	}
	for _, name := range []string{"handler", "functions", "host.json", "local.settings.json"} {
		link(name, folder)
	}
	functions, err := os.ReadDir(filepath.Join(root, "functions"))
	must(t, err)
	for _, function := range functions {
		link(filepath.Join("functions", function.Name()), dist)
	}
	link("host.json", dist)
	link("local.settings.json", dist)
	return folder, func(ctx context.Context, arguments ...string) *exec.Cmd {
		command := exec.CommandContext(ctx, tool, append([]string{"-host", localHost}, arguments...)...)
		command.Dir = folder
		return command
	}
}

func startMakeRun(t *testing.T) makeRun {
	t.Helper()
	folder, newDemo := layOut(t)
	demo := newDemo(context.WithoutCancel(t.Context()), "-stay", "-empty") // Ctrl-C ends it
	demo.Env = environ()
	output, found := start(t, demo, `(?s)In another terminal, in this folder:\n\n`+
		`(?:  export AzureWebJobsStorage='(.+?)'\n)?.*--url http://(127\.0\.0\.1:\d+)/.*\n$`)
	return makeRun{folder: folder, export: found[1], target: found[2], output: output}
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
