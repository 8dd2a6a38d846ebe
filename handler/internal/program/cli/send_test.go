package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/operate/send"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// distant is a store that takes a second for each message, the later ones of ten less.
type distant struct {
	*memory.Queues
	now, most *atomic.Int64 // puts that are in progress
}

func newDistant() distant { return distant{memory.New(), new(atomic.Int64), new(atomic.Int64)} }

func (d distant) Put(ctx context.Context, name string, item storage.Item) (storage.Message, error) {
	now := d.now.Add(1)
	defer d.now.Add(-1)
	if now > d.most.Load() {
		d.most.Store(now)
	}
	<-time.After(time.Second - time.Duration(len(item.Text)%10)*50*time.Millisecond)
	return d.Queues.Put(ctx, name, item)
}

// TestSendManyInParallel: a file of many envelopes does not wait for storage one by one, and the ids come in its order.
func TestSendManyInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 160
		var file, want strings.Builder
		for i := range n {
			fmt.Fprintf(&file, `{"asyncCaller":1,"requestId":"r%d","call":{"url":"https://t.example/%s"}}`+"\n",
				i, strings.Repeat("x", i%7))
			fmt.Fprintf(&want, "r%d\n", i)
		}
		var stdout, stderr bytes.Buffer
		env := Env{Stdin: strings.NewReader(file.String()), Stderr: &stderr, out: &output{Writer: &stdout}}
		store := newDistant()
		began := time.Now()
		if err := new(sendOptions).sendFile(t.Context(), env, &send.Sender{Store: store, Encoding: storage.Base64},
			"-"); err != nil {
			t.Fatal(err)
		}
		if stdout.String() != want.String() {
			t.Errorf("got %s, want the ids in the order of the file", stdout.String())
		}
		if took := time.Since(began); took > n*time.Second/8 || store.most.Load() != 8 {
			t.Errorf("it took %v, with %d at once", took, store.most.Load())
		}
		if count, err := store.Count(t.Context(), "async-caller"); count != n {
			t.Errorf("%d messages on the queue, error %v", count, err)
		}
	})
}

// TestSendFailures: each envelope that is not sent is named as it fails.
func TestSendFailures(t *testing.T) {
	const n = 1000
	reader, writer := io.Pipe()
	var lines atomic.Int64
	go func() {
		for i := range n {
			fmt.Fprintf(writer, `{"asyncCaller":%d,"call":{"url":"https://t.example/"}}`+"\n", i%2*2+1)
		}
		if early := lines.Load(); early < n/4 {
			t.Errorf("%d failures are shown at the end of the file", early)
		}
		_ = writer.Close()
	}()
	stderr := writerFunc(func(line []byte) {
		want := fmt.Sprintf("async-caller: envelope %d: asyncCaller: want 1 or 2\n",
			2*lines.Add(1))
		if string(line) != want {
			t.Errorf("printed %s, want %s", line, want)
		}
	})
	env := Env{Stdin: reader, Stderr: stderr, out: &output{Writer: io.Discard}}
	err := (&sendOptions{dryRun: true}).sendFile(t.Context(), env, &send.Sender{Encoding: storage.Base64}, "-")
	if err == nil || err.Error() != "500 envelopes not sent" || lines.Load() != n/2 {
		t.Errorf("%d lines, %v", lines.Load(), err)
	}
}

type writerFunc func([]byte)

func (w writerFunc) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

// TestSendInterrupted: what was begun before Ctrl-C is completed and printed, so that nobody sends it again.
func TestSendInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := strings.Repeat(`{"asyncCaller":1,"call":{"url":"https://t.example/"}}`+"\n", 500)
		var stdout, stderr bytes.Buffer
		env := Env{Stdin: strings.NewReader(file), Stderr: &stderr, out: &output{Writer: &stdout}}
		store := newDistant()
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(1500*time.Millisecond, interrupt)
		err := new(sendOptions).sendFile(ctx, env, &send.Sender{Store: store, Encoding: storage.Base64}, "-")
		count, countErr := store.Count(t.Context(), "async-caller")
		if printed := strings.Count(stdout.String(), "\n"); countErr != nil || count == 0 || count == 500 ||
			printed != count {
			t.Errorf("%d ids for %d messages on the queue, error %v", printed, count, countErr)
		}
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("interrupted after %d envelopes", count)) {
			t.Errorf("got %v", err)
		}
	})
}

// TestSendInterruptedInput: Ctrl-C does not wait for more input.
func TestSendInterruptedInput(t *testing.T) {
	reader, writer := io.Pipe()
	defer func() { _ = writer.Close() }()
	ctx, interrupt := context.WithCancel(t.Context())
	printed := writerFunc(func([]byte) { interrupt() })
	env := Env{Stdin: reader, Stderr: io.Discard, out: &output{Writer: printed}}
	go fmt.Fprintln(writer, `{"asyncCaller":1,"call":{"url":"https://t.example/"}}`)
	err := (&sendOptions{dryRun: true}).sendFile(ctx, env, &send.Sender{Encoding: storage.Base64}, "-")
	if err == nil || err.Error() != "interrupted after 1 envelope: none after number 1 was sent" {
		t.Errorf("got %v", err)
	}
}
