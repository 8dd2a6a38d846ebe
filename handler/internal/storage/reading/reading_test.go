package reading_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/reading"
)

const name = "q-poison"

// account is a store whose operations take time, and which counts its receives and knows the longest lease.
type account struct {
	*memory.Queues
	takes    time.Duration
	receives int
	longest  time.Duration
}

func (a *account) Receive(
	ctx context.Context, name string, limit int, lease time.Duration,
) ([]storage.Message, error) {
	a.receives++
	a.longest = max(a.longest, lease)
	advance(a.takes)
	return a.Queues.Receive(ctx, name, limit, lease)
}

func (a *account) Peek(ctx context.Context, name string, limit int) ([]storage.Message, error) {
	advance(a.takes)
	return a.Queues.Peek(ctx, name, limit)
}

// advance moves the clock of a synctest bubble.
func advance(d time.Duration) { <-time.After(d) }

// inBubble runs a test with a store that has n messages.
func inBubble(t *testing.T, n int, takes time.Duration, test func(t *testing.T, a *account)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := &account{Queues: memory.New(), takes: takes}
		if err := a.Create(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if _, err := a.Put(t.Context(), name, storage.Item{Text: fmt.Sprint(i)}); err != nil {
				t.Fatal(err)
			}
		}
		test(t, a)
	})
}

// hiddenFor returns for how long the first and the last message stay invisible.
func (a *account) hiddenFor() (first, last time.Duration) {
	all := a.All(name)
	return time.Until(all[0].NextVisibleAt), time.Until(all[len(all)-1].NextVisibleAt)
}

// seen counts the messages of a reading by id.
type seen struct {
	once, again int
	// untrue are the messages whose mark is wrong.
	untrue int
	ids    map[string]bool
}

func (s *seen) add(messages []reading.Message) {
	if s.ids == nil {
		s.ids = map[string]bool{}
	}
	for _, m := range messages {
		if m.Again {
			s.again++
		} else {
			s.once++
		}
		if m.Again != s.ids[m.ID] {
			s.untrue++
		}
		s.ids[m.ID] = true
	}
}

// TestEach checks that a reading sees each message once, and hides it only until the reading ends or for Hold longer.
func TestEach(t *testing.T) {
	const hold = 5 * time.Minute
	const slow = 500 * time.Millisecond
	for _, c := range []struct {
		name     string
		messages int
		takes    time.Duration
		// hold is that of the reading, which then selects all messages.
		hold time.Duration
		// min and max are for how long messages are hidden after the reading.
		min, max time.Duration
	}{
		{"empty", 0, 0, 0, 0, 0},
		{"one", 1, 0, 0, 0, 0},
		{"long", 5000, 0, 0, 0, 0},
		{"slow", 700, slow, 0, 0, 0},
		{"long_slow", 5000, slow, 0, 0, 10 * time.Second},
		{"whole", 700, 0, hold, hold, hold + 3*time.Second},
		{"whole_slow", 700, slow, hold, hold, hold + 5*time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, c.messages, c.takes, func(t *testing.T, a *account) {
				r := reading.Reading{Store: a, Queue: name, Total: c.messages, Hold: c.hold}
				var s seen
				began := time.Now()
				visible, err := r.Each(t.Context(), func(b reading.Batch) (int, bool, error) {
					s.add(b.Messages)
					longest := a.longest + time.Since(began)
					for _, m := range b.Messages {
						if m.NextVisibleAt.Before(b.Until) || m.NextVisibleAt.Sub(began) > longest {
							t.Errorf("hidden until %s, not from %s on for %s", m.NextVisibleAt, b.Until, a.longest)
						}
					}
					if c.hold == 0 {
						return 0, false, nil
					}
					return len(b.Messages), false, nil
				})
				reading.Wait(t.Context(), visible)
				if err != nil || s.once != c.messages || s.again+s.untrue > 0 {
					t.Errorf("seen %+v, %v", s, err)
				}
				if c.messages == 0 {
					return
				}
				if first, last := a.hiddenFor(); c.min > 0 && first < c.min || last > c.max {
					t.Errorf("hidden for %s to %s, want %s to %s", first, last, c.min, c.max)
				}
			})
		})
	}
}

// TestAgain checks that messages whose lease ends during the reading are marked, and that the reading ends.
func TestAgain(t *testing.T) {
	for _, c := range []struct {
		name   string
		total  int
		handle time.Duration
	}{
		{"slow_caller", 320, time.Minute},
		{"more_than_counted", 1, 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, 320, 0, func(t *testing.T, a *account) {
				r := reading.Reading{Store: a, Queue: name, Total: c.total}
				var s seen
				_, err := r.Each(t.Context(), func(b reading.Batch) (int, bool, error) {
					s.add(b.Messages)
					advance(c.handle)
					return 0, false, nil
				})
				if err != nil || s.once != 320 || s.again == 0 || s.untrue > 0 || a.receives > 30 {
					t.Errorf("%d receives, seen %+v, %v", a.receives, s, err)
				}
			})
		})
	}
}

// TestStop checks that a reading receives nothing more once it is told to stop.
func TestStop(t *testing.T) {
	errBroken := errors.New("broken")
	for _, c := range []struct {
		name string
		see  func(cancel func()) (stop bool, err error)
		want error
	}{
		{"stop", func(func()) (bool, error) { return true, nil }, nil},
		{"error", func(func()) (bool, error) { return false, errBroken }, errBroken},
		{"context", func(cancel func()) (bool, error) { cancel(); return false, nil }, context.Canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, 320, 0, func(t *testing.T, a *account) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r := reading.Reading{Store: a, Queue: name, Total: 320}
				var s seen
				_, err := r.Each(ctx, func(b reading.Batch) (int, bool, error) {
					s.add(b.Messages)
					stop, err := c.see(cancel)
					return 0, stop, err
				})
				if !errors.Is(err, c.want) || s.once != storage.MaxBatch {
					t.Errorf("seen %+v, %v", s, err)
				}
				visible, err := a.Queues.Peek(t.Context(), name, 1)
				if err != nil || len(visible) == 0 {
					t.Errorf("the others are not visible: %v", err)
				}
			})
		})
	}
}

func TestNoQueue(t *testing.T) {
	inBubble(t, 0, 0, func(t *testing.T, a *account) {
		r := reading.Reading{Store: a, Queue: "missing", Total: 1}
		_, err := r.Each(t.Context(), func(reading.Batch) (int, bool, error) { return 0, false, nil })
		if !errors.Is(err, storage.ErrNoQueue) {
			t.Error(err)
		}
	})
}

// TestShow checks that showing a short queue has no side effects, and that a long one is shown completely.
func TestShow(t *testing.T) {
	for messages, receives := range map[int]int{0: 0, 1: 0, storage.MaxBatch - 1: 0, storage.MaxBatch: 2, 1000: 33} {
		t.Run(fmt.Sprint(messages), func(t *testing.T) {
			inBubble(t, messages, 500*time.Millisecond, func(t *testing.T, a *account) {
				shown := map[string]int{}
				first, err := a.Peek(t.Context(), name, storage.MaxBatch)
				if err != nil {
					t.Fatal(err)
				}
				err = reading.Show(t.Context(), a, name, messages, first, func(m storage.Message) { shown[m.Text]++ })
				if err != nil || len(shown) != messages || a.receives != receives {
					t.Errorf("%d of %d are shown with %d receives, %v", len(shown), messages, a.receives, err)
				}
				for text, n := range shown {
					if n != 1 {
						t.Errorf("%s was shown %d times", text, n)
					}
				}
			})
		})
	}
}
