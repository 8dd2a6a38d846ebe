package cli_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/program/cli"
)

const settled = `{"level":"info","request_id":"r1","action":"finish","reason":"delivered",` +
	`"time":"2026-11-22T10:00:00Z","message":"settled"}` + "\n"

// logRun is `async-caller log` that writes to a pipe and, unless it reads something else, reads from one.
type logRun struct {
	in     *io.PipeWriter
	out    *bufio.Reader
	stderr strings.Builder
	// interrupt is Ctrl-C, and ended receives the exit code.
	interrupt context.CancelFunc
	ended     chan int
}

func startLog(t *testing.T, stdin io.Reader) *logRun {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, stdout := io.Pipe()
	r := &logRun{out: bufio.NewReader(out), interrupt: cancel, ended: make(chan int, 1)}
	if stdin == nil {
		stdin, r.in = io.Pipe()
	}
	go func() {
		r.ended <- cli.Run(ctx, []string{"log"}, cli.Env{Stdin: stdin, Stdout: stdout, Stderr: &r.stderr})
		_ = stdout.Close()
	}()
	return r
}

// pass writes lines and reads the line that is shown.
func (r *logRun) pass(t *testing.T, lines, want string) {
	t.Helper()
	if _, err := io.WriteString(r.in, lines); err != nil {
		t.Fatal(err)
	}
	shown, err := r.out.ReadString('\n')
	if err != nil || !strings.HasSuffix(shown, want+"\n") {
		t.Fatalf("read %q, error %v, want %q", shown, err, want)
	}
}

func (r *logRun) wantDone(t *testing.T) {
	t.Helper()
	rest, err := io.ReadAll(r.out)
	if code := <-r.ended; code != 0 || err != nil || len(rest) > 0 || r.stderr.Len() > 0 {
		t.Errorf("exit code %d, output %q, error %v, message %q", code, rest, err, r.stderr.String())
	}
}

// TestLogLive: each line is shown when it arrives, while the input goes on.
func TestLogLive(t *testing.T) {
	r := startLog(t, nil)
	r.pass(t, settled, "r1  delivered")
	r.pass(t, settled+"no line", "r1  delivered")
	r.pass(t, " of the handler\nthe e", "no line of the handler")
	_ = r.in.Close()
	if shown, err := r.out.ReadString('\n'); shown != "the e\n" || err != nil {
		t.Errorf("at the end: read %q, error %v", shown, err)
	}
	r.wantDone(t)
}

// TestLogInterrupted: after Ctrl-C, the last lines of a program that stops too are shown, but none is awaited for long.
func TestLogInterrupted(t *testing.T) {
	for name, end := range map[string]func(*logRun){
		"program_ends":    func(r *logRun) { _ = r.in.Close() },
		"program_goes_on": func(*logRun) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := startLog(t, nil)
				r.pass(t, settled, "r1  delivered")
				r.interrupt()
				synctest.Wait()
				began := time.Now()
				r.pass(t, "stopped\n", "stopped")
				end(r)
				r.wantDone(t)
				_ = r.in.Close()
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("it ended %v after the interrupt", took)
				}
			})
		})
	}
}

// TestLogInterruptedInAFile: Ctrl-C stops the output of a long file at once.
func TestLogInterruptedInAFile(t *testing.T) {
	const lines = 20_000
	path := filepath.Join(t.TempDir(), "log.txt")
	if err := os.WriteFile(path, []byte(strings.Repeat(settled, lines)), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	r := startLog(t, file)
	if _, err := r.out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	r.interrupt()
	rest, err := io.ReadAll(r.out)
	if shown := strings.Count(string(rest), "\n"); <-r.ended != 0 || err != nil || shown > lines/2 {
		t.Errorf("%d lines after the interrupt, error %v, message %q", shown, err, r.stderr.String())
	}
}

// TestLogClosedOutput: a reader that has seen enough, such as head, is no failure.
func TestLogClosedOutput(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = read.Close()
	defer func() { _ = write.Close() }()
	var stderr strings.Builder
	code := cli.Run(t.Context(), []string{"log"}, cli.Env{
		Stdin: strings.NewReader(settled + settled), Stdout: write, Stderr: &stderr,
	})
	if code != 0 || stderr.Len() > 0 {
		t.Errorf("exit code %d, message %q", code, stderr.String())
	}
}

// TestLogReadError: what was read is shown, and then the error.
func TestLogReadError(t *testing.T) {
	var stdout, stderr strings.Builder
	broken := iotest.ErrReader(errors.New("read: device gone"))
	code := cli.Run(t.Context(), []string{"log"}, cli.Env{
		Stdin: io.MultiReader(strings.NewReader(settled+"the e"), broken), Stdout: &stdout, Stderr: &stderr,
	})
	if code != 1 || !strings.HasSuffix(stdout.String(), "r1  delivered\nthe e\n") ||
		stderr.String() != "async-caller: read: device gone\n" {
		t.Errorf("exit code %d, output %q, message %q", code, stdout.String(), stderr.String())
	}
}
