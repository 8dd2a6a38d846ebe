package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// platform is what an executable runs on, in the Go tool's terms.
type platform struct{ system, processor string }

// functionApp is the platform of a Function App.
var functionApp = platform{"linux", "amd64"}

// executable returns the file name of the executable.
func (p platform) executable() string {
	if p.system == "windows" {
		return executable + ".exe"
	}
	return executable
}

// isExecutable reports whether a file of an archive is the executable of some platform.
func isExecutable(name string) bool { return name == executable || name == executable+".exe" }

// compileFor builds the executable for a platform, as it is published. Neither this machine nor its settings change the
// result, so that anyone can build it again.
func compileFor(ctx context.Context, project string, p platform, output string) error {
	return goBuild(ctx, project, output, p.settings(), "-ldflags=-s")
}

// settings returns settings of the Go tool that replace those of this machine.
func (p platform) settings() []string {
	return []string{
		"GOOS=" + p.system, "GOARCH=" + p.processor, "CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0",
		"GOFIPS140=off", "GOWORK=off",
		"GOFLAGS=-mod=readonly", // not empty, because the Go tool would then use the flags of go env
	}
}

// compile builds the executable for this machine.
func compile(ctx context.Context, project, output string) error {
	return goBuild(ctx, project, output, nil)
}

func goBuild(ctx context.Context, project, output string, settings []string, flags ...string) error {
	output, err := filepath.Abs(output)
	if err != nil {
		return err
	}
	args := append([]string{"build", "-trimpath", recordCommit(ctx, project), "-o", output}, flags...)
	build := exec.CommandContext(ctx, "go", append(args, "./handler")...)
	build.Dir = project
	build.Env = append(os.Environ(), settings...)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build %s: %w", output, err)
	}
	return nil
}

// recordCommit returns the flag that makes the Go tool record the commit, even if go env turns that off. A folder that
// is no checkout, or one that Git does not read, is built as well: then the commit is unknown.
func recordCommit(ctx context.Context, project string) string {
	if _, err := os.Stat(filepath.Join(project, ".git")); err != nil {
		return "-buildvcs=false"
	}
	if _, err := git(ctx, project, "rev-parse", "--verify", "HEAD"); err != nil {
		fmt.Fprintln(os.Stderr, "stage: the executable will not know its commit:", err)
		return "-buildvcs=false"
	}
	return "-buildvcs=true"
}

func git(ctx context.Context, project string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "git", args...)
	command.Dir = project
	output, err := command.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("git %s: %s", args[0], strings.TrimSpace(string(exit.Stderr)))
	}
	return strings.TrimSpace(string(output)), err
}
