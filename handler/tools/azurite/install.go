package azurite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

const (
	modules  = "node_modules"
	lockFile = "package-lock.json"
	// stamp is the copy of the lock file that node_modules was installed from. It is written last, so an
	// install that was broken off has none.
	stamp = ".installed-lock.json"
)

// Install runs `npm ci` in this package's source folder, unless node_modules holds what package-lock.json
// wants already. What npm prints goes to out. Several processes may call it at once, as the tests of two
// packages do: one installs, the others wait for it. It needs Node.js with npm, and a package registry
// the first time.
func Install(ctx context.Context, out io.Writer) error {
	dir, err := folder()
	if err != nil {
		return fmt.Errorf("install azurite: %w", err)
	}
	if err := installIn(ctx, dir, out); err != nil {
		return fmt.Errorf("install azurite: %w", err)
	}
	return nil
}

func installIn(ctx context.Context, dir string, out io.Writer) error {
	if fresh(dir) {
		return nil
	}
	unlock, err := lockFolder(ctx, dir)
	if err != nil {
		return err
	}
	defer unlock()
	if fresh(dir) { // somebody else was faster
		return nil
	}
	return npmCI(ctx, dir, out)
}

// fresh reports whether node_modules was installed from the lock file as it is now.
func fresh(dir string) bool {
	want, err := os.ReadFile(filepath.Join(dir, lockFile))
	if err != nil {
		return false
	}
	have, err := os.ReadFile(filepath.Join(dir, modules, stamp))
	return err == nil && bytes.Equal(want, have)
}

func npmCI(ctx context.Context, dir string, out io.Writer) error {
	npm, err := lookPath("npm")
	if err != nil {
		return err
	}
	lock, err := os.ReadFile(filepath.Join(dir, lockFile))
	if err != nil {
		return err
	}
	// No package that Azurite needs has anything to do in an install script.
	cmd := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("`npm ci` in %s: %w: see its output; is a package registry within reach?", dir, err)
	}
	return os.WriteFile(filepath.Join(dir, modules, stamp), lock, 0o600)
}

// lookPath finds node or npm, or says what to do about it.
func lookPath(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("%w: install Node.js 20 or newer, which brings node and npm, and put it on the PATH", err)
	}
	return path, nil
}

// folder is where this package's source stands, and so package.json.
func folder() (string, error) {
	if _, file, _, ok := runtime.Caller(0); ok && hasPackage(filepath.Dir(file)) {
		return filepath.Dir(file), nil
	}
	// Built with -trimpath the binary does not know where its source was; it may still be run inside it.
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if here := filepath.Join(dir, "handler", "azurite"); hasPackage(here) {
			return here, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("its package.json is not found: run this from a checkout of the repository")
		}
	}
}

func hasPackage(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, lockFile))
	return err == nil && filepath.IsAbs(dir)
}
