// Package azuritetest starts an Azurite for a test.
package azuritetest

import (
	"testing"

	"asynccaller/handler/tools/azurite"
)

// Run starts an Azurite that keeps its queues in memory, and stops it at the end of the test. It installs
// Azurite first if needed. On a machine that cannot run Azurite the test fails.
func Run(tb testing.TB) *azurite.Server {
	tb.Helper()
	return Start(tb, azurite.Options{})
}

// Start is Run with options.
func Start(tb testing.TB, options azurite.Options) *azurite.Server {
	tb.Helper()
	if err := azurite.Install(tb.Context(), tb.Output()); err != nil {
		tb.Fatal(err)
	}
	server, err := azurite.Start(tb.Context(), options)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := server.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return server
}
