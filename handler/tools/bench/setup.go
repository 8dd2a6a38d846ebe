//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"asynccaller/handler/tools/azurite"
	"asynccaller/handler/tools/storageproxy"
	"asynccaller/handler/tools/target"
)

// bench has all parts of a run.
type bench struct {
	options

	project  string
	messages io.Writer
	begin    time.Time
	// work is a folder for executables and the handler's app.
	work   string
	target *callTarget
	// azurite is the storage account, with a processor of its own if there are several. The handler uses it through proxy.
	azurite    *azurite.Server
	processors []int
	proxy      *storageproxy.Proxy
	requests   requests
	// starts are the times to the first answer of all handlers in milliseconds, idle is the memory of some of them in MiB.
	starts, idle []float64
}

// setUp builds both programs and starts target and storage.
func (b *bench) setUp(ctx context.Context) (err error) {
	if b.work, err = os.MkdirTemp("", "async-caller-bench-"); err != nil {
		return err
	}
	err = errors.Join(b.build(ctx, "./handler/tools/bench/floor", "floor"), b.build(ctx, "./handler", "handler"))
	if err := errors.Join(err, b.stage()); err != nil {
		return err
	}
	if b.target, err = newCallTarget(ctx); err != nil {
		return err
	}
	if b.processors, err = processors(); err != nil {
		return err
	}
	return b.startAzurite(ctx)
}

// startAzurite starts an account without queues, and a proxy before it, in place of those that run. Once a minute Azurite
// collects the texts of messages that are gone. After many it would not answer for that long.
func (b *bench) startAzurite(ctx context.Context) error {
	if err := b.stopAzurite(); err != nil {
		return err
	}
	err := onProcessors(b.processors[:1], b.processors, func() (err error) {
		b.azurite, err = azurite.Start(ctx, azurite.Options{AnyVersion: true})
		return err
	})
	if err == nil {
		b.proxy, err = storageproxy.Open(ctx, b.azurite.Endpoint, &b.requests)
	}
	return err
}

func (b *bench) stopAzurite() error {
	if b.proxy != nil {
		b.proxy.Close()
	}
	if b.azurite == nil {
		return nil
	}
	return b.azurite.Stop()
}

func (b *bench) tearDown() error {
	err := b.stopAzurite()
	if b.target != nil {
		b.target.Close()
	}
	return errors.Join(err, os.RemoveAll(b.work))
}

// build builds a package as `make package` does, but for this machine.
func (b *bench) build(ctx context.Context, from, to string) error {
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s", "-o", filepath.Join(b.work, to), from)
	command.Dir = b.project
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	command.Stdout, command.Stderr = b.messages, b.messages
	if err := command.Run(); err != nil {
		return fmt.Errorf("building %s in the project's folder: %w", from, err)
	}
	return nil
}

// ownLimits has the target outside the limits of a target, because the handler's own cost is measured.
const ownLimits = `{"127.0.0.1":{"concurrency":10000,"breaker":"off"}}`

// stage makes an app folder of the project's host.json and one function for each mode.
func (b *bench) stage() error {
	for _, m := range []mode{binary, text} {
		if err := os.MkdirAll(filepath.Join(b.work, m.function()), 0o700); err != nil {
			return err
		}
		function := fmt.Appendf(nil, `{"bindings":[{"type":"queueTrigger","direction":"in","name":"message",`+
			`"queueName":%q,"connection":"AzureWebJobsStorage","dataType":%q}]}`, m.queue(), string(m))
		if err := os.WriteFile(filepath.Join(b.work, m.function(), "function.json"), function, 0o600); err != nil {
			return err
		}
	}
	host, err := os.ReadFile(filepath.Join(b.project, "host.json"))
	return errors.Join(err, os.WriteFile(filepath.Join(b.work, "host.json"), host, 0o600),
		os.WriteFile(filepath.Join(b.work, "targets.json"), []byte(ownLimits), 0o600))
}

// withHandler starts the handler with a storage account and the settings, calls do and stops the handler.
func (b *bench) withHandler(ctx context.Context, connectionString string, do func(p *process) error, settings ...string) error {
	p, err := start(ctx, filepath.Join(b.work, "handler"), []string{"serve"}, append(settings,
		"AzureWebJobsStorage="+connectionString, "FUNCTIONS_APP_ROOT_PATH="+b.work, "ASYNC_CALLER_TARGETS_ALLOW=127.0.0.1,*")...)
	if err != nil {
		return err
	}
	b.starts = append(b.starts, float64(p.started)/float64(time.Millisecond))
	return errors.Join(do(p), p.stop())
}

// behavior is how the target answers calls.
type behavior struct {
	target.Answer
	header http.Header
	// hang makes it wait, after the answer if that has a status, until the caller leaves or the channel is closed.
	hang  bool
	until <-chan struct{}
}

// callTarget counts calls and answers all in the same way.
type callTarget struct {
	*target.Server
	behavior atomic.Pointer[behavior]
	// calls and bytes count calls and the bytes of their bodies; hanging is the number of calls that hang.
	calls, bytes, hanging atomic.Int64
}

func newCallTarget(ctx context.Context) (t *callTarget, err error) {
	t = new(callTarget)
	t.Server, err = target.Serve(ctx, t)
	return t, err
}

func (t *callTarget) url() string { return "http://" + t.Addr + "/orders" }

func (t *callTarget) answer(code int) { t.behave(status(code)) }

func status(code int) behavior { return behavior{Answer: target.Answer{Status: code}} }

func (t *callTarget) behave(b behavior) { t.behavior.Store(&b) }

func (t *callTarget) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		return // the caller has left
	}
	t.bytes.Add(n)
	t.calls.Add(1)
	b := t.behavior.Load()
	if b.Status != 0 {
		maps.Copy(w.Header(), b.header)
		b.Write(w, r)
	}
	if !b.hang {
		return
	}
	if b.Status != 0 {
		_ = http.NewResponseController(w).Flush() // the context ends if the caller has left
	}
	t.hanging.Add(1)
	defer t.hanging.Add(-1)
	select {
	case <-r.Context().Done():
	case <-b.until:
	}
}

func (m mode) queue() string { return strings.ToLower(m.function()) }
