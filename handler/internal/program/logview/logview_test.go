package logview_test

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"asynccaller/handler/internal/program/logview"
)

const at = `"time":"2026-11-22T10:00:00Z"`

// clock is how a line shows that time.
func clock() string {
	return time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC).Local().Format(time.TimeOnly)
}

// show returns what the lines look like.
func show(t *testing.T, lines ...string) string {
	t.Helper()
	var out strings.Builder
	w := logview.NewWriter(&out)
	for _, line := range lines {
		if n, err := w.Write([]byte(line + "\n")); n != len(line)+1 || err != nil {
			t.Fatalf("wrote %d bytes, error %v", n, err)
		}
	}
	return out.String()
}

// TestLines: the kinds of lines are shown as testdata/lines.txtar says.
func TestLines(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/lines.txtar")
	if err != nil {
		t.Fatal(err)
	}
	log := strings.Split(strings.TrimSuffix(string(archive.Files[0].Data), "\n"), "\n")
	want := strings.ReplaceAll(string(archive.Files[1].Data), "10:00:00", clock())
	if diff := cmp.Diff(want, show(t, log...)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := show(t, "\x1b[31mfailed\x1b[0m\r"); got != "failed\n" {
		t.Errorf("colors are kept: %q", got)
	}
}

// TestLogPage: docs/log.md shows such lines.
func TestLogPage(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/log.md")
	if err != nil {
		t.Fatal(err)
	}
	for id, fields := range map[string]string{
		"order-2": `"action":"reschedule","reason":"temporary_status","detail":"answered 503","attempt":1,"took":87,` +
			`"status":503,"delay":600000`,
		"order-3": `"action":"dead_letter","reason":"rejected","detail":"answered 422","attempt":1,"took":52,` +
			`"status":422`,
		"order-4": `"action":"reschedule","reason":"timeout","detail":"no answer in time","attempt":2,"took":120000,` +
			`"delay":20000`,
	} {
		line := show(t, `{"level":"info","request_id":"`+id+`","target_host":"crm.example.com",`+fields+","+at+
			`,"message":"settled"}`)
		if want := strings.TrimPrefix(line, clock()); !strings.Contains(string(page), want) {
			t.Errorf("docs/log.md does not have a line that ends with%s", want)
		}
	}
}

// TestPrefixes: whatever passes the log on can put its own text before the JSON.
func TestPrefixes(t *testing.T) {
	const line = `{"level":"info","request_id":"r1","action":"finish","reason":"delivered",` + at +
		`,"message":"settled"}`
	for _, prefix := range []string{
		"",
		"[2026-11-22T10:00:00.001Z] ", // func start
		"2026-11-22T10:00:00Z   [Information]   ",   // the log stream, live
		"2026-11-22T10:00:00.001 [Information] ",    // the log stream, from files
		"2026-11-22T10:00:00Z   [Error]   ",         // all of standard error
		"      ",                                    // the console of .NET
		"app-1  | \x1b[36m",                         // docker compose
		"Nov 22 10:00:00 vm async-caller[17]: ",     // the journal
		"{pod=a}{container=b} ", "\ufeff", `{"a": `, // braces of its own
	} {
		want := clock() + "  r1  delivered\n"
		if got := show(t, prefix+line, prefix+line+" \x1b[0m\r"); got != want+want {
			t.Errorf("%q: got %q, want %q", prefix, got, want+want)
		}
	}
}

// TestHostLines: the host's lines about an invocation that succeeds say less than the handler's line.
func TestHostLines(t *testing.T) {
	for _, prefix := range []string{
		"", "[2026-11-22T10:00:00.001Z] ", "2026-11-22T10:00:00Z   [Information]   ",
		"2026-11-22T10:00:00.001 [Information,AC-standard] ",
	} {
		got := show(t, prefix+"Executing 'Functions.AC-standard' (Reason='New queue message detected', Id=1)",
			prefix+"Trigger Details: MessageId: m1, DequeueCount: 1, InsertedOn: 2026-11-22T10:00:00.000+00:00",
			prefix+"Executed 'Functions.AC-standard' (Succeeded, Id=1, Duration=5ms)")
		if got != "" {
			t.Errorf("%q: got %q", prefix, got)
		}
	}
	for _, line := range []string{
		"[2026-11-22T10:00:00.001Z] Executed 'Functions.AC-standard' (Failed, Id=1, Duration=5ms)",
		"2026-11-22T10:00:00Z   [Error]   Executed 'Functions.AC-standard' (Failed, Id=1, Duration=5ms)",
		"2026-11-22T10:00:00Z   [Warning]   Trigger Details: are missing",
		"[2026-11-22T10:00:00.001Z] System.Net.Http: Connection refused (127.0.0.1:1).",
		"[2026-11-22T10:00:00.001Z] An error: Executing 'Functions.AC-standard' is not possible",
	} {
		if got := show(t, line); got != line+"\n" {
			t.Errorf("got %q, want %q", got, line)
		}
	}
}

// TestGivenUpOnce: of the two lines that the handler writes, one is shown, even if the log has only one of them.
func TestGivenUpOnce(t *testing.T) {
	line := func(level, invocation, message string) string {
		return `{"level":"` + level + `","invocation_id":"` + invocation + `","request_id":"r1",` +
			`"action":"dead_letter","reason":"rejected","detail":"answered 400","attempt":1,"took":1,"status":400,` +
			at + `,"message":"` + message + `"}`
	}
	givingUp := func(invocation string) string {
		return line("error", invocation, "Giving up on envelope r1: answered 400")
	}
	settled := func(invocation string) string { return line("info", invocation, "settled") }
	var many []string
	for i := range 1001 {
		many = append(many, givingUp(strconv.Itoa(i)))
	}
	want := clock() + "  r1  attempt 1 (1ms): answered 400, dead letter, rejected\n"
	for name, row := range map[string]struct {
		lines []string
		times int
	}{
		"both":           {[]string{givingUp("a"), settled("a")}, 1},
		"mixed":          {[]string{givingUp("a"), givingUp("b"), settled("b"), settled("a")}, 2},
		"log_level_warn": {[]string{givingUp("a")}, 1},
		"only_settled":   {[]string{settled("a")}, 1},
		"requeued":       {[]string{givingUp("a"), settled("a"), givingUp("b"), settled("b")}, 2},
		"many":           {append(many, settled("1000")), len(many)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := show(t, row.lines...); got != strings.Repeat(want, row.times) {
				t.Errorf("got %q, want %d times %q", got, row.times, want)
			}
		})
	}
}

// TestPieces: a line is shown when its end arrives, however it was cut, or at the end of the input.
func TestPieces(t *testing.T) {
	const line = `{"level":"error",` + at + `,"message":"müde"}` + "\n"
	var out strings.Builder
	w := logview.NewWriter(&out)
	want := ""
	for range 2 {
		for i := range len(line) {
			if out.String() != want {
				t.Fatalf("after %d bytes: %q", i, out.String())
			}
			_, _ = w.Write([]byte{line[i]})
		}
		want += clock() + "  error: müde\n"
	}
	_, _ = w.Write([]byte("the end"))
	for range 2 {
		if err := w.Flush(); err != nil || out.String() != want+"the end\n" {
			t.Errorf("after the end: %q, error %v", out.String(), err)
		}
	}
}

// TestLongLine: a line of any length takes a bounded amount of memory, and the next line is shown as usual.
func TestLongLine(t *testing.T) {
	var out strings.Builder
	w := logview.NewWriter(&out)
	for range 64 {
		_, _ = w.Write([]byte(strings.Repeat(`{"a":`, 32<<10)))
	}
	_, _ = w.Write([]byte("\nnext\n"))
	shown, rest, _ := strings.Cut(out.String(), "\n")
	if len(shown) > 65<<10 || !strings.HasSuffix(shown, " ... (cut off: 10420224 more bytes)") || rest != "next\n" {
		t.Errorf("%d bytes, the end is %q, then %q", len(shown), shown[max(0, len(shown)-50):], rest)
	}
}

func TestPrintable(t *testing.T) {
	const escaped = `a\u001b[2J\u202e\u0000\n`
	const raw = "\x1b[2J\u202e\x00\u009b31m\xff\u00a0"
	got := show(t, raw, raw+`{"level":"error",`+at+`,"message":"`+escaped+`","error":"`+escaped+`","`+escaped+`":"`+
		escaped+`"}`, `{"level":"info","request_id":"`+escaped+`","action":"finish","reason":"`+escaped+`",`+at+
		`,"message":"settled"}`)
	if strings.Count(got, "\n") != 3 || strings.ContainsFunc(got, func(r rune) bool {
		return r != '\n' && !unicode.IsPrint(r)
	}) {
		t.Errorf("got %q", got)
	}
}

// TestHostileNumbers: no number makes a line fail.
func TestHostileNumbers(t *testing.T) {
	for _, number := range []string{"-1", "1e300", "-1e300", "0.0000001", `"1"`, "null", "{}"} {
		fields := `"attempt":1,"status":` + number + `,"took":` + number + `,"delay":` + number + `,"queue":` + number
		for _, message := range []string{"settled", "failed"} {
			got := show(t, `{"level":"warn",`+fields+","+at+`,"message":"`+message+`"}`)
			if strings.Count(got, "\n") != 1 {
				t.Errorf("%s %s: got %q", message, number, got)
			}
		}
	}
}

// failing fails after some writes.
type failing struct {
	writes int
	err    error
}

func (f *failing) Write(p []byte) (int, error) {
	if f.writes == 0 {
		return 0, f.err
	}
	f.writes--
	return len(p), nil
}

func TestWriteError(t *testing.T) {
	broken := errors.New("broken pipe")
	w := logview.NewWriter(&failing{1, broken})
	if n, err := w.Write([]byte("a\nb\nc\n")); n != 4 || !errors.Is(err, broken) {
		t.Errorf("wrote %d bytes, error %v", n, err)
	}
}
