// Package freeport finds ports of 127.0.0.1 on which nothing listens.
package freeport

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Find returns a port on which nothing listens. It is below the ports that systems give to those who ask for any (49152
// and above; on Linux 32768): one of them could otherwise get it before the caller uses it, or while the caller relies
// on it being refused.
func Find(ctx context.Context) (int, error) {
	const first, ports, tries = 20_000, 10_000, 50
	var err error
	for range tries {
		port := first + rand.IntN(ports) //nolint:gosec // any of them will do
		var listener net.Listener
		listener, err = new(net.ListenConfig).Listen(ctx, "tcp", address(port))
		if err == nil {
			return port, listener.Close()
		}
	}
	return 0, fmt.Errorf("find a free port: %w", err)
}

// Address returns 127.0.0.1 with a port that Find found.
func Address(ctx context.Context) (string, error) {
	port, err := Find(ctx)
	return address(port), err
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
