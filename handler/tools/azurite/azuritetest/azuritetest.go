// Package azuritetest starts an Azurite for a test.
package azuritetest

import (
	"testing"

	"asynccaller/handler/tools/azurite"
)

// Run starts an Azurite that keeps its queues in memory, and stops it at the end of the test. If Azurite is not
// installed, the test fails.
func Run(tb testing.TB) *azurite.Server {
	tb.Helper()
	return Start(tb, azurite.Options{})
}

// Start is Run with options.
func Start(tb testing.TB, options azurite.Options) *azurite.Server {
	tb.Helper()
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
