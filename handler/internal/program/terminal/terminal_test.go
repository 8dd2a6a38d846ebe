package terminal

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
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			got, err := Ask(t.Context(), strings.NewReader(test.typed), &out, "go on?")
			if err != nil || got != test.want {
				t.Errorf("%q, %v; want %q", got, err, test.want)
			}
			if !strings.HasPrefix(out.String(), "go on? ") {
				t.Errorf("asked %q", out.String())
			}
		})
	}
}

// TestAskInterrupted checks that Ctrl-C ends a question without an answer.
func TestAskInterrupted(t *testing.T) {
	in, typed := io.Pipe()
	defer func() { _ = typed.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Ask(ctx, in, io.Discard, "?"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestAskUnreadable checks that a read error is not an answer.
func TestAskUnreadable(t *testing.T) {
	broken := errors.New("broken")
	in, typed := io.Pipe()
	_ = typed.CloseWithError(broken)
	if _, err := Ask(t.Context(), in, io.Discard, "?"); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

func TestIsYes(t *testing.T) {
	for answer, want := range map[string]bool{
		"y": true, "Y": true, "yes": true, "YES": true, "": false, "n": false, "no": false, "yess": false, "412": false,
	} {
		if IsYes(answer) != want {
			t.Errorf("%q: %v", answer, !want)
		}
	}
}
