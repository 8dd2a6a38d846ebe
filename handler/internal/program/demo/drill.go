package demo

import (
	"context"
	"fmt"
)

// exitUsage is the exit code of a drill that is refused: there is no heartbeat yet.
const exitUsage = 2

// drill shows, as an operator would, that the app delivers. It returns an error unless all calls are delivered.
func (c *Check) drill(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("gave up after %v", patience))
	defer cancel()
	var drilled command
	err := c.await(ctx, func() bool {
		drilled = c.execute(ctx, "drill", "--url", c.Target.URL("200"))
		return drilled.code != exitUsage
	})
	fmt.Fprintf(c.Stdout, "To see at any time that an app delivers, as here or in Azure:\n\n%s\n", drilled)
	switch {
	case err != nil:
		return fmt.Errorf("`%s`: %w", drilled.typed, err)
	case drilled.code != exitDone:
		return fmt.Errorf("`%s` ended with exit code %d, want %d", drilled.typed, drilled.code, exitDone)
	}
	return nil
}
