package azurite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

const (
	modules  = "node_modules"
	lockFile = "package-lock.json"
	// stamp is the copy of the lock file that node_modules was installed from. It is written last, so an
	// interrupted install has none.
	stamp = ".installed-lock.json"
	// lockInterval is the time between two checks whether another process has finished its install.
	lockInterval = 200 * time.Millisecond
)

// Install runs `npm ci` in this package's folder, unless node_modules matches package-lock.json. The output of
// npm goes to out. If several processes call it at once, one installs and the others wait. It needs Node.js
// with npm, and the first time a package registry.
func Install(ctx context.Context, out io.Writer) error {
	dir, err := folder()
	if err == nil {
		err = checkNode(ctx, dir, out)
	}
	if err == nil {
		err = InstallIn(ctx, dir, out)
	}
	if err != nil {
		return fmt.Errorf("install azurite: %w", err)
	}
	return nil
}

// CheckNode returns an error if Node.js or npm is missing, and writes a warning to out if Node.js is older than Azurite requires.
func CheckNode(ctx context.Context, out io.Writer) error {
	dir, err := folder()
	if err != nil {
		return err
	}
	return checkNode(ctx, dir, out)
}

func checkNode(ctx context.Context, dir string, out io.Writer) error {
	node, err := lookPath(dir, "node")
	if err == nil {
		_, err = lookPath(dir, "npm")
	}
	if err != nil {
		return err
	}
	version, err := exec.CommandContext(ctx, node, "--version").Output() // v20.20.2
	if err != nil {
		return fmt.Errorf("%s --version: %w", node, err)
	}
	major, _, _ := strings.Cut(strings.TrimPrefix(string(version), "v"), ".")
	has, _ := strconv.Atoi(major)
	if wants := requiredNode(dir); has < wants {
		fmt.Fprintf(out, "warning: Azurite requires Node.js %d or later, and this is %s; if it fails, install a newer one\n",
			wants, strings.TrimSpace(string(version)))
	}
	return nil
}

// requiredNode returns the oldest major version of Node.js that the pinned Azurite requires.
func requiredNode(dir string) (major int) {
	var lock struct {
		Packages struct {
			Azurite struct{ Engines struct{ Node string } } `json:"node_modules/azurite"`
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, lockFile))
	if err == nil && json.Unmarshal(text, &lock) == nil {
		_, _ = fmt.Sscanf(lock.Packages.Azurite.Engines.Node, ">=%d", &major)
	}
	return major
}

// InstallIn is like Install for the packages of another folder with a package-lock.json.
func InstallIn(ctx context.Context, dir string, out io.Writer) error {
	if fresh(dir) {
		return nil
	}
	// The kernel releases the lock when its holder ends, so a lock is never stale. The file stays.
	lock := flock.New(filepath.Join(dir, ".install.lock"))
	if _, err := lock.TryLockContext(ctx, lockInterval); err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if fresh(dir) { // another process has installed it
		return nil
	}
	return npmCI(ctx, dir, out)
}

// fresh reports whether node_modules was installed from the current lock file.
func fresh(dir string) bool {
	want, err := os.ReadFile(filepath.Join(dir, lockFile))
	if err != nil {
		return false
	}
	have, err := os.ReadFile(filepath.Join(dir, modules, stamp))
	return err == nil && bytes.Equal(want, have)
}

func npmCI(ctx context.Context, dir string, out io.Writer) error {
	npm, err := lookPath(dir, "npm")
	if err != nil {
		return err
	}
	lock, err := os.ReadFile(filepath.Join(dir, lockFile))
	if err != nil {
		return err
	}
	// No package that Azurite needs has an install script of use.
	cmd := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("`npm ci` in %s: %w: see its output; it needs a package registry", dir, err)
	}
	return os.WriteFile(filepath.Join(dir, modules, stamp), lock, 0o600)
}

// lookPath finds node or npm.
func lookPath(dir, program string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("%w: install Node.js %d or later, which includes node and npm, and put it on the PATH", err, requiredNode(dir))
	}
	return path, nil
}

// folder returns this package's source folder, which has package-lock.json: the process runs in the repository.
func folder() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		found := filepath.Join(dir, "handler", "tools", "azurite")
		if _, err := os.Stat(filepath.Join(found, lockFile)); err == nil {
			return found, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("its package.json is not found: run this from a checkout of the repository")
		}
		dir = filepath.Dir(dir)
	}
}
