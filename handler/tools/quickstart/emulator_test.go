package quickstart

import (
	"testing"

	"asynccaller/handler/internal/storage/emulator"
)

// TestEmulator: Azure's client for Node.js, which signs and reads in its own way, has the queues of the emulator.
func TestEmulator(t *testing.T) {
	t.Parallel()
	checkInstalled(t)
	server, err := emulator.Start(t.Context(), emulator.Options{})
	must(t, err)
	t.Cleanup(server.Close)
	mustRun(t, ".", environ("AzureWebJobsStorage="+server.ConnectionString), "node", "emulator.mjs")
}
