package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestAsk(t *testing.T) {
	for name, test := range map[string]struct{ typed, want string }{
		"line":      {"yes\n", "yes"},
		"spaces":    {"  412 \r\n", "412"},
		"empty":     {"\n", ""},
		"end":       {"", ""},
		"cut_short": {"y", "y"},
		"endless":   {strings.Repeat("y", 5000), strings.Repeat("y", 1000)},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			got, err := ask(t.Context(), strings.NewReader(test.typed), &out, "go on?")
			if err != nil || got != test.want {
				t.Errorf("%q, %v; want %q", got, err, test.want)
			}
			if !strings.HasPrefix(out.String(), "go on? ") {
				t.Errorf("asked %q", out.String())
			}
		})
	}
}

// TestAskAgain: one answer leaves the next one in place.
func TestAskAgain(t *testing.T) {
	in := strings.NewReader("first\nsecond\n")
	for _, want := range []string{"first", "second", ""} {
		if got, err := ask(t.Context(), in, io.Discard, "?"); got != want || err != nil {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
}

// TestAskInterrupted: Ctrl-C ends the question although nobody answers.
func TestAskInterrupted(t *testing.T) {
	in, typed := io.Pipe()
	defer func() { _ = typed.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ask(ctx, in, io.Discard, "?"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestAskUnreadable: an input that breaks is no answer.
func TestAskUnreadable(t *testing.T) {
	broken := errors.New("broken")
	in, typed := io.Pipe()
	_ = typed.CloseWithError(broken)
	if _, err := ask(t.Context(), in, io.Discard, "?"); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

func TestAgreed(t *testing.T) {
	for answer, want := range map[string]bool{
		"y": true, "Y": true, "yes": true, "YES": true, "": false, "n": false, "no": false, "yess": false, "412": false,
	} {
		if agreed(answer) != want {
			t.Errorf("%q: %v", answer, !want)
		}
	}
}

// TestCanAsk: what is no terminal is nobody.
func TestCanAsk(t *testing.T) {
	if (Surroundings{Stdin: strings.NewReader("y\n"), Stderr: io.Discard}).canAsk() {
		t.Error("asks a pipe")
	}
}
