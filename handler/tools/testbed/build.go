package testbed

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// Build builds async-caller in a folder.
func Build(ctx context.Context, folder string) (path string, err error) {
	return build(ctx, filepath.Join(folder, "async-caller"), "asynccaller/handler")
}

// BuildHost builds the local host in a folder.
func BuildHost(ctx context.Context, folder string) (path string, err error) {
	return build(ctx, filepath.Join(folder, "functionshost"), "asynccaller/handler/tools/functionshost")
}

func build(ctx context.Context, path, pack string) (string, error) {
	output, err := exec.CommandContext(ctx, "go", "build", "-o", path, pack).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pack, err, output)
	}
	return path, nil
}
