package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestProgressLine(t *testing.T) {
	for want, got := range map[string]string{
		"sent 1,200, 60/s":                      progressLine("sent", 1200, 0, 60),
		"sent 3,200 of 10,000, 450/s, 15s left": progressLine("sent", 3200, 10000, 450),
		"sent 12 of 12, 5/s, 0s left":           progressLine("sent", 12, 10, 5),
		"sent 0 of 10, 0/s":                     progressLine("sent", 0, 10, 0),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestStatus checks that progress appears after two seconds and replaces the previous line, that messages
// have a line of their own, and that each queue is counted separately.
func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := &progress{out: &out, terminal: true}
		shows := func(want string, change func()) {
			t.Helper()
			out.Reset()
			change()
			if got := out.String(); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		advance := func(d time.Duration, done int) func() {
			return func() {
				s.started, s.shown = s.started.Add(-d), s.shown.Add(-d)
				s.Advanced(done, 2000)
			}
		}
		erased := "\r" + strings.Repeat(" ", len("done 1,500 of 2,000, 250/s, 2s left")) + "\r"
		shows("", advance(0, 1001))
		shows("", advance(time.Second, 1002))
		shows("done 1,500 of 2,000, 250/s, 2s left", advance(time.Second, 1500))
		shows("", advance(100*time.Millisecond, 1501))
		shows(erased+"done 1,999 of 2,000, 250/s, 1s left", advance(1900*time.Millisecond, 1999))
		shows(erased+"100% sure\n", func() { s.Note("100% sure") })
		shows("", s.clear)
		shows("", func() { s.Scanned("a-poison", 1, 10) })
		s.started, s.shown = s.started.Add(-8*time.Second), s.shown.Add(-8*time.Second)
		shows("read 2 of 10, 0/s, 32s left", func() { s.Scanned("a-poison", 2, 10) })
		shows("\r"+strings.Repeat(" ", 27)+"\r", func() { s.Scanned("b-poison", 1, 10) })
	})
}

// TestOutputKeepsProgress: output that is redirected does not remove the line of progress from the terminal.
func TestOutputKeepsProgress(t *testing.T) {
	var shown, redirected bytes.Buffer
	s := &progress{out: &shown, terminal: true, width: 10}
	fmt.Fprintln(&output{Writer: &redirected, progress: s}, "id")
	if shown.Len() > 0 || redirected.String() != "id\n" {
		t.Errorf("%q, %q", &shown, &redirected)
	}
}

// TestStatusOnPipe checks that progress is shown only on a terminal.
func TestStatusOnPipe(t *testing.T) {
	var out bytes.Buffer
	s := newProgress(Env{Stderr: &out})
	s.started = time.Now().Add(-time.Hour)
	s.Advanced(1, 10)
	if out.Len() > 0 {
		t.Errorf("%q", out.String())
	}
}
