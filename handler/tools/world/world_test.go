package world

import (
	"flag"
	"fmt"
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

// TestWorld plays schedules. It ends at the first one that breaks a promise.
func TestWorld(t *testing.T) {
	began := time.Now()
	played := 0
	for seed := *first; seed < *first+*schedules && (*limit == 0 || time.Since(began) < *limit); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { play(t, seed) })
		if t.Failed() && !*all {
			return
		}
		played++
	}
	t.Logf("%d schedules in %v", played, time.Since(began).Round(time.Millisecond))
}

func play(t *testing.T, seed uint64) {
	t.Helper()
	dir, removeAll, err := Folder()
	if err != nil {
		t.Fatal(err)
	}
	defer removeAll()
	synctest.Test(t, func(t *testing.T) {
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
