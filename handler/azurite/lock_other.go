//go:build !unix

package azurite

import "context"

// lockFolder does nothing where there is no flock: install before running tests of several packages.
func lockFolder(context.Context, string) (unlock func(), err error) { return func() {}, nil }
