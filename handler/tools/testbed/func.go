//go:build unix

package testbed

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"

	"asynccaller/handler/tools/freeport"
)

// This file has all that a [Host] needs to be `func start` of Azure Functions Core Tools 4, which is on the PATH. See
// docs/host.md for what this host does otherwise. It needs blobs beside the queues, and downloads the extension bundle
// when it first starts.

// useFunc makes the command of a host that was not started `func start` in an app folder.
func (h *Host) useFunc(ctx context.Context, appDir string) error {
	port, err := freeport.Find(ctx)
	if err != nil {
		return fmt.Errorf("start func: %w", err)
	}
	env := append(h.command.Env, "FUNCTIONS_WORKER_RUNTIME=custom", "FUNCTIONS_CORE_TOOLS_TELEMETRY_OPTOUT=1")
	h.command = exec.Command("func", "start", "--port", strconv.Itoa(port)) //nolint:noctx // as in StartHost
	h.command.Dir, h.command.Env = appDir, env
	return nil
}

// funcTime matches what `func start` writes before each line of the handler.
var funcTime = regexp.MustCompile(`^\[[^\]]*\] +`)
