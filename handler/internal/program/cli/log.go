package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/plain/bom"
	"asynccaller/handler/internal/program/logview"
	"asynccaller/handler/internal/program/terminal"
)

// drainLimit is how long the log is read after Ctrl-C. The program before the pipe gets Ctrl-C as well: its last lines
// matter, and writing to a closed pipe would end it before it has stopped properly.
const drainLimit = 5 * time.Second

func newLog(env Env) *cobra.Command {
	return &cobra.Command{
		Use:   "log",
		Short: "Show the handler's log, one line for each delivery",
		Long: `Read the log of the handler on standard input, and show one line for each delivery of a message, and
the warnings and errors. Lines that are not the handler's are shown as they are, except those that
the Functions host writes about each invocation that succeeds. Times are local.

It reads what "func start" prints, Azure's log stream, and files with such lines: a line can have
any text before the handler's JSON. It ends with the input or at Ctrl-C.

The log stream of the Azure CLI and of Core Tools does not support Flex Consumption: query
Application Insights instead.`,
		Example: `  func start | async-caller log
  az webapp log tail --name APP --resource-group GROUP | async-caller log
  async-caller log < log.txt`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runLog(cmd.Context(), env) },
	}
}

func runLog(ctx context.Context, env Env) error {
	limit := drainLimit
	if !isPiped(env.Stdin) {
		limit = 0
	}
	if terminal.Is(env.Stdin) {
		fmt.Fprintf(env.Stderr, "waiting for lines of the handler's log on standard input, as in: "+
			"func start | %s log\n", programName)
	}
	reading, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	pieces := make(chan piece)
	go readPieces(reading, bom.NewReader(env.Stdin), pieces)

	view := logview.NewWriter(env.out)
	interrupted := ctx.Done()
	var overdue <-chan time.Time // once interrupted
	for {
		select {
		case p := <-pieces:
			if _, err := view.Write(p.text); err != nil {
				return err
			}
			if errors.Is(p.err, io.EOF) {
				return view.Flush()
			}
			if p.err != nil {
				return errors.Join(view.Flush(), p.err)
			}
		case <-interrupted:
			interrupted = nil
			overdue = time.After(limit)
		case <-overdue:
			return view.Flush()
		}
	}
}

// isPiped reports whether a stream is neither a terminal nor a file: another program writes to it.
func isPiped(stream io.Reader) bool {
	file, ok := stream.(*os.File)
	if !ok {
		return true
	}
	info, err := file.Stat()
	return err == nil && !info.Mode().IsRegular() && !terminal.Is(file)
}

// piece is what one read returned.
type piece struct {
	text []byte
	err  error
}

// readPieces reads until the first error, such as io.EOF, or until ctx ends. Nothing can interrupt a read of standard
// input, so this goroutine can outlive the command.
func readPieces(ctx context.Context, in io.Reader, pieces chan<- piece) {
	for {
		buffer := make([]byte, 16<<10)
		n, err := in.Read(buffer)
		select {
		case pieces <- piece{buffer[:n], err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}
