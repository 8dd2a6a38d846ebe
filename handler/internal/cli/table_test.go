package cli

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/pause"
	"asynccaller/handler/internal/record"
)

// screen is a terminal with a width.
type screen struct {
	bytes.Buffer
	width int
}

func (s *screen) columns() int { return s.width }

// TestTable checks that rows fit the terminal, that only flexible columns lose text, and that they lose its middle.
func TestTable(t *testing.T) {
	const (
		target  = "GET https://crm.example.com/api/v2/organizations/contoso/orders/4711"
		request = "order-2026-10-14-000000000000000000000000-4711"
	)
	for name, test := range map[string]struct {
		width int
		want  string
	}{
		"wide": {200, "0a1b2c3d  " + request + "     3  " + target},
		"piped": {
			textColumns,
			"0a1b2c3d  order-2026-10-14-000000000000000000000000-4711     3  GET https://crm.example…/orders/4711",
		},
		"standard": {
			80, "0a1b2c3d  order-2026-10-14-0000000…0000000-4711     3  GET https://crm.…ers/4711",
		},
		"narrow": {
			60, "0a1b2c3d  order-2026-10…00-4711     3  GET https://c…rs/4711",
		},
	} {
		t.Run(name, func(t *testing.T) {
			out := &screen{width: test.width}
			table := newTable(out, leftColumn("ID", 8), flexColumn("REQUEST", 46), rightColumn("ATT", 4),
				flexColumn("TARGET", 0))
			out.Reset()
			table.row("0a1b2c3d", request, "3", target)
			got := strings.TrimSuffix(out.String(), "\n")
			if got != test.want {
				t.Errorf("\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// TestTableAligns checks that a wide number in a fixed column takes space from the last column only, and that texts
// align by the columns that they have on a terminal.
func TestTableAligns(t *testing.T) {
	const text = "the quick brown fox jumps over the lazy dog and runs"
	out := &screen{width: 60}
	rows := newTable(out, flexColumn("NAME", 12), rightColumn("N", 4), flexColumn("TEXT", 0))
	rows.row("short", "7", text)
	rows.row("日本語日本語日本語", "123,456", text)
	rows.row("e\u0301", "8", text)
	rows.row("a\x1b[2J\nb", "9", "")
	const want = "NAME             N  TEXT\n" +
		"short            7  the quick brown fox jumps … dog and runs\n" +
		"日本語…本語   123,456  the quick brown fox jump…dog and runs\n" +
		"e\u0301                8  the quick brown fox jumps … dog and runs\n" +
		"a\ufffd[2J\ufffdb          9\n"
	if got := out.String(); got != want {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
}

// TestCut checks how a text is cut to 10 of the columns that it has on a terminal.
func TestCut(t *testing.T) {
	const mark, accented, unknown = "\u0301", "e\u0301", "\ufffd"
	for name, test := range map[string]struct{ text, end, middle string }{
		"short":  {"short", "short", "short"},
		"exact":  {"0123456789", "0123456789", "0123456789"},
		"longer": {"0123456789a", "012345678…", "012345…89a"},
		"wide":   {"日本語日本語", "日本語日…", "日本語…語"},
		"emoji":  {strings.Repeat("🙂", 8), "🙂🙂🙂🙂…", "🙂🙂🙂…🙂"},
		"marks": {
			strings.Repeat(accented, 12),
			strings.Repeat(accented, 9) + "…",
			strings.Repeat(accented, 6) + "…" + strings.Repeat(accented, 3),
		},
		"only_marks": {
			strings.Repeat(mark, 1000),
			mark + mark + strings.Repeat(unknown, 9) + "…",
			mark + mark + strings.Repeat(unknown, 6) + "…" + strings.Repeat(unknown, 3),
		},
	} {
		t.Run(name, func(t *testing.T) {
			text := printable(test.text)
			if got := cut(text, 10); got != test.end {
				t.Errorf("%q, want %q", got, test.end)
			}
			if got := cutMiddle(text, 10); got != test.middle {
				t.Errorf("%q, want %q", got, test.middle)
			}
		})
	}
}

// TestWidthOf checks that output to a file or a pipe has a fixed width.
func TestWidthOf(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if got := widthOf(&output{Writer: file}); got != textColumns {
		t.Errorf("file: %d columns", got)
	}
	if got := widthOf(&output{Writer: &screen{width: 132}}); got != 132 {
		t.Errorf("terminal: %d columns", got)
	}
}

// TestNamesAt80 checks that no name of a queue or a target is cut on a terminal of 80 columns while another column
// could be, and that no row is wider.
func TestNamesAt80(t *testing.T) {
	now := time.Now()
	reasons := []account.ReasonCount{{Reason: "rejected", Count: 20}, {Reason: "certificate", Count: 12}}
	long := strings.Repeat("long-name-", 6) + "end"
	counts := &message.ScheduledGroup{}
	for name, test := range map[string]struct {
		print func(out *screen)
		whole []string
		cut   string // a part that only the whole name has
	}{
		"status": {func(out *screen) {
			printQueueStates(out, account.Status{At: now, Queues: []account.QueueStatus{
				{Queue: "async-caller-10", Messages: new(12345), Scheduled: counts, Poison: new(32), Sample: reasons},
				{Queue: "orders", Messages: new(1), Poison: new(0), Sample: reasons},
			}}, false)
		}, []string{"async-caller-10", "orders", "12,345", "rejec"}, ""},
		"status_long": {func(out *screen) {
			queues := []account.QueueStatus{{Queue: long, Messages: new(1), Poison: new(0)}}
			printQueueStates(out, account.Status{At: now, Queues: queues}, false)
		}, []string{"long-name"}, long},
		"poison_queues": {func(out *screen) {
			printQueues(out, []account.QueueSummary{
				{Queue: "async-caller-priority-poison", Messages: 32, Oldest: now, Newest: now, Reasons: reasons},
			})
		}, []string{"async-caller-priority-poison", "rejec"}, ""},
		"targets": {func(out *screen) {
			printTargets(out, []account.TargetStatus{{
				ScheduledGroup: message.ScheduledGroup{Key: "crm-staging.example.com"},
				Failing:        []record.Target{{Since: now, Cause: "certificate has expired or is not yet valid"}},
			}}, now)
		}, []string{"crm-staging.example.com", "cert"}, ""},
		"pauses": {func(out *screen) {
			printPauses(out, []pause.Pause{{
				Host: "crm-staging.example.com:8443", Since: now, By: "a-long-user-name@a-long-machine-name",
				Reason: "maintenance of the whole system, INC-4711",
			}}, now)
		}, []string{"crm-staging.example.com:8443", "maint"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			out := &screen{width: 80}
			test.print(out)
			for _, part := range test.whole {
				if !strings.Contains(out.String(), part) {
					t.Errorf("no %q in\n%s", part, out)
				}
			}
			if test.cut != "" && strings.Contains(out.String(), test.cut) {
				t.Errorf("%q is in\n%s", test.cut, out)
			}
			for line := range strings.Lines(out.String()) {
				if displayWidth(strings.TrimSuffix(line, "\n")) > 80 {
					t.Errorf("wider than 80: %s", line)
				}
			}
		})
	}
}
