// Azurite runs Azurite, at the version that tests and the demo use, on the ports that UseDevelopmentStorage=true means.
// It keeps its data in the folder .azurite of the working directory. Start it with `make azurite`.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"asynccaller/handler/tools/azurite"
)

const dataFolder = ".azurite"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, dataFolder, azurite.StandardPorts()); err != nil {
		fmt.Fprintln(os.Stderr, "azurite:", err)
		os.Exit(1)
	}
}

// run runs Azurite on the ports of the options until ctx ends.
func run(ctx context.Context, out io.Writer, data string, o azurite.Options) (err error) {
	o.Data, err = filepath.Abs(data)
	if err != nil {
		return err
	}
	if port, err := o.PortInUse(ctx); err != nil {
		const advice = "stop the program that uses it, such as another Azurite or `make run`"
		return fmt.Errorf("port %d is not free: %s: %w", port, advice, err)
	}
	o.AnyVersion = true // senders may use a newer SDK
	server, err := azurite.Start(ctx, o)
	if err != nil {
		return err
	}
	ended := server.Ended()
	fmt.Fprintf(out, `Azurite listens on 127.0.0.1: blobs on port %d, queues on %d, tables on %d.
Its data is in %s; delete the folder to start with an empty account.
Ctrl-C stops it.
`, o.BlobPort, o.Port, o.TablePort, o.Data)
	select {
	case <-ctx.Done():
		return server.Stop()
	case <-ended:
		return errors.New("it ended unexpectedly")
	}
}
