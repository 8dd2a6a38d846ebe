// Azurite runs Azurite, at the version that tests and the demo use, on the ports that UseDevelopmentStorage=true means.
// It keeps its data in the folder .azurite of the working directory. Start it with `make azurite`.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"asynccaller/handler/tools/azurite"
)

const dataFolder = ".azurite"

// standard are the ports of every Azurite.
var standard = ports{blob: 10000, queue: 10001, table: 10002}

type ports struct{ blob, queue, table int }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, dataFolder, standard); err != nil {
		fmt.Fprintln(os.Stderr, "azurite:", err)
		os.Exit(1)
	}
}

// run runs Azurite until ctx ends.
func run(ctx context.Context, out io.Writer, data string, p ports) error {
	data, err := filepath.Abs(data)
	if err != nil {
		return err
	}
	for _, port := range []int{p.blob, p.queue, p.table} {
		if err := checkFree(ctx, port); err != nil {
			return err
		}
	}
	server, err := azurite.Start(ctx, azurite.Options{
		Port: p.queue, BlobPort: p.blob, TablePort: p.table, Data: data,
		AnyVersion: true, // senders may use a newer SDK
	})
	if err != nil {
		return err
	}
	ended := server.Ended()
	fmt.Fprintf(out, `Azurite listens on 127.0.0.1: blobs on port %d, queues on %d, tables on %d.
Its data is in %s; delete the folder to start with an empty account.
Ctrl-C stops it.
`, p.blob, p.queue, p.table, data)
	select {
	case <-ctx.Done():
		return server.Stop()
	case <-ended:
		return errors.New("it ended unexpectedly")
	}
}

func checkFree(ctx context.Context, port int) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		const advice = "stop the program that uses it, such as another Azurite or `make run`"
		return fmt.Errorf("port %d is not free: %s: %w", port, advice, err)
	}
	return listener.Close()
}
