package message_test

import (
	"testing"
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/storage"
)

func TestDueTimes(t *testing.T) {
	from := time.Date(2026, 11, 27, 10, 30, 0, 0, time.UTC)
	due := message.DueTimes{From: from}
	add := func(wait time.Duration, stale bool) {
		due.Add(message.Recorded{Row: record.Row{NextAttemptAt: from.Add(wait)}}, stale)
	}
	for _, wait := range []time.Duration{-time.Hour, 0, time.Second, time.Minute, time.Hour, 8*24*time.Hour - 1} {
		add(wait, false)
	}
	add(-time.Hour, true)
	add(8*24*time.Hour, false)
	add(storage.NeverExpires.Sub(from), false) // of a target that is paused without an end
	want := message.DueTimes{From: from, Due: 2, Later: 2}
	want.Minutes[0], want.Minutes[1] = 1, 1
	want.Hours[0], want.Hours[1], want.Hours[message.DueHours-1] = 2, 1, 1
	if due != want {
		t.Errorf("got %+v", due)
	}
}
