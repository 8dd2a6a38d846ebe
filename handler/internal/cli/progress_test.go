package cli

import (
	"bytes"
	"testing"
	"time"
)

func TestProgressLine(t *testing.T) {
	for name, test := range map[string]struct {
		about        string
		count, total int
		rate         float64
		want         string
	}{
		"unknown_total":     {"", 1200, 0, 60, "sent 1,200, 60/s"},
		"known_total":       {"", 3200, 10000, 450, "sent 3,200 of 10,000, 450/s, 15s left"},
		"about":             {"about ", 3200, 10000, 450, "sent 3,200 of about 10,000, 450/s, 15s left"},
		"more_than_thought": {"about ", 12, 10, 5, "sent 12 of about 12, 5/s, 0s left"},
		"nothing_yet":       {"", 0, 10, 0, "sent 0 of 10, 0/s"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := progressLine("sent", test.about, test.count, test.total, test.rate); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// TestProgress: nothing is shown before two seconds, then a line that takes the place of the one before,
// which leaves nothing behind; the rate counts only what was done since.
func TestProgress(t *testing.T) {
	var out bytes.Buffer
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p := &progress{out: &out, verb: "done with", now: func() time.Time { return now }, started: now}
	shows := func(count int, after time.Duration, want string) {
		t.Helper()
		out.Reset()
		now = now.Add(after)
		p.to(count, 2000, "")
		if got := out.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	shows(1001, time.Second, "")
	shows(1500, time.Second, "done with 1,500 of 2,000, 250/s, 2s left")
	shows(1501, 100*time.Millisecond, "")
	erased := "\r                                        \r"
	shows(1999, 1900*time.Millisecond, erased+"done with 1,999 of 2,000, 250/s, 0s left")
	out.Reset()
	p.clear()
	p.clear()
	if got := out.String(); got != erased {
		t.Errorf("cleared with %q, want %q", got, erased)
	}
	out.Reset()
	p.end()
	if got, want := out.String(), "done with 1,999 in 4s\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestProgressOnPipe: who does not sit before a terminal sees nothing.
func TestProgressOnPipe(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out, "sent")
	p.started = p.started.Add(-time.Hour)
	p.step()
	p.end()
	if out.Len() > 0 {
		t.Errorf("%q", out.String())
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{
		0: "0", 999: "999", 1000: "1,000", 12345: "12,345", 999999: "999,999", 1000000: "1,000,000", -5: "-5", -123: "-123", -1234: "-1,234",
	} {
		if got := thousands(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
