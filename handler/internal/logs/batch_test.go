package logs_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/logs"
)

// writes records each write.
type writes struct {
	mu   sync.Mutex
	all  []string
	fail error
}

func (w *writes) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, string(p))
	return len(p), w.fail
}

func (w *writes) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if diff := cmp.Diff(want, w.all); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

func say(t *testing.T, b *logs.Batch, level zerolog.Level, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if n, err := b.WriteLevel(level, []byte(line)); n != len(line) || err != nil {
			t.Errorf("wrote %d bytes of %q: %v", n, line, err)
		}
	}
}

// advance moves the clock of a synctest bubble.
func advance(d time.Duration) { <-time.After(d) }

func TestBatch(t *testing.T) {
	const info = zerolog.InfoLevel
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
			out.want(t, "a", "bc")
		},
		"flush": func(t *testing.T, b *logs.Batch, out *writes) {
			say(t, b, info, "a", "b")
			if err := errors.Join(b.Flush(), b.Flush()); err != nil {
				t.Error(err)
			}
			out.want(t, "a", "b")
		},
		"much": func(t *testing.T, b *logs.Batch, out *writes) {
			line := strings.Repeat("x", 16<<10)
			say(t, b, info, line, line, line, line)
			out.want(t, line, line+line)
			advance(10 * time.Millisecond)
			out.want(t, line, line+line, line)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out := &writes{}
				run(t, logs.NewBatch(out), out)
			})
		})
	}
}

func TestBatchFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := logs.NewBatch(&writes{fail: errors.New("gone")})
		if _, err := b.WriteLevel(zerolog.InfoLevel, []byte("a")); err == nil {
			t.Error("no error for a write that failed")
		}
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
				level := zerolog.InfoLevel
				if n%100 == 99 {
					level = zerolog.WarnLevel
				}
				_, _ = b.WriteLevel(level, []byte(who+strings.Repeat(".", n%7)+"\n"))
			}
		})
	}
	group.Wait()
	if err := b.Flush(); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for line := range strings.Lines(strings.Join(out.all, "")) {
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
