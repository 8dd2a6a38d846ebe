package journal

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

const (
	extension  = ".jsonl"
	timeLayout = "20060102-150405"
)

var (
	// ErrNoRun means that there is no journal of that name.
	ErrNoRun = errors.New("no such run")
	// ErrBusy means that another process is carrying out the run.
	ErrBusy = errors.New("the run is under way in another process")
)

// Folder is where journals are kept.
type Folder string

// Default is the folder for journals of whoever runs the program: async-caller/runs in XDG_STATE_HOME, which
// is ~/.local/state unless set (https://specifications.freedesktop.org/basedir-spec).
func Default(getenv func(string) string) Folder {
	state := getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) { // as the specification has it
		state = filepath.Join(cmp.Or(getenv("HOME"), getenv("USERPROFILE"), os.TempDir()), ".local", "state")
	}
	return Folder(filepath.Join(state, "async-caller", "runs"))
}

// Begin makes the journal of a new run and gives the run its ID and time.
func (f Folder) Begin(run Run) (*Journal, error) {
	if err := os.MkdirAll(string(f), 0o700); err != nil {
		return nil, fmt.Errorf("folder for journals: %w", err)
	}
	run.At = now()
	run.ID = fmt.Sprintf("%s-%s-%s", run.At.Format(timeLayout), run.Command, strings.ToLower(rand.Text()[:4]))
	path := f.path(run.ID)
	j, err := open(path, os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, err
	}
	j.Run = run
	err = j.write(struct {
		Is string `json:"is"`
		Run
	}{kindRun, run})
	if err != nil {
		_ = j.Discard()
		return nil, err
	}
	return j, nil
}

// Reopen opens the journal of a run to write on. It fails with [ErrBusy] while another process has it open.
func (f Folder) Reopen(id string) (*Journal, error) {
	path, err := f.find(id)
	if err != nil {
		return nil, err
	}
	j, err := open(path, 0)
	if err != nil {
		return nil, err
	}
	if err := j.mend(); err != nil {
		_ = j.Close()
		return nil, err
	}
	return j, nil
}

// mend reads which run it is, and ends a line that was cut off, so that the next one is a line of its own.
func (j *Journal) mend() error {
	history, err := read(j.path)
	if err != nil {
		return err
	}
	defer history.Close()
	j.Run, j.over = history.Run, history.Ended
	if !history.torn {
		return nil
	}
	if _, err := j.file.WriteString("\n"); err != nil {
		return fmt.Errorf("journal %s: %w", j.path, err)
	}
	return nil
}

// Read reads the journal of a run. Close the history when done with it.
func (f Folder) Read(id string) (*History, error) {
	path, err := f.find(id)
	if err != nil {
		return nil, err
	}
	return read(path)
}

// List returns the ids of all runs, the newest first. A folder that is not there has none.
func (f Folder) List() ([]string, error) {
	entries, err := os.ReadDir(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("folder for journals: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), extension); ok && validID.MatchString(id) {
			ids = append(ids, id)
		}
	}
	slices.Reverse(ids)
	return ids, nil
}

// validID keeps an id from leading out of the folder, and other files in it from being runs.
var validID = regexp.MustCompile(`^\d{8}-\d{6}-[a-z]+-[a-z0-9]{4}$`)

func (f Folder) path(id string) string { return filepath.Join(string(f), id+extension) }

func (f Folder) find(id string) (string, error) {
	if !validID.MatchString(id) {
		return "", fmt.Errorf("%w: %.80q is no run's name; `async-caller poison runs` lists them", ErrNoRun, id)
	}
	path := f.path(id)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w: %s in %s; `async-caller poison runs` lists them", ErrNoRun, id, f)
	}
	return path, nil
}

// open opens a journal to write on, and keeps other processes from doing the same.
func open(path string, flags int) (*Journal, error) {
	held := flock.New(path + ".lock")
	ok, err := held.TryLock()
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	if !ok {
		_ = held.Close()
		return nil, fmt.Errorf("%s: %w", strings.TrimSuffix(filepath.Base(path), extension), ErrBusy)
	}
	file, err := os.OpenFile(path, flags|os.O_WRONLY|os.O_APPEND, 0o600) //nolint:gosec // in the operator's folder
	if err != nil {
		_ = held.Close()
		return nil, fmt.Errorf("journal: %w", err)
	}
	return &Journal{path: path, lock: held, file: file, synced: time.Now()}, nil
}
