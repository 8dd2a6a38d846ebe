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

// object is a JSON object.
type object = map[string]any

// writeSBOM lists the modules in an executable with their licences, and Go's standard library.
func writeSBOM(ctx context.Context, project, repository string, e built, path string) error {
	executable, err := filepath.Abs(e.path)
	if err != nil {
		return err
	}
	licences, err := licencesOf(ctx, project, e.platform)
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
	var bom object
	if err := json.Unmarshal(text, &bom); err != nil {
		return fmt.Errorf("read the SBOM of %s: %w", e.path, err)
	}
	setOrigin(bom, repository, setting(e.info, "vcs.time"))
	if err := setLicences(bom, licences); err != nil {
		return err
	}
	text, err = json.MarshalIndent(bom, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// setOrigin adds who made an SBOM, and when: at the time of the commit, if that is known. It removes the hashes of the
// tool, which is another executable on each platform.
func setOrigin(bom object, repository, committed string) {
	metadata, _ := bom["metadata"].(object)
	tools, _ := metadata["tools"].([]any)
	for _, tool := range tools {
		tool, _ := tool.(object)
		delete(tool, "hashes")
	}
	metadata["authors"] = []object{{"name": repository}}
	metadata["supplier"] = object{"name": repository, "url": []string{addressOf(repository)}}
	if committed != "" {
		metadata["timestamp"] = committed
	}
}

// setLicences adds the licence of each module to an SBOM.
func setLicences(bom object, licences map[string][]string) error {
	components, _ := bom["components"].([]any)
	for _, component := range components {
		component, _ := component.(object)
		name, _ := component["name"].(string)
		var choices []object
		for _, id := range licences[name] {
			choices = append(choices, object{"license": object{"id": id}})
		}
		if choices == nil {
			return fmt.Errorf("module %s has no known licence in a file LICENSE: "+
				"replace the module, or extend licences.go", name)
		}
		component["licenses"] = choices
	}
	return nil
}
