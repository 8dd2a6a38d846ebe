//go:build unix

package azurite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gofrs/flock"
)

// fakeNPM returns a folder to install in, and puts an npm on the PATH that runs the script there.
func fakeNPM(t *testing.T, script string) (dir string) {
	t.Helper()
	bin, dir := t.TempDir(), t.TempDir()
	if script != "" {
		mustWrite(t, filepath.Join(bin, "npm"), "#!/bin/sh\nPATH=/usr/bin:/bin\n"+script+"\n", 0o700)
	}
	t.Setenv("PATH", bin)
	mustWrite(t, filepath.Join(dir, lockFile), "{}", 0o600)
	return dir
}

func mustWrite(t *testing.T, file, content string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

// calls returns how often npm ran.
func calls(t *testing.T, dir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}

const countAndInstall = `echo "$1" >>calls; mkdir -p node_modules; echo installing`

func TestInstallOnce(t *testing.T) {
	dir := fakeNPM(t, countAndInstall)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := InstallIn(t.Context(), dir, io.Discard); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := calls(t, dir); got != 1 {
		t.Errorf("npm ran %d times, want once", got)
	}
	if err := InstallIn(t.Context(), dir, io.Discard); err != nil || calls(t, dir) != 1 {
		t.Errorf("npm ran again for nothing: %v", err)
	}

	mustWrite(t, filepath.Join(dir, lockFile), `{"changed":true}`, 0o600)
	var out strings.Builder
	if err := InstallIn(t.Context(), dir, &out); err != nil || calls(t, dir) != 2 {
		t.Errorf("npm ran %d times after the lock file changed, want one more: %v", calls(t, dir), err)
	}
	if out.String() != "installing\n" {
		t.Errorf("showed %q, want what npm printed", out.String())
	}
}

func TestInstallInterrupted(t *testing.T) {
	dir := fakeNPM(t, countAndInstall+"; exit 7")
	for want := 1; want <= 2; want++ { // an incomplete install does not count
		err := InstallIn(t.Context(), dir, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "`npm ci` in "+dir+": exit status 7") {
			t.Errorf("error %v, want npm's, and the folder", err)
		}
		if got := calls(t, dir); got != want {
			t.Errorf("npm ran %d times, want %d", got, want)
		}
	}
}

func TestInstallWithoutNode(t *testing.T) {
	dir := fakeNPM(t, "")
	err := InstallIn(t.Context(), dir, io.Discard)
	if err == nil || !strings.Contains(err.Error(), `"npm"`) || !strings.Contains(err.Error(), "install Node.js") {
		t.Errorf("error %v, want what is missing and what to do", err)
	}
}

// fakeNode puts a node on the PATH that prints a version, with an npm that does nothing.
func fakeNode(t *testing.T, version string) {
	t.Helper()
	bin := t.TempDir()
	mustWrite(t, filepath.Join(bin, "node"), "#!/bin/sh\necho "+version+"\n", 0o700)
	mustWrite(t, filepath.Join(bin, "npm"), "#!/bin/sh\n", 0o700)
	t.Setenv("PATH", bin)
}

func TestCheckNode(t *testing.T) {
	const warning = "warning: Azurite requires Node.js 21 or later, and this is "
	for version, want := range map[string]string{
		"v20.20.2": warning + "v20.20.2; if it fails, install a newer one\n", "v8.1.0": warning + "v8.1.0; if it fails, install a newer one\n",
		"v21.0.0": "", "v24.1.0": "", "v100.0.0": "",
	} {
		fakeNode(t, version)
		var out strings.Builder
		if err := CheckNode(t.Context(), &out); err != nil || out.String() != want {
			t.Errorf("%s: %q, error %v; want %q", version, out.String(), err, want)
		}
	}
	for _, missing := range []string{"node", "npm"} {
		fakeNode(t, "v24.1.0")
		if err := os.Remove(filepath.Join(os.Getenv("PATH"), missing)); err != nil {
			t.Fatal(err)
		}
		err := CheckNode(t.Context(), io.Discard)
		if err == nil || !strings.Contains(err.Error(), `"`+missing+`"`) || !strings.Contains(err.Error(), "install Node.js 21 or later") {
			t.Errorf("error %v, want that %s is missing and what to do", err, missing)
		}
	}
}

// TestReadme checks that README names the version of Node.js that the pinned Azurite requires.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("Node.js %d or later", requiredNode(".")); !strings.Contains(string(readme), want) {
		t.Errorf("README does not say %q", want)
	}
}

func TestInstallContextEnds(t *testing.T) {
	dir := fakeNPM(t, countAndInstall)
	lock := flock.New(filepath.Join(dir, ".install.lock"))
	if locked, err := lock.TryLock(); err != nil || !locked {
		t.Fatal(locked, err)
	}
	defer func() { _ = lock.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := InstallIn(ctx, dir, io.Discard); !errors.Is(err, context.DeadlineExceeded) || calls(t, dir) != 0 {
		t.Errorf("error %v after %d installs, want to wait for the other one", err, calls(t, dir))
	}
}

func TestStartWithoutNode(t *testing.T) {
	if err := Install(t.Context(), t.Output()); err != nil {
		t.Fatal(err)
	}
	fakeNPM(t, "")
	server, err := Start(t.Context(), Options{})
	if err == nil {
		_ = server.Stop()
		t.Fatal("it started without node")
	}
	if !strings.Contains(err.Error(), `"node"`) || !strings.Contains(err.Error(), "install Node.js") {
		t.Errorf("error %q, want what is missing and what to do", err)
	}
}

func TestFolder(t *testing.T) {
	here, err := folder()
	if err != nil {
		t.Fatal(err)
	}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if here != wd {
		t.Errorf("folder = %q, want %q", here, wd)
	}
}
