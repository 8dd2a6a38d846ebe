package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"asynccaller/handler/internal/storage"
)

const (
	parkingQueue = "parking"
	// latestCut is the longest time after which a run is interrupted.
	latestCut = 3 * time.Second
)

// TestInterruptedRuns kills or interrupts runs of move, requeue and undo at random moments, and resumes them, which
// is interrupted too. In the end every message exists, and no more messages exist twice than the runs said.
func TestInterruptedRuns(t *testing.T) {
	t.Run("move", func(t *testing.T) {
		t.Parallel()
		x := newInterruption(t)
		for from, to := poisonQueue, parkingQueue; x.cuts < interruptions/2; from, to = to, from {
			x.finish("move", "--queue", from, "--to", to, "--create", "--all")
		}
		x.judge()
	})
	t.Run("requeue", func(t *testing.T) {
		t.Parallel()
		x := newInterruption(t)
		for x.cuts < interruptions/2 {
			x.finish("undo", x.finish("requeue", "--queue", poisonQueue, "--all"))
		}
		x.judge()
	})
}

// interruption runs commands and interrupts them.
type interruption struct {
	*fixture
	runs   string
	random *rand.Rand
	// cuts counts interruptions, kills those by SIGKILL; twice is the number of duplicates that the runs said.
	cuts, kills, twice int
}

func newInterruption(t *testing.T) *interruption {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	x := &interruption{fixture: newFixture(t, options{}), runs: t.TempDir(), random: rand.New(rand.NewPCG(seed, 0))}
	x.must(x.store.Create(t.Context(), parkingQueue))
	x.fill(interruptedMessages)
	return x
}

// fill puts dead letters on the poison queue.
func (x *interruption) fill(n int) {
	x.t.Helper()
	texts := make([]string, n)
	for i := range texts {
		texts[i] = storage.Base64.Encode(
			fmt.Appendf(nil, `{"asyncCaller":1,"requestId":"r%d","call":{"url":"http://t.example/orders/%d"},"createdAt":"2026-01-01T00:00:00Z","attempts":3,`+
				`"deadLetter":{"at":"2026-01-08T00:00:00Z","reason":"expired","detail":"answered 503","queue":"async-caller","attempts":3}}`, i, i),
		)
	}
	x.putAll(poisonQueue, 0, texts)
}

// finish runs a command to its end, with interruptions. It returns the run's name.
func (x *interruption) finish(args ...string) (run string) {
	x.t.Helper()
	known := x.journals()
	for {
		x.poison(args...)
		news := slices.DeleteFunc(x.journals(), func(name string) bool { return slices.Contains(known, name) })
		if len(news) == 0 {
			continue // interrupted before it began
		}
		run = news[len(news)-1]
		for {
			code := x.poison("resume", run)
			known = x.journals()
			if code == 0 {
				return run
			}
			if code != 3 {
				continue
			}
			if x.agreed(run) { // nothing is left: it has ended
				x.twice += x.statedInJournal(run)
				return run
			}
			break
		}
	}
}

// poison runs a command and interrupts it at a random moment after its plan was confirmed: before, a kill only
// hides messages for minutes. The code is -1 if it was killed.
func (x *interruption) poison(args ...string) (code int) {
	x.t.Helper()
	args = append(slices.Clone(args), "--runs", x.runs, "--json")
	if args[0] != "resume" {
		args = append(args, "--yes")
	}
	command, _, stderr := x.poisonCommand(args...)
	known := x.journals()
	x.must(command.Start())
	wait := time.Duration(x.random.Int64N(int64(latestCut)))
	if x.cuts >= interruptions/2 {
		wait = patience // enough interruptions
	}
	signal := os.Signal(syscall.SIGKILL)
	if x.cuts%5 == 4 {
		signal = os.Interrupt
	}
	exited, cut := make(chan struct{}), make(chan bool)
	go func() {
		for args[0] != "resume" && !x.isConfirmed(known) {
			select {
			case <-exited:
				cut <- false
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
		select {
		case <-exited:
			cut <- false
		case <-time.After(wait):
			_ = command.Process.Signal(signal)
			cut <- true
		}
	}()
	err := command.Wait()
	close(exited)
	interrupted := <-cut
	if interrupted {
		x.cuts++
	}
	if exited, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exited.ExitCode()
	} else {
		x.must(err)
	}
	if code == 2 || code == 1 && !interrupted {
		x.t.Fatalf("%v: exit code %d:\n%s", args, code, stderr.String())
	}
	if testing.Verbose() {
		x.t.Logf("%v: interrupted %v, code %d: %s", args[:2], interrupted, code, strings.TrimSpace(stderr.String()))
	}
	if code == -1 {
		x.kills++
	}
	return code
}

// journals lists the runs, the newest last.
func (x *interruption) journals() (names []string) {
	paths, err := filepath.Glob(filepath.Join(x.runs, "*.jsonl"))
	x.must(err)
	for _, path := range paths {
		names = append(names, strings.TrimSuffix(filepath.Base(path), ".jsonl"))
	}
	return names
}

func (x *interruption) agreed(run string) bool {
	content, err := os.ReadFile(filepath.Join(x.runs, run+".jsonl"))
	x.must(err)
	return bytes.Contains(content, []byte(`{"is":"go"`))
}

// isConfirmed reports whether a run was confirmed that is not known yet.
func (x *interruption) isConfirmed(known []string) bool {
	return slices.ContainsFunc(x.journals(), func(name string) bool { return !slices.Contains(known, name) && x.agreed(name) })
}

// statedInJournal counts the messages that are perhaps there twice, as a journal says.
func (x *interruption) statedInJournal(run string) int {
	content, err := os.ReadFile(filepath.Join(x.runs, run+".jsonl"))
	x.must(err)
	stated := map[int]bool{}
	for line := range bytes.Lines(content) {
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

// judge receives all messages of all queues: none may be missing, and no more may exist twice than the runs said. The
// claim of an undo that was killed hides a few messages for minutes: these are only counted.
func (x *interruption) judge() {
	x.t.Helper()
	ids, hidden := map[string]int{}, 0
	for _, name := range []string{poisonQueue, parkingQueue, mainQueue} {
		hidden += x.count(name)
		messages, err := x.store.Receive(x.t.Context(), name, storage.MaxBatch, time.Hour)
		for ; err == nil && len(messages) > 0; messages, err = x.store.Receive(x.t.Context(), name, storage.MaxBatch, time.Hour) {
			hidden -= len(messages)
			for _, m := range messages {
				content, err := storage.Base64.Decode(m.Text)
				x.must(err)
				var e struct{ RequestID string }
				x.must(json.Unmarshal(content, &e))
				ids[e.RequestID]++
			}
		}
		x.must(err)
	}
	missing, extra := 0, 0
	for i := range interruptedMessages {
		id := fmt.Sprintf("r%d", i)
		switch {
		case ids[id] == 0:
			missing++
		case ids[id] > 1:
			extra++
		}
	}
	if missing > hidden {
		x.t.Errorf("%d messages are missing, and only %d are hidden", missing, hidden)
	}
	extra += max(hidden-missing, 0)
	x.t.Logf("%d interruptions, %d of them kills: the runs said that %d messages may exist twice; %d do, %d are hidden",
		x.cuts, x.kills, x.twice, extra, hidden)
	if extra > x.twice {
		x.t.Errorf("%d messages exist twice, but the runs said at most %d", extra, x.twice)
	}
}

// TestRequeueManyKilledTwice requeues 10,000 messages (1,000 with the race detector), is killed twice on the way,
// and checks that this takes less than a minute and that no more messages are there twice than the run says.
func TestRequeueManyKilledTwice(t *testing.T) {
	x := &interruption{fixture: newFixture(t, options{fastQueues: true}), runs: t.TempDir()}
	const messages = 10_000 / scale
	x.fill(messages)
	began := time.Now()
	args := []string{"requeue", "--all", "--yes"}
	for _, share := range []int{3, 3, 1} {
		command, _, stderr := x.poisonCommand(append(args, "--runs", x.runs, "--json")...)
		x.must(command.Start())
		exited := make(chan error, 1)
		go func() { exited <- command.Wait() }()
		if share > 1 {
			x.await("messages to be requeued", func() bool { return x.done() > 0 })
			reached := x.done() + messages/share
			x.await("a third of the messages to be requeued", func() bool { return x.done() >= min(reached, messages) })
			x.must(command.Process.Kill())
		}
		err := <-exited
		t.Logf("after %v: %d of %d, %v; %s",
			time.Since(began), x.done(), messages, err, strings.TrimSpace(stderr.String()))
		args = []string{"resume", x.journals()[0]}
	}
	took := time.Since(began)
	if took > time.Minute || x.done() != messages {
		t.Errorf("%d of %d messages were requeued in %v", x.done(), messages, took)
	}
	left, sent, twice := x.count(poisonQueue), x.count(mainQueue), x.statedInJournal(x.journals()[0])
	if left > 0 || sent < messages || sent > messages+twice {
		t.Errorf("%d messages are left and %d sent; %d are stated to be there twice", left, sent, twice)
	}
}

// done counts the messages that the newest run has finished.
func (x *interruption) done() int {
	names := x.journals()
	if len(names) == 0 {
		return 0
	}
	content, err := os.ReadFile(filepath.Join(x.runs, names[0]+".jsonl"))
	x.must(err)
	return bytes.Count(content, []byte(`{"is":"done"`))
}
