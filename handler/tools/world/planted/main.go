// Planted checks that the simulated world notices mistakes. Each file NAME.patch beside it is a planted bug: it breaks
// one rule, which its first lines name. Planted applies each patch to copies of the files and vets their packages. With
// -find, it plays the first hundred seeds of the world without a bug and with each of them, and fails unless they find
// each, and nothing without one. The arguments are names of planted bugs, or files with others; without any, all beside
// it are meant. It runs in the project's folder, whose files stay as they are, and is not part of the product.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	world  = "./handler/tools/world"
	folder = "handler/tools/world/planted"
	suffix = ".patch"
	// seeds is how many seeds may be played until a bug is found.
	seeds = 100
	// parallel is how many bugs are tried at once.
	parallel = 2
)

func main() {
	find := flag.Bool("find", false, fmt.Sprintf("play the first %d seeds of the world with each planted bug", seeds))
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, flag.Args(), *find, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "planted:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string, find bool, stdout io.Writer) error {
	files, err := filesOf(names)
	if err != nil {
		return err
	}
	temporary, err := os.MkdirTemp("", "planted-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary) //nolint:errcheck // nothing depends on it
	if find {
		if err := checkWorld(ctx, temporary); err != nil {
			return err
		}
	}
	bugs := make([]*bug, len(files))
	for i, file := range files {
		bugs[i] = newBug(file, filepath.Join(temporary, strconv.Itoa(i)))
	}
	go func() {
		var work errgroup.Group
		work.SetLimit(parallel)
		for _, b := range bugs {
			work.Go(func() error {
				defer close(b.done)
				b.err = b.plant(ctx)
				if b.err == nil && find {
					b.err = b.find(ctx)
				}
				return nil
			})
		}
	}()
	if find {
		return report(stdout, bugs)
	}
	return wait(bugs)
}

// checkWorld plays the world without any bug. One that fails then would find all of them.
func checkWorld(ctx context.Context, temporary string) error {
	none := bug{name: "without a planted bug", dir: temporary}
	err := none.find(ctx)
	if err == nil && none.seed > 0 {
		err = fmt.Errorf("%s, seed %d of the world fails: %s", none.name, none.seed, none.finding)
	}
	return err
}

// wait waits for all bugs, and returns what is wrong with them.
func wait(bugs []*bug) (err error) {
	for _, b := range bugs {
		<-b.done
		err = errors.Join(err, b.err)
	}
	return err
}

// filesOf returns the files of the named bugs, or of all.
func filesOf(names []string) (files []string, err error) {
	for _, name := range names {
		if !strings.HasSuffix(name, suffix) {
			name = filepath.Join(folder, name+suffix)
		}
		files = append(files, name)
	}
	if len(names) == 0 {
		files, err = filepath.Glob(filepath.Join(folder, "*"+suffix))
	}
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no *%s in %s: run it in the project's folder", suffix, folder)
	}
	return files, err
}

// bug is a planted bug.
type bug struct {
	// File is its patch. Dir is a new folder for copies, and overlay a file there, for the flag -overlay of go; empty
	// changes nothing.
	name, file, dir, overlay string
	// done is closed when what follows is known. Err says why the bug could not be planted or the world not be played.
	done chan struct{}
	err  error
	// seed is the first one that finds the bug, 0 if none does, and finding what the world says of it.
	seed    int
	finding string
	took    time.Duration
}

func newBug(file, dir string) *bug {
	return &bug{
		name: strings.TrimSuffix(filepath.Base(file), suffix), file: file, dir: dir,
		overlay: filepath.Join(dir, "overlay.json"), done: make(chan struct{}),
	}
}

// changedFile matches the line of a patch that names a file.
var changedFile = regexp.MustCompile(`(?m)^\+\+\+ b/(handler/internal/\S+\.go)$`)

// plant applies the patch to copies of its files, and vets their packages.
func (b *bug) plant(ctx context.Context) error {
	patch, err := os.ReadFile(b.file)
	if err == nil {
		err = os.Mkdir(b.dir, 0o700)
	}
	if err != nil {
		return err
	}
	replaced, packages := map[string]string{}, []string{}
	for _, match := range changedFile.FindAllSubmatch(patch, -1) {
		name := string(match[1])
		original, err := filepath.Abs(name)
		if err == nil {
			err = b.copy(name)
		}
		if err != nil {
			return b.outOfDate(err)
		}
		replaced[original] = filepath.Join(b.dir, name)
		packages = append(packages, "./"+path.Dir(name))
	}
	if len(replaced) == 0 {
		return fmt.Errorf("%s: it changes no Go file of handler/internal", b.name)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err == nil {
		err = os.WriteFile(b.overlay, overlay, 0o600)
	}
	if err != nil {
		return err
	}
	err = b.apply(ctx, patch)
	if err == nil {
		vet := append([]string{"vet", "-overlay", b.overlay}, slices.Compact(packages)...)
		_, err = output(exec.CommandContext(ctx, "go", vet...)) //nolint:gosec // packages of the project
	}
	if err != nil {
		return b.outOfDate(err)
	}
	return nil
}

// apply applies a patch to the copies. Lines may have moved, but git refuses a patch whose context has changed.
func (b *bug) apply(ctx context.Context, patch []byte) error {
	apply := exec.CommandContext(ctx, "git", "apply", "-")
	apply.Dir, apply.Stdin = b.dir, bytes.NewReader(patch)
	apply.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(b.dir)) // the copies are in no repository
	_, err := output(apply)
	return err
}

// outOfDate says what to do about a patch whose place has changed.
func (b *bug) outOfDate(err error) error {
	return fmt.Errorf("%s: the code that it changes is not what it was: renew %s, so that it breaks the same rule: %w",
		b.name, b.file, err)
}

// copy copies a file of the project to the bug's folder.
func (b *bug) copy(name string) error {
	project, err := os.OpenRoot(".")
	if err != nil {
		return err
	}
	defer project.Close() //nolint:errcheck // nothing was written
	copies, err := os.OpenRoot(b.dir)
	if err != nil {
		return err
	}
	defer copies.Close() //nolint:errcheck // of the folder
	content, err := project.ReadFile(name)
	if err == nil {
		err = copies.MkdirAll(path.Dir(name), 0o700)
	}
	if err != nil {
		return err
	}
	return copies.WriteFile(name, content, 0o600)
}

// output runs a command, and returns what it writes. The error has that as well.
func output(command *exec.Cmd) (string, error) {
	text, err := command.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(command.Args[:2], " "), err, bytes.TrimSpace(text))
	}
	return string(text), err
}

// foundBy matches what the world prints about the first schedule that breaks a promise.
var foundBy = regexp.MustCompile(`seed (\d+):\s*(.*)`)

// longest is how long the world may take with a bug, which can make it hang.
const longest = 30 * time.Minute

// find plays the world with the bug. The error says that this was not possible.
func (b *bug) find(ctx context.Context) error {
	began := time.Now()
	defer func() { b.took = time.Since(began) }()
	program := filepath.Join(b.dir, "world.test")
	//nolint:gosec // paths of our own
	_, err := output(exec.CommandContext(ctx, "go", "test", "-c", "-overlay="+b.overlay, "-o", program, world))
	if err != nil {
		return fmt.Errorf("%s: %w", b.name, err)
	}
	defer os.Remove(program) //nolint:errcheck // nothing depends on it
	//nolint:gosec // it was built just now
	play := exec.CommandContext(ctx, program, "-test.run", "^TestWorld$", "-test.timeout", longest.String(),
		"-first", "1", "-schedules", strconv.Itoa(seeds))
	play.Dir = world
	text, err := output(play)
	if err == nil {
		return nil // not found
	}
	match := foundBy.FindStringSubmatch(text)
	if match == nil {
		return fmt.Errorf("%s: the world fails, and names no seed: %w", b.name, err)
	}
	b.seed, err = strconv.Atoi(match[1])
	b.finding = match[2]
	return err
}

// report prints at which seeds the bugs are found, and the time that this takes. Its error names those that are not
// found.
func report(stdout io.Writer, bugs []*bug) error {
	var found []int
	var missed []string
	fmt.Fprintf(stdout, "%-30s %5s %7s  %s\n", "planted bug", "seed", "time", "found by")
	for _, b := range bugs {
		<-b.done
		seed, finding := strconv.Itoa(b.seed), b.finding
		switch {
		case b.err != nil:
			seed, finding = "?", "see below"
		case b.seed == 0:
			seed, finding = "-", "not found"
			missed = append(missed, b.name)
		default:
			found = append(found, b.seed)
		}
		fmt.Fprintf(stdout, "%-30s %5s %6.0fs  %.100s\n", b.name, seed, b.took.Seconds(), finding)
	}
	slices.Sort(found)
	if len(found) > 0 {
		fmt.Fprintf(stdout, "%d of %d are found, the median seed is %d\n", len(found), len(bugs), found[len(found)/2])
	}
	if len(missed) > 0 {
		return errors.Join(wait(bugs), fmt.Errorf("%d seeds do not find %s", seeds, strings.Join(missed, ", ")))
	}
	return wait(bugs)
}
