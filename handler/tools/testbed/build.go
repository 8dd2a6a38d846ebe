package testbed

import (
	"context"
	"fmt"
	"os/exec"
)

// Build builds the executable of the product at a path.
func Build(ctx context.Context, path string) error {
	build := exec.CommandContext(ctx, "go", "build", "-o", path, "asynccaller/handler")
	output, err := build.CombinedOutput()
	if err != nil {
		return fmt.Errorf("build async-caller: %w\n%s", err, output)
	}
	return nil
}
