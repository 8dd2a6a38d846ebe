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

	"asynccaller/handler/internal/queue"
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
		texts[i] = queue.Base64.Encode(
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
			result, code := x.poison("resume", run)
			known = x.journals()
			switch {
			case code == 3: // nothing left: it has ended, or was never confirmed
				if x.agreed(run) {
					x.twice += x.statedInJournal(run)
					return run
				}
			case code == 0 && result.Left+result.Both == 0:
				x.twice += result.Twice
				return run
			default:
				continue
			}
			break
		}
	}
}

type interruptedResult struct{ Total, Done, Skipped, Both, Left, Twice int }

// poison runs a command and interrupts it at a random moment. The code is -1 if it was killed.
func (x *interruption) poison(args ...string) (result interruptedResult, code int) {
	x.t.Helper()
	args = append(slices.Clone(args), "--runs", x.runs, "--json")
	if args[0] != "resume" {
		args = append(args, "--yes")
	}
	command, stdout, stderr := x.poisonCommand(args...)
	x.must(command.Start())
	wait := time.Duration(x.random.Int64N(int64(latestCut)))
	if x.cuts >= interruptions/2 {
		wait = patience // enough interruptions
	}
	cut := time.AfterFunc(wait, func() {
		signal := os.Signal(syscall.SIGKILL)
		if x.cuts%5 == 4 {
			signal = os.Interrupt
		}
		_ = command.Process.Signal(signal)
	})
	err := command.Wait()
	interrupted := !cut.Stop()
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
		return result, code
	}
	if stdout.Len() > 0 {
		x.must(json.Unmarshal(stdout.Bytes(), &result))
	}
	return result, code
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

// statedInJournal counts the messages that a journal begins more than once, so they may have been written twice.
func (x *interruption) statedInJournal(run string) (twice int) {
	content, err := os.ReadFile(filepath.Join(x.runs, run+".jsonl"))
	x.must(err)
	begun := map[int]int{}
	for line := range bytes.Lines(content) {
		var l struct {
			Is string
			N  int
		}
		if json.Unmarshal(line, &l) == nil && l.Is == "begun" {
			begun[l.N]++
		}
	}
	for _, times := range begun {
		if times > 1 {
			twice++
		}
	}
	return twice
}

// judge receives all messages of all queues: none may be missing, and no more may exist twice than the runs said. The
// messages that a killed run had received are visible again when their leases end.
func (x *interruption) judge() {
	x.t.Helper()
	found, ids := map[string]bool{}, map[string]int{}
	x.await("leases of killed runs to end", func() bool {
		total := 0
		for _, name := range []string{poisonQueue, parkingQueue, mainQueue} {
			messages, err := x.store.Receive(x.t.Context(), name, queue.MaxBatch, time.Hour)
			for ; err == nil && len(messages) > 0; messages, err = x.store.Receive(x.t.Context(), name, queue.MaxBatch, time.Hour) {
				for _, m := range messages {
					content, err := queue.Base64.Decode(m.Text)
					x.must(err)
					var e struct{ RequestID string }
					x.must(json.Unmarshal(content, &e))
					found[m.ID] = true
					ids[e.RequestID]++
				}
			}
			x.must(err)
			total += x.count(name)
		}
		return len(found) == total
	})
	extra := 0
	for i := range interruptedMessages {
		id := fmt.Sprintf("r%d", i)
		if ids[id] == 0 {
			x.t.Errorf("%s is lost", id)
		}
		if ids[id] > 1 {
			extra++
		}
	}
	x.t.Logf("%d interruptions, %d of them kills: the runs said that %d messages may exist twice; %d do", x.cuts, x.kills, x.twice, extra)
	if extra > x.twice {
		x.t.Errorf("%d messages exist twice, but the runs said at most %d", extra, x.twice)
	}
}
