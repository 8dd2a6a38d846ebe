package serve_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/program/serve"
)

// A host that has ended does not stop its handler. The handler releases the messages in progress, then it ends.
func TestHostGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var parent atomic.Int64
		parent.Store(42)
		ctx, _ := serve.WatchHost(t.Context(), func() int { return int(parent.Load()) }, io.Discard)
		released := make(chan struct{})
		s := startIn(ctx, t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			<-ctx.Done()
			<-time.After(time.Second) // the release
			close(released)
		}))
		go func() { _, _ = post(t.Context(), s.transport, "http://handler/AC-standard", "") }()
		advance(time.Hour)
		s.wantRunning(t)
		parent.Store(1)
		began := time.Now()
		if err := <-s.ended; !errors.Is(err, delivery.ErrHostGone) {
			t.Errorf("got %v, want %v", err, delivery.ErrHostGone)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("Run ended after %v", took)
		}
		select {
		case <-released:
		default:
			t.Error("Run did not wait for the invocation in progress")
		}
	})
}

// A host can end before its handler knows its process id. Then its pipe has no reader.
func TestHostGoneBeforehand(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = writer.Close() }()
	ctx, pipe := serve.WatchHost(t.Context(), os.Getppid, writer)
	if _, err := io.WriteString(pipe, "line\n"); err != nil || ctx.Err() != nil {
		t.Fatalf("the host is there: got %v, %v", err, context.Cause(ctx))
	}
	_ = reader.Close()
	if _, err := io.WriteString(pipe, "line\n"); err == nil {
		t.Error("a write to a broken pipe succeeds")
	}
	if cause := context.Cause(ctx); !errors.Is(cause, delivery.ErrHostGone) {
		t.Errorf("got %v, want %v", cause, delivery.ErrHostGone)
	}
}

// Only a broken pipe says that the host is gone.
func TestHostPipe(t *testing.T) {
	var out bytes.Buffer
	ctx, pipe := serve.WatchHost(t.Context(), os.Getppid, io.MultiWriter(&out, full{}))
	if _, err := io.WriteString(pipe, "line\n"); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(out.String(), "line") || ctx.Err() != nil {
		t.Errorf("got %q, %v", out.String(), context.Cause(ctx))
	}
}

// full is a writer that has no room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }
