package cli

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

// isKeyboard reports whether a person types what is read there.
func isKeyboard(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// canAsk reports whether somebody is there to be asked, and sees the question.
func (s Surroundings) canAsk() bool { return isKeyboard(s.Stdin) && isTerminal(s.Stderr) }

// ask puts a question and returns the answer, without the spaces around it. It ends with ctx, although the
// reading cannot: then the program is about to end too. The end of the input is an empty answer.
func ask(ctx context.Context, in io.Reader, out io.Writer, question string) (string, error) {
	fmt.Fprint(out, question, " ")
	type reply struct {
		line string
		err  error
	}
	replies := make(chan reply, 1)
	go func() { // ends with the line, or with the program
		line, err := readLine(in)
		replies <- reply{line, err}
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(out)
		return "", context.Cause(ctx)
	case r := <-replies:
		if errors.Is(r.err, io.EOF) {
			fmt.Fprintln(out)
			r.err = nil
		}
		return strings.TrimSpace(r.line), r.err
	}
}

// readLine reads no further than the line's end: what follows is the next answer.
func readLine(in io.Reader) (string, error) {
	const longest = 1000
	one := bufio.NewReaderSize(oneByOne{in}, 16)
	var line strings.Builder
	for line.Len() < longest {
		b, err := one.ReadByte()
		if err != nil || b == '\n' {
			return line.String(), err
		}
		line.WriteByte(b)
	}
	return line.String(), nil
}

// oneByOne gives a byte at a time.
type oneByOne struct{ in io.Reader }

func (o oneByOne) Read(p []byte) (int, error) { return o.in.Read(p[:1]) }

// agreed reports whether an answer is a yes.
func agreed(answer string) bool {
	answer = strings.ToLower(answer)
	return answer == "y" || answer == "yes"
}
