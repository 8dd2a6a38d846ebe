package journal_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"asynccaller/handler/internal/poison/journal"
)

func newFolder(t *testing.T) journal.Folder {
	t.Helper()
	return journal.Folder(filepath.Join(t.TempDir(), "state", "runs"))
}

func begin(t *testing.T, f journal.Folder, run journal.Run) *journal.Journal {
	t.Helper()
	j, err := f.Begin(run)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func read(t *testing.T, f journal.Folder, id string) *journal.Journal {
	t.Helper()
	h, err := f.Read(id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

func path(f journal.Folder, id string) string { return filepath.Join(string(f), id+".jsonl") }

// advance moves the clock of a synctest bubble.
func advance(d time.Duration) { <-time.After(d) }

func check(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// same compares what two journals say, not their files.
func same(t *testing.T, want, got *journal.Journal) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(journal.Journal{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(want.Steps(), got.Steps(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

var written = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

// steps returns steps with texts that JSON has to escape.
func steps() []journal.Step {
	return []journal.Step{
		{N: 0, From: "q-poison", ID: "m0", PopReceipt: "r0+/=", Before: "<a href=\"&\">\u2028\x7f\r\n\\", To: "q", After: "å\t\"", RequestID: "c0"},
		{N: 1, From: "q-poison", ID: "m1", PopReceipt: "r1", Before: strings.Repeat("\u0085\\\"", 16<<10), To: "parking"},
		{N: 2, From: "q-poison", ID: "m2", PopReceipt: "r2"},
		{N: 3, To: "q-poison", After: "imported"},
		{N: 4, From: "q-poison", ID: "m4", PopReceipt: "r4", Before: "x"},
		{N: 5, From: "q-poison", ID: "m5", PopReceipt: "r5", Before: "y", To: "q"},
		{N: 6, From: "q-poison", ID: "m6", PopReceipt: "r6", Before: "z", To: "q"},
	}
}

// fill writes lines of every kind.
func fill(t *testing.T, j *journal.Journal) {
	t.Helper()
	for _, s := range steps() {
		check(t, j.Plan(s))
	}
	check(t, j.Go(),
		j.Enter(0, journal.Begun), j.Written(0, "n0", "p0", written, 3), j.Enter(0, journal.Done),
		j.Renewed(1, "r1b"), j.Renewed(1, "r1c"), j.Enter(1, journal.Begun), j.Enter(1, journal.Begun), j.Written(1, "n1", "p1", written, 1),
		j.Enter(2, journal.Deleting),
		j.Enter(3, journal.Begun),
		j.Skipped(4, "taken"),
		j.Enter(5, journal.Deleting), j.Enter(5, journal.Done),
		j.Canary(), j.Undone("20261121-100000-undo-abcd"), j.End())
}

func progress() []journal.Progress {
	return []journal.Progress{
		{State: journal.Done, PopReceipt: "r0+/=", NewID: "n0", NewPopReceipt: "p0", WrittenAt: written, Writes: 3},
		{State: journal.Written, PopReceipt: "r1c", NewID: "n1", NewPopReceipt: "p1", WrittenAt: written, Writes: 2},
		{State: journal.Deleting, PopReceipt: "r2"},
		{State: journal.Begun, Writes: 1},
		{State: journal.Skipped, PopReceipt: "r4", Why: "taken"},
		{State: journal.Done, PopReceipt: "r5"},
		{State: journal.Planned, PopReceipt: "r6"},
	}
}

// TestRoundTrip checks that every kind of line is read as it was written.
func TestRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFolder(t)
		run := journal.Run{Command: "requeue", Account: "a.example/x", Of: "20261121-090000-move-abcd", Pace: journal.Pace{
			Canary: 3, CanaryWait: time.Minute, Rate: 0.5, StopAt: 0.1, Delay: time.Second, Spread: time.Hour,
		}}
		j := begin(t, f, run)
		fill(t, j)
		now := time.Now().UTC()
		check(t, j.Close())

		h := read(t, f, j.Run.ID)
		run.ID, run.At = j.Run.ID, now
		same(t, j, h) // writing and reading lead to the same state
		want := &journal.Journal{Run: run, Agreed: true, CanaryPassed: true, Ended: true, UndoneBy: "20261121-100000-undo-abcd"}
		if diff := cmp.Diff(want, h, cmpopts.IgnoreUnexported(journal.Journal{})); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if diff := cmp.Diff(progress(), h.Steps()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		for n, want := range steps() {
			got, err := h.Step(n)
			if err != nil || got != want {
				t.Errorf("step %d: %+v, %v", n, got, err)
			}
		}
	})
}

func TestStepText(t *testing.T) {
	for want, s := range map[string]journal.Step{
		"before": {Before: "before"}, "after": {Before: "before", After: "after"}, "new": {After: "new"}, "": {},
	} {
		if got := s.Text(); got != want {
			t.Errorf("%+v writes %q", s, got)
		}
	}
}

// TestPrivate checks that only the owner can read journals, which hold secrets.
func TestPrivate(t *testing.T) {
	f := newFolder(t)
	j := begin(t, f, journal.Run{Command: "move"})
	defer func() { _ = j.Close() }()
	for name, want := range map[string]os.FileMode{string(f): 0o700 | os.ModeDir, path(f, j.Run.ID): 0o600} {
		if about, err := os.Stat(name); err != nil || about.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", name, about.Mode(), err, want)
		}
	}
}

// TestTorn cuts a journal off at every byte, and checks that its complete lines count and that it can be
// continued.
func TestTorn(t *testing.T) {
	f := newFolder(t)
	j := begin(t, f, journal.Run{Command: "move"})
	for n := range 2 {
		check(t, j.Plan(journal.Step{N: n, From: "p", ID: "å", PopReceipt: "r", Before: "x", To: "q"}))
	}
	check(t, j.Go(), j.Renewed(0, "r2"), j.Enter(0, journal.Begun), j.Written(0, "n", "p", written, 2), j.Enter(0, journal.Done), j.Skipped(1, "why"), j.Close())
	whole, err := os.ReadFile(path(f, j.Run.ID))
	check(t, err)
	first := bytes.IndexByte(whole, '\n')
	for size := range len(whole) {
		check(t, os.WriteFile(path(f, j.Run.ID), whole[:size], 0o600))
		h, err := f.Read(j.Run.ID)
		if size <= first {
			if err == nil {
				t.Errorf("cut at %d, within its first line: no error", size)
			}
			continue
		}
		if err != nil {
			t.Fatalf("cut at %d: %v", size, err)
		}
		check(t, os.WriteFile(path(f, j.Run.ID), whole[:bytes.LastIndexByte(whole[:size], '\n')+1], 0o600))
		same(t, read(t, f, j.Run.ID), h)
		check(t, h.Close(), os.WriteFile(path(f, j.Run.ID), whole[:size], 0o600))
		goOn(t, f, j.Run.ID, len(h.Steps()))
		if t.Failed() {
			t.Fatalf("cut at %d", size)
		}
	}
}

// goOn checks that appended lines count.
func goOn(t *testing.T, f journal.Folder, id string, steps int) {
	t.Helper()
	j, err := f.Reopen(id)
	check(t, err)
	check(t, j.Canary(), j.End(), j.Close())
	if j.Run.ID != id {
		t.Errorf("the run is %q", j.Run.ID)
	}
	h := read(t, f, id)
	if !h.CanaryPassed || !h.Ended || len(h.Steps()) < steps || len(h.Steps()) > steps+1 {
		t.Errorf("continued: %+v", h)
	}
}

// TestBroken checks that the error for a file that is not a journal names the file.
func TestBroken(t *testing.T) {
	const id = "20261121-100000-move-abcd"
	f := journal.Folder(t.TempDir())
	file := path(f, id)
	for name, content := range map[string]string{
		"empty":             "",
		"other_text":        "hello\nworld\n",
		"no_run":            `{"is":"go"}` + "\n",
		"an_array":          "[]\n",
		"cut_off_run":       `{"is":"run","run":"` + id,
		"line_without_end":  strings.Repeat("x", 5<<20),
		"run_is_not_a_text": `{"is":"run","run":7}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			check(t, os.WriteFile(file, []byte(content), 0o600))
			if _, err := f.Read(id); err == nil || !strings.Contains(err.Error(), file) {
				t.Errorf("read: %v", err)
			}
			if _, err := f.Reopen(id); err == nil || errors.Is(err, journal.ErrBusy) {
				t.Errorf("reopen: %v", err)
			}
		})
	}
}

// TestBusy checks that only one process at a time can open a journal for writing.
func TestBusy(t *testing.T) {
	f := newFolder(t)
	j := begin(t, f, journal.Run{Command: "move"})
	_, err := f.Reopen(j.Run.ID)
	if !errors.Is(err, journal.ErrBusy) || !strings.Contains(err.Error(), j.Run.ID) {
		t.Errorf("while it is begun: %v", err)
	}
	read(t, f, j.Run.ID) // reading is always possible
	check(t, j.Close())
	j, err = f.Reopen(j.Run.ID)
	check(t, err)
	if _, err := f.Reopen(j.Run.ID); !errors.Is(err, journal.ErrBusy) {
		t.Errorf("while it is continued: %v", err)
	}
	check(t, j.Close())

	var holders atomic.Int32
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for range 50 {
				j, err := f.Reopen(j.Run.ID)
				if err != nil {
					if !errors.Is(err, journal.ErrBusy) {
						t.Error(err)
					}
					continue
				}
				if holders.Add(1) > 1 {
					t.Error("two have it at once")
				}
				holders.Add(-1)
				if err := j.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
}

func TestBadID(t *testing.T) {
	f := newFolder(t)
	check(t, os.MkdirAll(string(f), 0o700), os.WriteFile(filepath.Join(string(f), "..", "x.jsonl"), nil, 0o600))
	for _, id := range []string{
		"", ".", "..", "../x", "/etc/passwd", "20261121-100000-move-abcd/../../x", "20261121-100000-move-abcd.jsonl",
		"20261121-100000-move-abcd\n", "20261121-100000-MOVE-abcd", "20261121-100000-move-" + strings.Repeat("a", 1000), "\x1b[31m",
		"20261121-100000-move-abcd", // does not exist
	} {
		for does, do := range map[string]func() error{
			"read":   func() error { _, err := f.Read(id); return err },
			"reopen": func() error { _, err := f.Reopen(id); return err },
		} {
			err := do()
			if !errors.Is(err, journal.ErrNoRun) {
				t.Errorf("%s %q: %v", does, id, err)
				continue
			}
			if strings.ContainsAny(err.Error(), "\x1b\n") || len(err.Error()) > 400 {
				t.Errorf("%s %q: cannot be shown: %q", does, id, err)
			}
		}
	}
}

func TestList(t *testing.T) {
	f := newFolder(t)
	ids, err := f.List()
	if err != nil || len(ids) != 0 {
		t.Errorf("a missing folder: %q, %v", ids, err)
	}
	var want []string
	synctest.Test(t, func(t *testing.T) {
		for _, command := range []string{"requeue", "delete", "move"} {
			j := begin(t, f, journal.Run{Command: command})
			check(t, j.Close())
			want = append([]string{j.Run.ID}, want...)
			advance(time.Second)
		}
		j := begin(t, f, journal.Run{Command: "import"})
		check(t, j.Discard())
		if _, err := f.Read(j.Run.ID); !errors.Is(err, journal.ErrNoRun) {
			t.Errorf("a discarded journal: %v", err)
		}
	})
	for _, name := range []string{"notes.jsonl", "20261121-100000-deleted-123.export"} {
		check(t, os.WriteFile(filepath.Join(string(f), name), nil, 0o600))
	}
	ids, err = f.List()
	check(t, err)
	if diff := cmp.Diff(want, ids); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestDiskFull checks that a journal writes no more lines after an error, because the last one may be incomplete.
func TestDiskFull(t *testing.T) {
	f := newFolder(t)
	j := begin(t, f, journal.Run{Command: "move"})
	check(t, j.Close()) // a write to a closed file fails, as on a full disk
	failure := j.Enter(0, journal.Begun)
	if failure == nil || !strings.Contains(failure.Error(), path(f, j.Run.ID)) {
		t.Fatalf("a failed line: %v", failure)
	}
	if err := j.Go(); !errors.Is(err, failure) {
		t.Errorf("the next line: %v", err)
	}
}

func TestDefault(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want journal.Folder
	}{
		{map[string]string{"XDG_STATE_HOME": "/s", "HOME": "/h"}, "/s/async-caller/runs"},
		{map[string]string{"XDG_STATE_HOME": "relative", "HOME": "/h"}, "/h/.local/state/async-caller/runs"},
		{map[string]string{"HOME": "/h"}, "/h/.local/state/async-caller/runs"},
		{map[string]string{"USERPROFILE": "/u"}, "/u/.local/state/async-caller/runs"},
	} {
		if got := journal.Default(func(name string) string { return c.env[name] }); got != c.want {
			t.Errorf("%v: %s, want %s", c.env, got, c.want)
		}
	}
}

// FuzzRead checks that any journal that can be read has valid steps and can be continued.
func FuzzRead(f *testing.F) {
	run := `{"is":"run","run":"20261121-100000-move-abcd"}` + "\n"
	for _, seed := range []string{
		"", "\n", run, run + `{"is":"step","n":0,"from":"p"}` + "\n" + `{"is":"written","n":0,"tries":-5}` + "\n",
		run + `{"is":"step","n":0,"from":7}` + "\n", run + `{"is":"begun","n":-1}` + "\n", run + `{"is":"go"`, run + run,
		run + `{"is":"deleted","n":99999999999}` + "\n" + `{"is":"step","n":null}` + "\n", "\x00\xff\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		const id = "20261121-100000-move-abcd"
		folder := journal.Folder(t.TempDir())
		file := path(folder, id)
		check(t, os.WriteFile(file, content, 0o600))
		h, err := folder.Read(id)
		if err != nil {
			return
		}
		defer func() { _ = h.Close() }()
		for n, p := range h.Steps() {
			if _, err := h.Step(n); err != nil && !strings.Contains(err.Error(), file) {
				t.Errorf("step %d: %v", n, err)
			}
			if p.Writes < 0 {
				t.Errorf("step %d was written %d times", n, p.Writes)
			}
		}
		j, err := folder.Reopen(id)
		check(t, err)
		check(t, j.Go(), j.Close())
		after := read(t, folder, id)
		if !after.Agreed || len(after.Steps()) < len(h.Steps()) {
			t.Errorf("confirmed: %v, %d steps of %d", after.Agreed, len(after.Steps()), len(h.Steps()))
		}
	})
}
