package logs_test

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/logs"
)

const info = zerolog.InfoLevel

// writes records each write. While nobody reads, a write waits.
type writes struct {
	mu   sync.Mutex
	all  []string
	fail error
	// unread, if it is not nil, is closed when somebody reads.
	unread chan struct{}
}

func (w *writes) Write(p []byte) (int, error) {
	if w.unread != nil {
		<-w.unread
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail != nil {
		return 0, w.fail
	}
	w.all = append(w.all, string(p))
	return len(p), nil
}

func (w *writes) failWith(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = err
}

func (w *writes) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.all, "")
}

func (w *writes) want(t *testing.T, want ...string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if diff := cmp.Diff(want, w.all); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// say writes lines one after the other, as a handler does that is not busy.
func say(t *testing.T, b *logs.Batch, level zerolog.Level, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if n, err := b.WriteLevel(level, []byte(line)); n != len(line) || err != nil {
			t.Errorf("wrote %d bytes of %.80q: %v", n, line, err)
		}
		synctest.Wait()
	}
}

// advance moves the clock of a synctest bubble.
func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// wantReport checks that a text ends in a line that reports dropped lines, and returns the text before it.
func wantReport(t *testing.T, text string, dropped int) string {
	t.Helper()
	at := strings.LastIndex(strings.TrimSuffix(text, "\n"), "\n") + 1
	var report struct {
		Level, Message string
		Dropped        int
	}
	if err := json.Unmarshal([]byte(text[at:]), &report); err != nil || report.Level != "error" ||
		report.Dropped != dropped ||
		!strings.HasPrefix(report.Message, "log lines were dropped") {
		t.Errorf("%.200q: want an error line that reports %d dropped lines (%v)", text[at:], dropped, err)
	}
	return text[:at]
}

func TestBatch(t *testing.T) {
	for name, run := range map[string]func(t *testing.T, b *logs.Batch, out *writes){
		"alone": func(t *testing.T, b *logs.Batch, out *writes) {
			say(t, b, info, "a")
			out.want(t, "a")
			advance(10 * time.Millisecond)
			say(t, b, info, "b")
			out.want(t, "a", "b")
		},
		"many": func(t *testing.T, b *logs.Batch, out *writes) {
			say(t, b, info, "a", "b", "c")
			advance(9 * time.Millisecond)
			say(t, b, info, "d")
			out.want(t, "a")
			advance(time.Millisecond)
			out.want(t, "a", "bcd")
			say(t, b, info, "e")
			advance(10 * time.Millisecond)
			out.want(t, "a", "bcd", "e")
		},
		"warning": func(t *testing.T, b *logs.Batch, out *writes) {
			say(t, b, info, "a", "b")
			say(t, b, zerolog.WarnLevel, "w")
			out.want(t, "a", "bw")
			say(t, b, info, "c")
			say(t, b, zerolog.ErrorLevel, "e")
			out.want(t, "a", "bw", "ce")
			advance(time.Second)
			out.want(t, "a", "bw", "ce")
		},
		"no_level": func(t *testing.T, b *logs.Batch, out *writes) {
			say(t, b, info, "a", "b")
			if _, err := b.Write([]byte("c")); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			out.want(t, "a", "bc")
		},
		"close": func(t *testing.T, b *logs.Batch, out *writes) {
			say(t, b, info, "a", "b")
			b.Close()
			out.want(t, "a", "b")
			b.Close()
			say(t, b, zerolog.ErrorLevel, "late")
			out.want(t, "a", "b")
		},
		"much": func(t *testing.T, b *logs.Batch, out *writes) {
			line := strings.Repeat("x", 16<<10)
			say(t, b, info, line, line, line, line)
			out.want(t, line, line+line)
			advance(10 * time.Millisecond)
			out.want(t, line, line+line, line)
		},
		"write_error": func(t *testing.T, b *logs.Batch, out *writes) {
			out.failWith(errors.New("broken pipe"))
			say(t, b, zerolog.ErrorLevel, "a\n", "b\nb\n", "c\n")
			out.want(t)
			out.failWith(nil)
			say(t, b, zerolog.ErrorLevel, "d\n")
			if rest := wantReport(t, out.text(), 4); rest != "d\n" {
				t.Errorf("wrote %q", rest)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out := &writes{}
				b := logs.NewBatch(out)
				defer b.Close()
				run(t, b, out)
			})
		})
	}
}

// TestBatchUnread checks that nobody waits for a reader that is away: some lines are held, with room for errors, the
// others are dropped, and later the log says how many.
func TestBatchUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &writes{unread: make(chan struct{})}
		b := logs.NewBatch(out)
		line, failure := strings.Repeat("i", 999)+"\n", strings.Repeat("e", 999)+"\n"
		const lines, failures, held = 5000, 200, 1 + (1<<20-1<<18)/1000 // the first is in the writer's hands
		began := time.Now()
		say(t, b, info, line)
		for range lines - 1 {
			_, _ = b.WriteLevel(info, []byte(line))
		}
		for range failures {
			_, _ = b.WriteLevel(zerolog.ErrorLevel, []byte(failure))
		}
		_, _ = b.WriteLevel(zerolog.ErrorLevel, []byte(strings.Repeat("x", 2<<20)))
		if time.Since(began) > 0 {
			t.Errorf("a writer of lines waited for %v", time.Since(began))
		}
		close(out.unread)
		synctest.Wait()
		if rest := wantReport(t, out.text(), lines-held+1); rest != strings.Repeat(line, held)+strings.Repeat(failure,
			failures) {
			t.Errorf("wrote %d info lines and %d errors, want %d and %d", strings.Count(rest, line),
				strings.Count(rest, failure), held, failures)
		}
		advance(time.Second)
		say(t, b, info, "later\n")
		b.Close()
		// name and message of one report
		if text := out.text(); !strings.HasSuffix(text, "later\n") || strings.Count(text, "dropped") != 2 {
			t.Errorf("after that, it wrote %q", text[len(text)-200:])
		}
	})
}

// TestBatchCloseUnread checks that the end does not wait for a reader that is away.
func TestBatchCloseUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &writes{unread: make(chan struct{})}
		b := logs.NewBatch(out)
		say(t, b, info, "a")
		began := time.Now()
		b.Close()
		if took := time.Since(began); took != time.Second {
			t.Errorf("Close took %v", took)
		}
		close(out.unread)
	})
}

// TestBatchKeepsOrder checks that lines stay whole, and that those of one goroutine stay in order.
func TestBatchKeepsOrder(t *testing.T) {
	out := &writes{}
	b := logs.NewBatch(out)
	var group sync.WaitGroup
	for _, who := range []string{"a", "b", "c"} {
		group.Go(func() {
			for n := range 2000 {
				level := info
				if n%100 == 99 {
					level = zerolog.WarnLevel
				}
				_, _ = b.WriteLevel(level, []byte(who+strings.Repeat(".", n%7)+"\n"))
			}
		})
	}
	group.Wait()
	b.Close()
	seen := map[string]int{}
	for line := range strings.Lines(out.text()) {
		who := line[:1]
		if want := who + strings.Repeat(".", seen[who]%7) + "\n"; line != want {
			t.Fatalf("line %q, want %q", line, want)
		}
		seen[who]++
	}
	if diff := cmp.Diff(map[string]int{"a": 2000, "b": 2000, "c": 2000}, seen); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// TestBatchAllocates checks that a line costs no allocation.
func TestBatchAllocates(t *testing.T) {
	b := logs.NewBatch(io.Discard)
	defer b.Close()
	log := logs.New(b, info)
	if n := testing.AllocsPerRun(1000, func() { log.Info().Str(logs.Action, "finish").Msg("settled") }); n > 0.5 {
		t.Errorf("%v allocations for a line", n)
	}
}
