package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/storage"
)

// TestRequeueManyKilledTwice sends many dead letters again and is killed twice on the way. No more messages are there
// twice than the run says.
func TestRequeueManyKilledTwice(t *testing.T) {
	needsHost(t, "no call is made")
	t.Parallel()
	f, runs := newFixture(t, options{}), runs(t.TempDir())
	const messages = 500
	f.putExpired(messages)
	began := time.Now()
	args := []string{"calls", "retry", "--state", "poison", "--all", "--yes"}
	for _, share := range []int{10, 10, 1} { // a kill can be late on a machine that is busy
		command, _, stderr := f.operate(append(args, "--runs", string(runs), "--json")...)
		f.must(command.Start())
		exited := make(chan error, 1)
		go func() { exited <- command.Wait() }()
		if share > 1 {
			f.await("messages to be requeued", func() bool { return runs.done(t) > 0 })
			reached := runs.done(t) + messages/share
			f.await("more messages to be requeued",
				func() bool { return runs.done(t) >= min(reached, messages) })
			f.must(command.Process.Kill())
		}
		err := <-exited
		t.Logf("after %v: %d of %d, %v; %s",
			time.Since(began), runs.done(t), messages, err, strings.TrimSpace(stderr.String()))
		name := strings.TrimSuffix(filepath.Base(runs.journal(t)), ".jsonl")
		args = []string{"runs", "resume", name}
	}
	if done := runs.done(t); done != messages {
		t.Errorf("%d of %d messages were sent again", done, messages)
	}
	left, sent, twice := f.count(poisonQueue), f.count(mainQueue), runs.twice(t)
	if left > 0 || sent < messages || sent > messages+twice {
		t.Errorf("%d messages are left and %d sent; %d are stated to be there twice", left, sent, twice)
	}
}

// putExpired puts dead letters on the poison queue.
func (f *fixture) putExpired(n int) {
	f.t.Helper()
	f.must(f.store.Create(f.t.Context(), poisonQueue))
	for i := range n {
		content := fmt.Appendf(nil, `{"asyncCaller":1,"requestId":"r%d","call":{"url":"http://t.example/%[1]d"},`+
			`"createdAt":"2026-01-01T00:00:00Z","attempts":3,"deadLetter":{"at":"2026-01-08T00:00:00Z",`+
			`"reason":"expired","detail":"answered 503","queue":"async-caller","attempts":3}}`, i)
		_, err := f.store.Put(f.t.Context(), poisonQueue, storage.Item{Text: storage.Base64.Encode(content)})
		f.must(err)
	}
}

// runs is the folder with the journal of one run.
type runs string

// journal returns the path of the journal, or "" before the run has begun.
func (r runs) journal(t *testing.T) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(string(r), "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		return ""
	}
	return paths[0]
}

func (r runs) read(t *testing.T) []byte {
	t.Helper()
	path := r.journal(t)
	if path == "" {
		return nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// done counts the messages that the run has finished.
func (r runs) done(t *testing.T) int {
	t.Helper()
	return bytes.Count(r.read(t), []byte(`{"is":"done"`))
}

// twice counts the messages that are perhaps there twice, as the journal says.
func (r runs) twice(t *testing.T) int {
	t.Helper()
	stated := map[int]bool{}
	for line := range bytes.Lines(r.read(t)) {
		var l struct {
			N     int
			Twice bool
		}
		if json.Unmarshal(line, &l) == nil && l.Twice {
			stated[l.N] = true
		}
	}
	return len(stated)
}
