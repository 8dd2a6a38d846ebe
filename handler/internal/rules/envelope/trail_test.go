package envelope_test

import (
	"testing"
	"time"

	"asynccaller/handler/internal/rules/envelope"
)

// TestLatestAnswerStays checks that a trail that leaves out its middle still has the latest answer, which a callback
// reports, however many attempts without an answer follow.
func TestLatestAnswerStays(t *testing.T) {
	var trail []envelope.Attempt
	for n := range 300 {
		a := envelope.Attempt{At: time.Unix(int64(n), 0).UTC(), Error: "connection refused", Took: time.Second}
		switch n {
		case 0:
			a.Status, a.Error = 503, ""
		case 20:
			a.Status, a.Error = 429, ""
		}
		trail = envelope.AppendAttempt(trail, a)
		e := envelope.Envelope{State: envelope.State{Trail: trail}}
		want := 503
		if n >= 20 {
			want = 429
		}
		if got := e.LatestStatus(); got != want {
			t.Fatalf("after %d attempts, of which %d are in the trail, the latest status is %d, want %d", n+1,
				len(trail), got, want)
		}
		if latest := trail[len(trail)-1]; !latest.At.Equal(a.At) {
			t.Fatalf("the latest of %d attempts is that at %v, want %v", n+1, latest.At, a.At)
		}
	}
}
