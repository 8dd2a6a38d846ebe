package journal_test

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/storage"
)

// newFolder returns a folder that does not exist yet. Where the system has files in memory it is one of them: a disk
// would take most of the tests' time.
func newFolder(t *testing.T) journal.Folder {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "async-caller-journal-") //nolint:usetesting // t.TempDir is on the disk
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return journal.Folder(filepath.Join(dir, "state", "runs"))
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

// steps returns steps of every kind, with texts that JSON has to escape.
func steps() []journal.Step {
	key := storage.Key{Partition: "q", ID: "m5", Version: "W/\"datetime'2026'\"", WrittenAt: written}
	row := &record.Row{
		Key: key, PopReceipt: "r5+/=", RequestID: "c5", TargetHost: "t.example", PathPattern: "/<&>", Reason: "busy",
		Status: 503, Cause: "\u2028", Answer: "\"\\", Attempts: 3, CreatedAt: written, NextAttemptAt: written.Add(100),
		Deadline: written.Add(time.Hour), Organization: "o", Environment: "e", Repeated: true,
		Content: []byte("\xff\x00"),
	}
	return []journal.Step{
		{
			N: 0, RequestID: "c0", Put: &journal.Put{Queue: "q", Text: "å\t\""},
			Take: &journal.Take{
				Queue: "q-poison", ID: "m0", Receipt: "r0+/=", Until: written, Expires: written,
				Text: "<a href=\"&\">\u2028\x7f\r\n\\",
			},
		},
		{
			N: 1, Put: &journal.Put{Queue: "parking"},
			Take: &journal.Take{Queue: "q-poison", ID: "m1", Text: strings.Repeat("\u0085\\\"", 16<<10)},
		},
		{N: 2, Take: &journal.Take{Queue: "q-poison", ID: "m2", Receipt: "r2", NoText: true}},
		{N: 3, Put: &journal.Put{Queue: "q-poison", Text: "imported", Due: written}},
		{N: 4, Take: &journal.Take{Queue: "q-poison", ID: "m4", Receipt: "r4", Text: "x"}},
		{
			N: 5, Row: row, Then: &journal.Put{Queue: "callbacks", Text: "cancelled"},
			Take: &journal.Take{Queue: "q", ID: "m5", Receipt: "r5", ByReceipt: true, Text: "y", Due: written},
		},
		{
			N: 6, Set: &journal.Set{Text: "due"},
			Take: &journal.Take{Queue: "q", ID: "m6", Receipt: "r6", ByReceipt: true, Text: "z"},
		},
		{N: 7, Take: &journal.Take{Queue: "q-poison", ID: "m7", Receipt: "r7"}},
		{N: 8, Take: &journal.Take{Queue: "q-poison", ID: "m8", Receipt: "r8"}},
	}
}

// fill writes lines of every kind.
func fill(t *testing.T, j *journal.Journal) {
	t.Helper()
	for _, s := range steps() {
		check(t, j.Plan(s))
	}
	check(t, j.Go(),
		j.Begun(0, false), j.Written(0, "n0", "p0", written, false), j.Done(0, true),
		j.Received(1, "r1b", written), j.Begun(1, false), j.Begun(1, true), j.Written(1, "n1", "p1", written, false),
		j.Begun(2, false),
		j.Begun(3, false), j.Back(3),
		j.Skipped(4, "taken", true),
		j.Enter(5, journal.Claiming), j.Claimed(5, "r5b", written), j.Begun(5, false), j.Enter(5, journal.Deleted),
		j.Begun(6, false), j.Written(6, "m6", "r6b", written, true), j.Done(6, false),
		j.Enter(7, journal.Claiming),
		j.Canary(), j.End())
}

func progress() []journal.Progress {
	return []journal.Progress{
		{
			State: journal.Done, Receipt: "r0+/=", Until: written,
			NewID: "n0", NewReceipt: "p0", NewAt: written, PossibleDuplicate: true,
		},
		{
			State: journal.Written, Receipt: "r1b", Until: written,
			NewID: "n1", NewReceipt: "p1", NewAt: written, PossibleDuplicate: true,
		},
		{State: journal.Begun, Receipt: "r2"},
		{State: journal.Planned},
		{State: journal.Skipped, Receipt: "r4", Why: "taken", Unknown: true},
		{State: journal.Deleted, Receipt: "r5b", Until: written},
		{State: journal.Done, Receipt: "r6", NewID: "m6", NewReceipt: "r6b", NewAt: written, PossibleDuplicate: true},
		{State: journal.Claiming, Receipt: "r7"},
		{State: journal.Planned, Receipt: "r8"},
	}
}

// TestRoundTrip checks that every kind of line is read as it was written.
func TestRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFolder(t)
		run := journal.Run{
			Command: "requeue", Account: "a.example/x", Of: "20261121-090000-move-abcd", Token: "secret",
			Operator: journal.Operator{User: "ada", Machine: "build-7", Filter: "--all"},
			Pace:     journal.Pace{Canary: 3, Rate: 0.5, StopAt: 0.1},
		}
		j := begin(t, f, run)
		fill(t, j)
		now := time.Now().UTC()
		check(t, j.Close())

		h := read(t, f, j.Run.ID)
		same(t, j, h) // writing and reading lead to the same state
		run.Version, run.ID, run.At = h.Run.Version, j.Run.ID, now
		want := &journal.Journal{Run: run, Agreed: true, CanaryPassed: true, Ended: true}
		if diff := cmp.Diff(want, h, cmpopts.IgnoreUnexported(journal.Journal{})); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if diff := cmp.Diff(progress(), h.Steps()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		for n, want := range steps() {
			got, err := h.Step(n)
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("step %d: %v, -want +got:\n%s", n, err, diff)
			}
		}
	})
}

func TestStepText(t *testing.T) {
	take := &journal.Take{Text: "taken"}
	for want, s := range map[string]journal.Step{
		"taken":   {Take: take, Put: &journal.Put{}},
		"changed": {Take: take, Put: &journal.Put{Text: "changed"}},
		"new":     {Put: &journal.Put{Text: "new"}},
	} {
		if got := s.Text(); got != want {
			t.Errorf("writes %q, want %q", got, want)
		}
	}
}

// TestTorn cuts a journal off at every byte, and checks that its complete lines count and that it can be
// continued.
func TestTorn(t *testing.T) {
	f := newFolder(t)
	j := begin(t, f, journal.Run{Command: "move"})
	for n := range 2 {
		check(t, j.Plan(journal.Step{
			N: n, Take: &journal.Take{Queue: "p", ID: "å", Receipt: "r", Text: "x"}, Put: &journal.Put{Queue: "q"},
		}))
	}
	check(t, j.Go(), j.Received(0, "r2", written), j.Begun(0, false), j.Written(0, "n", "p", written, false),
		j.Done(0, true), j.Skipped(1, "why", true), j.Close())
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
		"run_is_not_a_text": `{"is":"run","v":2,"run":7}` + "\n",
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

// TestEdited checks that a journal from which a line was cut, or in which one was changed, is refused as a whole, and
// that the error names the file, the line and what to do.
func TestEdited(t *testing.T) {
	const id = "20261121-100000-move-abcd"
	f := journal.Folder(t.TempDir())
	whole := []string{
		`{"is":"run","v":2,"run":"` + id + `"}`,
		`{"is":"planned","n":0,"take":{"queue":"p","id":"m0"},"put":{"queue":"q"}}`,
		`{"is":"planned","n":1,"put":{"queue":"q","text":"x"}}`,
		`{"is":"go"}`,
		`{"is":"begun","n":0}`,
		`{"is":"written","n":0,"id":"m1"}`,
		`{"is":"done","n":0}`,
	}
	for name, test := range map[string]struct {
		from, until int // the lines that are replaced, from 0
		by          []string
		want        string
	}{
		"unchanged":          {0, 0, nil, ""},
		"empty_line":         {3, 3, []string{""}, ""},
		"windows_lines":      {3, 4, []string{`{"is":"go"}` + "\r"}, ""},
		"torn_and_continued": {4, 5, []string{`{"is":"beg`, `{"is":"begun","n":0}`}, ""},
		"without_head":       {0, 1, nil, "line 1: not the journal of a run"},
		"other_run":          {0, 1, []string{`{"is":"run","v":2,"run":"7"}`}, `line 1: the journal is that of the run "7"`},
		"two_runs":           {1, 1, []string{whole[0]}, "line 2: a second run"},
		"without_first_step": {1, 2, nil, "line 2: not the plan of step 0"},
		"without_steps":      {1, 3, nil, "line 3: a line of a step that was not planned"},
		"step_twice":         {2, 2, []string{whole[1]}, "line 3: not the plan of step 1"},
		"step_without_n":     {1, 2, []string{`{"is":"planned","put":{"queue":"q"}}`}, "line 2: not the plan"},
		"step_after_go":      {4, 4, []string{`{"is":"planned","n":2,"put":{"queue":"q"}}`}, "line 5: a step that was planned after"},
		"step_torn":          {1, 2, []string{`{"is":"planned","n":0,"put":{"que`}, "line 3: not the plan of step 0"},
		"quote_removed":      {4, 5, []string{`{"is:"begun","n":0}`}, "line 5: invalid character"},
		"number_as_text":     {4, 5, []string{`{"is":"begun","n":"0"}`}, "line 5: json: cannot unmarshal"},
		"other_step":         {4, 5, []string{`{"is":"begun","n":2}`}, "line 5: a line of a step that was not planned"},
		"negative_step":      {6, 7, []string{`{"is":"done","n":-1}`}, "line 7: a line of a step that was not planned"},
		"without_id":         {5, 6, []string{`{"is":"written","n":0}`}, "line 6: a message that was written, without its id"},
		"text":               {6, 7, []string{"done"}, "line 7: invalid character"},
		"bom":                {0, 1, []string{"\ufeff" + whole[0]}, "line 1: invalid character"},
	} {
		t.Run(name, func(t *testing.T) {
			lines := slices.Concat(whole[:test.from], test.by, whole[test.until:])
			check(t, os.WriteFile(path(f, id), []byte(strings.Join(lines, "\n")+"\n"), 0o600))
			_, err := f.Read(id)
			if test.want == "" {
				check(t, err)
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path(f, id)) ||
				!strings.Contains(err.Error(), "restore it from a copy") {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// TestEditedSteps checks that a step that cannot be carried out is an error that names its line.
func TestEditedSteps(t *testing.T) {
	const id = "20261121-100000-move-abcd"
	f := journal.Folder(t.TempDir())
	for name, members := range map[string]string{
		"nothing":               ``,
		"change_of_nothing":     `,"set":{"text":"x"}`,
		"change_and_write":      `,"set":{"text":"x"},"put":{"queue":"q"}`,
		"callback_of_nothing":   `,"then":{"queue":"q"}`,
		"callback_after_write":  `,"put":{"queue":"q"},"then":{"queue":"q"}`,
		"take_without_an_id":    `,"take":{"queue":"p"}`,
		"take_without_a_queue":  `,"take":{"id":"m"}`,
		"put_without_a_queue":   `,"put":{"text":"x"}`,
		"callback_without_one":  `,"take":{"queue":"p","id":"m"},"then":{}`,
		"a_number_for_a_queue":  `,"put":{"queue":5}`,
		"null_for_both_of_them": `,"take":null,"put":null`,
	} {
		t.Run(name, func(t *testing.T) {
			content := `{"is":"run","v":2,"run":"` + id + `"}` + "\n" +
				`{"is":"planned","n":0,"put":{"queue":"q","text":"` + strings.Repeat("x", 9000) + `"}}` + "\n" +
				`{"is":"planned","n":1` + members + "}\n"
			check(t, os.WriteFile(path(f, id), []byte(content), 0o600))
			_, err := read(t, f, id).Step(1)
			if err == nil || !strings.Contains(err.Error(), path(f, id)+": step 1 in line 3: ") ||
				!strings.Contains(err.Error(), "restore it from a copy") {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestUndone checks that the newest mark of an undo counts, also one that follows the end of the run.
func TestUndone(t *testing.T) {
	f := newFolder(t)
	j := begin(t, f, journal.Run{Command: "move"})
	check(t, j.Go(), j.Undone("first"), j.End(), j.Undone("second"), j.Close())
	if by := read(t, f, j.Run.ID).UndoneBy; by != "second" {
		t.Errorf("undone by %q", by)
	}
}

// TestOtherVersion checks that nothing is done with the journal of another version, whose steps mean something else.
func TestOtherVersion(t *testing.T) {
	const id = "20261121-100000-move-abcd"
	f := journal.Folder(t.TempDir())
	for name, head := range map[string]string{
		"without_a_version": `{"is":"run","run":"` + id + `","command":"move","at":"2026-11-21T10:00:00Z"}`,
		"later":             `{"is":"run","v":3,"run":"` + id + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			content := head + "\n" + `{"is":"step","n":0,"from":"p","id":"m","to":"q"}` + "\n" + `{"is":"go"}` + "\n"
			check(t, os.WriteFile(path(f, id), []byte(content), 0o600))
			if _, err := f.Read(id); !errors.Is(err, journal.ErrVersion) || !strings.Contains(err.Error(), id) {
				t.Errorf("read: %v", err)
			}
			if _, err := f.Reopen(id); !errors.Is(err, journal.ErrVersion) {
				t.Errorf("reopen: %v", err)
			}
			after, err := os.ReadFile(path(f, id))
			if err != nil || string(after) != content {
				t.Errorf("the file has changed: %q, %v", after, err)
			}
			if ids, err := f.List(); err != nil || len(ids) != 1 {
				t.Errorf("listed: %q, %v", ids, err)
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
		"20261121-100000-move-abcd\n", "20261121-100000-MOVE-abcd",
		"20261121-100000-move-" + strings.Repeat("a", 1000), "\x1b[31m",
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
	failure := j.Go()
	if failure == nil || !strings.Contains(failure.Error(), path(f, j.Run.ID)) {
		t.Fatalf("a failed line: %v", failure)
	}
	if err := j.Canary(); !errors.Is(err, failure) {
		t.Errorf("the next line: %v", err)
	}
}

// TestUnwritableValue checks that a run that JSON cannot express leaves no journal.
func TestUnwritableValue(t *testing.T) {
	f := newFolder(t)
	if _, err := f.Begin(journal.Run{Command: "move", Pace: journal.Pace{Rate: math.NaN()}}); err == nil {
		t.Error("no error")
	}
	entries, err := os.ReadDir(string(f))
	if err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

// TestUnknownLines checks that lines of kinds that this version does not know change nothing.
func TestUnknownLines(t *testing.T) {
	f := newFolder(t)
	j := begin(t, f, journal.Run{Command: "move"})
	check(t, j.Plan(journal.Step{Put: &journal.Put{Queue: "q", Text: "x"}}), j.Go(), j.Begun(0, false), j.Close())
	before := read(t, f, j.Run.ID)
	file, err := os.OpenFile(path(f, j.Run.ID), os.O_APPEND|os.O_WRONLY, 0)
	check(t, err)
	_, err = file.WriteString(`{"is":"checked","n":0,"receipt":"x","twice":true}` + "\n" + `{"is":"paused"}` + "\n")
	check(t, err, file.Close())
	same(t, before, read(t, f, j.Run.ID))
}

func TestDefault(t *testing.T) {
	home := t.TempDir()
	for _, c := range []struct {
		env  map[string]string
		want string // below home
	}{
		{map[string]string{"XDG_STATE_HOME": filepath.Join(home, "s"), "HOME": home}, "s/async-caller/runs"},
		{map[string]string{"XDG_STATE_HOME": "relative", "HOME": home}, ".local/state/async-caller/runs"},
		{map[string]string{"HOME": home}, ".local/state/async-caller/runs"},
		{map[string]string{"USERPROFILE": home}, ".local/state/async-caller/runs"},
	} {
		want := journal.Folder(filepath.Join(home, filepath.FromSlash(c.want)))
		if got := journal.Default(func(name string) string { return c.env[name] }); got != want {
			t.Errorf("%v: %s, want %s", c.env, got, want)
		}
	}
}

// FuzzRead checks that any journal that can be read has valid steps and can be continued.
func FuzzRead(f *testing.F) {
	run := `{"is":"run","v":2,"run":"20261121-100000-move-abcd"}` + "\n"
	planned := `{"is":"planned","n":0,"take":{"queue":"p","id":"m"}}` + "\n"
	for _, seed := range []string{
		"", "\n", run,
		run + planned + `{"is":"written","n":0,"at":"x"}` + "\n" + `{"is":"done","n":0,"twice":1}` + "\n",
		run + `{"is":"planned","n":0,"take":7}` + "\n", run + `{"is":"planned","n":0,"put":7}` + "\n",
		run + planned + planned + `{"is":"begun","n":-1}` + "\n", run + `{"is":"go"`, run + run,
		run + `{"is":"deleted","n":99999999999}` + "\n" + `{"is":"planned","n":null}` + "\n", "\x00\xff\n",
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
		for n := range h.Steps() {
			if _, err := h.Step(n); err != nil && !strings.Contains(err.Error(), file) {
				t.Errorf("step %d: %v", n, err)
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

// TestDeleteBesideReopen: if one process deletes a journal and another one resumes its run at the same moment, one of
// them is refused, and a deleted journal leaves no file.
func TestDeleteBesideReopen(t *testing.T) {
	for range 50 {
		f := newFolder(t)
		j := begin(t, f, journal.Run{Command: "move"})
		check(t, j.Close())
		var deleted, reopened error
		var both sync.WaitGroup
		both.Go(func() { deleted = f.Delete(j.Run.ID, false, func(*journal.Journal) error { return nil }) })
		both.Go(func() {
			var again *journal.Journal
			again, reopened = f.Reopen(j.Run.ID)
			if reopened == nil {
				_, err := os.Stat(path(f, j.Run.ID))
				reopened = errors.Join(err, again.Close())
			}
		})
		both.Wait()
		isRefused := errors.Is(reopened, journal.ErrBusy) || errors.Is(reopened, journal.ErrNoRun)
		switch {
		case reopened != nil && !isRefused:
			t.Fatalf("resumed: %v", reopened)
		case deleted != nil && !errors.Is(deleted, journal.ErrBusy):
			t.Fatalf("deleted: %v", deleted)
		}
		files, err := os.ReadDir(string(f))
		if err != nil || deleted == nil && len(files) > 0 {
			t.Fatalf("%v, %v", files, err)
		}
	}
}

// TestDeleteDamaged: a journal that cannot be read is deleted only if that is asked for.
func TestDeleteDamaged(t *testing.T) {
	f := newFolder(t)
	j := begin(t, f, journal.Run{Command: "move"})
	check(t, j.Close())
	file := path(f, j.Run.ID)
	check(t, os.WriteFile(file, []byte("hello\n"), 0o600))
	allow := func(*journal.Journal) error { return nil }
	if err := f.Delete(j.Run.ID, false, allow); err == nil {
		t.Error("it was deleted")
	}
	check(t, f.Delete(j.Run.ID, true, allow))
	if err := f.Delete(j.Run.ID, true, allow); !errors.Is(err, journal.ErrNoRun) {
		t.Errorf("again: %v", err)
	}
}
