package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// sbomTool is CycloneDX's own tool. It reads only the executable, in which the Go tool has recorded the modules.
const sbomTool = "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0"

// writeSBOM lists the modules in an executable, and Go's standard library.
func writeSBOM(ctx context.Context, e built, path string) error {
	executable, err := filepath.Abs(e.path)
	if err != nil {
		return err
	}
	// Neither the time nor this machine's platform gets into the SBOM.
	tool := exec.CommandContext(ctx, "go", "run", sbomTool,
		"bin", "-json", "-std", "-noserial", "-notimestamp", "-short-purls", executable)
	tool.Env = append(os.Environ(), platform{runtime.GOOS, runtime.GOARCH}.settings()...)
	tool.Stderr = os.Stderr
	text, err := tool.Output()
	if err != nil {
		return fmt.Errorf("write the SBOM of %s: %w", e.path, err)
	}
	text, err = withoutToolHashes(text)
	if err != nil {
		return fmt.Errorf("read the SBOM of %s: %w", e.path, err)
	}
	return os.WriteFile(path, text, 0o644)
}

// withoutToolHashes removes the hashes of the tool, which is another executable on each platform.
func withoutToolHashes(text []byte) ([]byte, error) {
	var bom map[string]any
	if err := json.Unmarshal(text, &bom); err != nil {
		return nil, err
	}
	metadata, _ := bom["metadata"].(map[string]any)
	tools, _ := metadata["tools"].([]any)
	for _, tool := range tools {
		tool, _ := tool.(map[string]any)
		delete(tool, "hashes")
	}
	text, err := json.MarshalIndent(bom, "", "  ")
	return append(text, '\n'), err
}
