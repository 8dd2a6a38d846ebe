package world

import (
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var (
	first     = flag.Uint64("first", 1, "first seed")
	schedules = flag.Uint64("schedules", 20, "how many schedules are played")
	all       = flag.Bool("all", false, "go on after a schedule that breaks a promise")
	limit     = flag.Duration("for", 0, "how long schedules are played; 0 sets no limit")
)

// TestWorld plays schedules, as many at once as there are processors. It ends at the first one that breaks a promise.
func TestWorld(t *testing.T) {
	began := time.Now()
	var seed atomic.Uint64
	var players sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		players.Go(func() {
			for *limit == 0 || time.Since(began) < *limit {
				next := *first + seed.Add(1) - 1
				if next >= *first+*schedules || t.Failed() && !*all {
					return
				}
				t.Run(fmt.Sprint(next), func(t *testing.T) { play(t, next) })
			}
		})
	}
	players.Wait()
	t.Logf("%d schedules in %v", min(seed.Load(), *schedules), time.Since(began).Round(time.Millisecond))
}

// found are seeds whose schedules break a promise without a mend of the product. A change of the generator makes other
// schedules of all seeds: renew them then.
var found = []uint64{
	2,   // a row stayed after its message was delivered, if the clock of storage was another
	477, // a call that was delivered was given up when its message came back after the deadline
}

// TestFound plays them a few times.
func TestFound(t *testing.T) {
	for _, seed := range found {
		for range 3 {
			t.Run(fmt.Sprint(seed), func(t *testing.T) { play(t, seed) })
		}
	}
}

// TestMain lets the heap grow: a world is short, and its garbage is gone with it.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	m.Run()
}

func play(t *testing.T, seed uint64) {
	t.Helper()
	dir, removeAll, err := Folder()
	if err != nil {
		t.Fatal(err)
	}
	defer removeAll()
	synctest.Test(t, func(t *testing.T) {
		<-time.After(time.Hour) // a month begins with the clock of the bubble, and with it a table of the history
		w := New(NewSchedule(seed), dir)
		problems, err := w.Play()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("seed %d: %s", seed, p)
		}
		if len(problems) > 0 {
			t.Log(w.Text(200))
		}
	})
}
