package run_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// The queues of the tests. An app reads only the first.
const (
	live      = "queue"
	dead      = "queue-poison"
	parking   = "parking"
	callbacks = "callbacks"
)

// leasesEnd exceeds every claim and lease of a run.
const leasesEnd = 15 * time.Minute

// A fault is what happens to one operation.
type fault string

const (
	none fault = ""
	// refused: storage denies the access once, or refuses the request.
	denied  fault = "denied"
	refused fault = "refused"
	// fails: the operation is not carried out. lost: it is, but its answer is lost.
	fails fault = "fails"
	lost  fault = "lost"
	// late: its answer is lost, and it is carried out after the next try.
	late fault = "late"
	// outage: this and all later operations fail for longer than a claim lasts. lostOutage: this one is carried out.
	outage     fault = "outage"
	lostOutage fault = "lost, outage"
	// killBefore and killAfter: the process is killed before or after the operation is carried out.
	killBefore fault = "kill before"
	killAfter  fault = "kill after"
	// killLate: the process is killed, and the operation is carried out a little later.
	killLate fault = "kill, late"
)

var (
	errTemporary = errors.New("no answer")
	// errKilled is not retried, so that no time passes.
	errKilled = fmt.Errorf("killed: %w", storage.ErrRefused)
)

// effects is what the processes of one run have done to the queues.
type effects struct {
	puts    map[target]int
	deletes map[string]int // by message id
	sets    map[target]int
	// faults is the number of faults that these processes met.
	faults int
}

// target is a text on a queue.
type target struct{ queue, text string }

func newEffects() *effects {
	return &effects{puts: map[target]int{}, deletes: map[string]int{}, sets: map[target]int{}}
}

// consumed is a message that was consumed.
type consumed struct {
	text string
	at   time.Time
}

// world is storage, what happens to its operations, and what others do meanwhile.
type world struct {
	store   *memory.Queues
	latency time.Duration
	// faults are the faults by the number of an operation, counted over all processes.
	faults map[int]fault
	// moment is the operation before which others begin to act.
	moment int
	others func(w *world)
	// runs is the folder of journals that a new process sees.
	runs string

	mu        sync.Mutex
	n         int
	outageEnd time.Time
	// consumed are the messages that a consumer has received and deleted, by id.
	consumed map[string]consumed
	acting   sync.WaitGroup
	over     chan struct{}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		store: memory.New(), latency: fast, runs: filepath.Join(folderInMemory(t), "runs"),
		consumed: map[string]consumed{}, over: make(chan struct{}),
	}
	for _, name := range []string{live, dead, parking} {
		if err := w.store.Create(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// folderInMemory returns a new folder. Where the system has files in memory it is one of them: a disk would take three
// quarters of the tests' time.
func folderInMemory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "async-caller-run-") //nolint:usetesting // t.TempDir is on the disk
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// end ends the actions of others, and waits until all leases have ended.
func (w *world) end() {
	close(w.over)
	w.acting.Wait()
	advance(leasesEnd)
}

// advance moves the clock of a synctest bubble.
func advance(d time.Duration) { <-time.After(d) }

// process is storage as one process of a run sees it.
type process struct {
	*memory.Queues
	w   *world
	did *effects

	mu     sync.Mutex
	killed bool
	// copied is the folder of journals as it was at the kill.
	copied string
}

// newProcess returns a process and its engine.
func (w *world) newProcess(did *effects) (*process, *run.Engine) {
	p := &process{Queues: w.store, w: w, did: did}
	return p, &run.Engine{Store: p, Account: "test", Runs: journal.Folder(w.runs), Observer: &silent{}}
}

// silent is an observer that counts.
type silent struct {
	mu    sync.Mutex
	notes []string
}

func (*silent) Advanced(int, int) {}

func (s *silent) Note(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = append(s.notes, text)
}

// kill keeps later operations from having an effect, and copies the journals as they are.
func (p *process) kill() {
	p.killed = true
	p.copied = p.w.runs + "-"
	if _, err := os.Stat(p.w.runs); err != nil {
		return // there is no journal yet
	}
	if err := os.CopyFS(p.copied, os.DirFS(p.w.runs)); err != nil {
		panic(err)
	}
}

// next returns the number and the fault of the next operation.
func (p *process) next() (n int, what fault) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	if w.n == w.moment {
		w.acting.Go(func() { w.others(w) })
	}
	what = w.faults[w.n]
	switch {
	case what == outage, what == lostOutage:
		w.outageEnd = time.Now().Add(2 * run.ClaimTime)
	case time.Now().Before(w.outageEnd):
		what = fails
	}
	if what != none {
		p.did.faults++
	}
	return w.n, what
}

// operate carries out an operation. It calls done if that had an effect. Every second one of the operations that are
// under way when the process is killed is still carried out.
func operate[T any](
	ctx context.Context, p *process, do func(context.Context) (T, error), done func(),
) (v T, err error) {
	p.mu.Lock()
	killed := p.killed
	p.mu.Unlock()
	if killed {
		return v, errKilled
	}
	n, what := p.next()
	advance(p.w.latency)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.killed && n%2 == 0:
		return v, errKilled
	case what == denied:
		return v, storage.ErrDenied
	case what == refused:
		return v, storage.ErrRefused
	case what == fails, what == outage:
		return v, errTemporary
	case what == killBefore && !p.killed:
		p.kill()
		return v, errKilled
	case ctx.Err() != nil:
		return v, ctx.Err()
	}
	carryOut := func() (T, error) {
		v, err := do(context.WithoutCancel(ctx))
		if err == nil {
			p.w.mu.Lock()
			done()
			p.w.mu.Unlock()
		}
		return v, err
	}
	if what == late || what == killLate {
		p.w.acting.Go(func() {
			advance(3 * time.Second)
			_, _ = carryOut()
		})
		if what == late {
			return v, errTemporary
		}
		if !p.killed {
			p.kill()
		}
		return v, errKilled
	}
	v, err = carryOut()
	var nothing T
	switch {
	case what == lost, what == lostOutage:
		return nothing, errTemporary
	case what == killAfter && !p.killed:
		p.kill()
		return nothing, errKilled
	case p.killed:
		return nothing, errKilled
	}
	return v, err
}

func (p *process) Create(ctx context.Context, name string) error {
	_, err := operate(ctx, p, func(ctx context.Context) (any, error) {
		return nil, p.Queues.Create(ctx, name)
	}, func() {})
	return err
}

func (p *process) Put(ctx context.Context, name string, item storage.Item) (storage.Message, error) {
	return operate(ctx, p, func(ctx context.Context) (storage.Message, error) {
		return p.Queues.Put(ctx, name, item)
	}, func() { p.did.puts[target{name, item.Text}]++ })
}

func (p *process) Update(
	ctx context.Context, name, id, receipt, text string, delay time.Duration,
) (string, error) {
	return operate(ctx, p, func(ctx context.Context) (string, error) {
		return p.Queues.Update(ctx, name, id, receipt, text, delay)
	}, func() { p.did.sets[target{id, text}]++ })
}

func (p *process) Delete(ctx context.Context, name, id, receipt string) error {
	_, err := operate(ctx, p, func(ctx context.Context) (any, error) {
		return nil, p.Queues.Delete(ctx, name, id, receipt)
	}, func() { p.did.deletes[id]++ })
	return err
}

func (p *process) Receive(
	ctx context.Context, name string, limit int, lease time.Duration,
) ([]storage.Message, error) {
	return operate(ctx, p, func(ctx context.Context) ([]storage.Message, error) {
		return p.Queues.Receive(ctx, name, limit, lease)
	}, func() {})
}

func (p *process) Peek(ctx context.Context, name string, limit int) ([]storage.Message, error) {
	return operate(ctx, p, func(ctx context.Context) ([]storage.Message, error) {
		return p.Queues.Peek(ctx, name, limit)
	}, func() {})
}

func (p *process) Count(ctx context.Context, name string) (int, error) {
	return operate(ctx, p, func(ctx context.Context) (int, error) {
		return p.Queues.Count(ctx, name)
	}, func() {})
}

// complete begins a run, and resumes it until it has ended: after the first pause, and then each time after the second.
// It returns the id, or nothing if the run was not confirmed.
func (w *world) complete(did *effects, pauses [2]time.Duration, begin func(*run.Engine) error) (id string, err error) {
	before, err := journal.Folder(w.runs).List()
	if err != nil {
		return "", err
	}
	p, e := w.newProcess(did)
	begun := begin(e)
	for n := range 20 {
		if p.killed {
			w.runs = p.copied
		}
		ids, err := journal.Folder(w.runs).List()
		if err != nil {
			return "", err
		}
		if len(ids) == len(before) {
			return "", begun
		}
		id = ids[0]
		j, err := journal.Folder(w.runs).Read(id)
		if err != nil {
			return "", err
		}
		_ = j.Close()
		switch {
		case j.Ended:
			return id, nil
		case !j.Agreed:
			return "", nil
		}
		advance(pauses[min(n, 1)])
		p, e = w.newProcess(did)
		_, begun = e.Resume(context.Background(), id)
	}
	return id, fmt.Errorf("%s does not end: %w", id, begun)
}

// consume returns an actor that receives and deletes the messages of a queue, as an app or a second operator does.
func consume(name string, interval time.Duration) func(*world) {
	return func(w *world) {
		for w.pause(interval) {
			received, err := w.store.Receive(context.Background(), name, storage.MaxBatch, time.Minute)
			if err != nil {
				panic(err)
			}
			for _, m := range received {
				if err := w.store.Delete(context.Background(), name, m.ID, m.PopReceipt); err != nil {
					panic(err)
				}
				w.mu.Lock()
				w.consumed[m.ID] = consumed{m.Text, time.Now()}
				w.mu.Unlock()
			}
		}
	}
}

// list returns an actor that lists a queue in a loop.
func list(name string) func(*world) {
	return func(w *world) {
		for w.pause(25 * time.Second) {
			_, err := w.store.Receive(context.Background(), name, storage.MaxBatch, 10*time.Second)
			if err != nil {
				panic(err)
			}
		}
	}
}

// pause waits, and reports false once others shall not act any more.
func (w *world) pause(d time.Duration) bool {
	select {
	case <-w.over:
		return false
	case <-time.After(d):
		return true
	}
}

// has reports whether a message is on a queue.
func (w *world) has(name, id string) bool {
	return slices.ContainsFunc(w.store.All(name), func(m storage.Message) bool { return m.ID == id })
}

// exists reports whether one of the texts is on a queue or was consumed.
func (w *world) exists(texts ...string) bool {
	for _, name := range []string{live, dead, parking} {
		for _, m := range w.store.All(name) {
			if slices.Contains(texts, m.Text) {
				return true
			}
		}
	}
	for c := range maps.Values(w.consumed) {
		if slices.Contains(texts, c.text) {
			return true
		}
	}
	return false
}

// unseen ignores a step.
func unseen(journal.Step) {}
