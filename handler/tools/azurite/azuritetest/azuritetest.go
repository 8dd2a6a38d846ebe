// Package azuritetest gives tests an Azurite of their own.
package azuritetest

import (
	"testing"

	"asynccaller/handler/tools/azurite"
)

// Run starts an Azurite that keeps its queues in memory, and stops it when the test is over. It installs
// Azurite first if need be. A machine that cannot run it fails the test: what only Azurite can show must
// not go unchecked silently.
func Run(tb testing.TB) *azurite.Server {
	tb.Helper()
	return Start(tb, azurite.Options{})
}

// Start is Run with options: to keep the queues in a folder, to serve https.
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
