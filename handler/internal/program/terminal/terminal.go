// Package terminal writes tables, and lines with labels, that fit the terminal of a person, and asks questions. Output
// to a file or a pipe has a fixed width.
package terminal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Is reports whether a stream is a terminal.
func Is(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Ask prints a question and returns the answer without surrounding spaces. The end of the input is an empty
// answer. When ctx ends first, the read from the terminal goes on until the program ends.
func Ask(ctx context.Context, in io.Reader, out io.Writer, question string) (string, error) {
	fmt.Fprint(out, question, " ")
	type answer struct {
		line string
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		line, err := bufio.NewReader(in).ReadString('\n') // a terminal returns one line per read
		answers <- answer{strings.TrimSpace(line), err}
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(out)
		return "", context.Cause(ctx)
	case a := <-answers:
		if errors.Is(a.err, io.EOF) {
			fmt.Fprintln(out)
			a.err = nil
		}
		return a.line, a.err
	}
}

// IsYes reports whether an answer is a yes.
func IsYes(answer string) bool {
	answer = strings.ToLower(answer)
	return answer == "y" || answer == "yes"
}
