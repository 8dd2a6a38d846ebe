package testbed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Build builds the executable of the product in a folder of its own, which remove removes.
func Build(ctx context.Context) (path string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "async-caller-build-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	path = filepath.Join(dir, "async-caller")
	output, err := exec.CommandContext(ctx, "go", "build", "-o", path, "asynccaller/handler").CombinedOutput()
	if err != nil {
		remove()
		return "", nil, fmt.Errorf("build async-caller: %w\n%s", err, output)
	}
	return path, remove, nil
}
