package journal

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

const (
	extension = ".jsonl"
	// timeLayout is that of the time with which an ID begins.
	timeLayout = "20060102-150405"
)

var (
	// ErrNoRun means that there is no journal of that name.
	ErrNoRun = errors.New("no such run")
	// ErrBusy means that another process is carrying out the run.
	ErrBusy = errors.New("another process is carrying out the run")
	// ErrVersion means that another version of async-caller has written the journal.
	ErrVersion = errors.New("the journal has another format")
)

// Folder is a folder of journals.
type Folder string

// Default returns the current user's folder for journals: async-caller/runs in XDG_STATE_HOME, which
// defaults to ~/.local/state (https://specifications.freedesktop.org/basedir-spec). Without HOME, the home folder is
// that of the system's list of users. The folder is empty, and its methods fail, if there is none, or if another user
// owns the folder and could change journals, or read the secrets in them.
func Default(getenv func(string) string) Folder {
	state := getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) { // the specification ignores a relative path
		home := cmp.Or(getenv("HOME"), getenv("USERPROFILE"))
		if person, err := user.Current(); home == "" && err == nil {
			home = person.HomeDir
		}
		if !filepath.IsAbs(home) {
			return ""
		}
		state = filepath.Join(home, ".local", "state")
	}
	parent := filepath.Join(state, "async-caller")
	folder := filepath.Join(parent, "runs")
	if isOfOther(parent) || isOfOther(folder) {
		return ""
	}
	return Folder(folder)
}

var errNoFolder = errors.New("folder for journals: there is no home folder, or the folder async-caller/runs in it " +
	"belongs to another user: name a folder with --runs")

// Begin creates the journal of a new run, and sets the run's ID and time.
func (f Folder) Begin(run Run) (*Journal, error) {
	if f == "" {
		return nil, errNoFolder
	}
	if err := os.MkdirAll(string(f), 0o700); err != nil {
		return nil, fmt.Errorf("folder for journals: %w; name another one with --runs", err)
	}
	run.Version, run.At = version, now()
	run.ID = NewID(run.At, run.Command)
	j, err := f.lock(run.ID, os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, fmt.Errorf("journal %s: %w; name another folder with --runs", run.ID, err)
	}
	j.Run = run
	err = j.write(line{Is: kindRun}, struct {
		Is string `json:"is"`
		Run
	}{kindRun, run})
	if err != nil {
		_ = j.Discard()
		return nil, err
	}
	return j, nil
}

// Reopen opens the journal of a run to continue it. It fails with [ErrBusy] while another process does.
func (f Folder) Reopen(id string) (*Journal, error) {
	return f.load(id, func() (*Journal, error) { return f.lock(id, 0) })
}

// Read reads the journal of a run. The caller must close it.
func (f Folder) Read(id string) (*Journal, error) {
	return f.load(id, func() (*Journal, error) {
		file, err := os.Open(f.path(id))
		return &Journal{file: file}, err
	})
}

func (f Folder) load(id string, open func() (*Journal, error)) (*Journal, error) {
	if !validID.MatchString(id) {
		return nil, fmt.Errorf("%w: %.80q is not the name of a run; "+
			"`async-caller runs list` lists them", ErrNoRun, id)
	}
	if _, err := os.Stat(f.path(id)); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s in %s; `async-caller runs list` lists them", ErrNoRun, id, f)
	}
	j, err := open()
	if errors.Is(err, fs.ErrNotExist) { // it was deleted just now
		return nil, fmt.Errorf("%w: %s in %s; `async-caller runs list` lists them", ErrNoRun, id, f)
	}
	if err != nil {
		return nil, fmt.Errorf("journal %s: %w", id, err)
	}
	if err := j.load(id); err != nil {
		_ = j.Close()
		return nil, err
	}
	return j, nil
}

// List returns the IDs of all runs, the newest first. A missing folder has none.
func (f Folder) List() ([]string, error) {
	if f == "" {
		return nil, errNoFolder
	}
	entries, err := os.ReadDir(string(f))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("folder for journals: %w; name another one with --runs", err)
	}
	var ids []string
	for _, e := range slices.Backward(entries) {
		if id, ok := strings.CutSuffix(e.Name(), extension); ok && validID.MatchString(id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Delete removes the journal of a run for good. Check sees the journal and returns why it must stay, or nil. A journal
// that cannot be read is removed only if damaged is true. Delete fails with [ErrBusy] while another process carries out
// the run; that process's death ends its lock.
func (f Folder) Delete(id string, damaged bool, check func(*Journal) error) error {
	j, err := f.Reopen(id)
	switch {
	case err == nil:
		if err := check(j); err != nil {
			return errors.Join(err, j.Close())
		}
		return j.Discard()
	case errors.Is(err, ErrNoRun), errors.Is(err, ErrBusy), !damaged:
		return err
	}
	j, err = f.lock(id, 0)
	if err != nil {
		return fmt.Errorf("journal %s: %w", id, err)
	}
	return j.Discard()
}

// NewID returns the ID of a run that begins.
func NewID(at time.Time, command string) string {
	return fmt.Sprintf("%s-%s-%s", at.Format(timeLayout), command, strings.ToLower(rand.Text()[:4]))
}

// IsID reports whether a text can be the ID of a run.
func IsID(id string) bool { return validID.MatchString(id) }

// validID keeps an ID from leading out of the folder, and other files in it from being taken for runs.
var validID = regexp.MustCompile(`^\d{8}-\d{6}-[a-z]+-[a-z0-9]{4}$`)

func (f Folder) path(id string) string { return filepath.Join(string(f), id+extension) }

// lock opens a journal for writing, and keeps other processes from doing the same.
func (f Folder) lock(id string, flags int) (*Journal, error) {
	lock := flock.New(f.path(id) + ".lock")
	ok, err := lock.TryLock()
	if err == nil && !ok {
		err = ErrBusy
	}
	j := &Journal{lock: lock, synced: time.Now()}
	if err == nil {
		j.file, err = os.OpenFile(f.path(id), flags|os.O_RDWR|os.O_APPEND, 0o600)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist): // the journal was deleted just now
		_ = j.unlock()
	case err != nil:
		_ = lock.Close()
	}
	return j, err
}
