package doctor

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/storage"
)

func TestHeartbeats(t *testing.T) {
	now := time.Date(2026, 11, 23, 3, 0, 0, 0, time.UTC)
	beats := func(monitor, keeper time.Duration) map[string]time.Time {
		return map[string]time.Time{
			functionapp.KeeperTimer: now.Add(-keeper), "other": now,
			functionapp.MonitorTimer: now.Add(-monitor),
		}
	}
	for name, test := range map[string]struct {
		beats map[string]time.Time
		state State
		text  string
	}{
		"fresh": {
			beats(20*time.Second, 12*time.Minute), OK,
			"AC-monitor ran 20s ago, AC-poison-keeper ran 12m0s ago",
		},
		"in_time": {
			beats(3*time.Minute, 125*time.Minute), OK,
			"AC-monitor ran 3m0s ago, AC-poison-keeper ran 2h5m0s ago",
		},
		"ahead": {beats(-time.Minute, 0), OK, "AC-monitor ran 0s ago, AC-poison-keeper ran 0s ago"},
		"none":  {nil, Warning, "AC-monitor has not run yet, or cannot record that it runs"},
		"late": {
			beats(10*time.Minute, 10*time.Hour), Broken,
			"the app or its timer functions do not run: AC-monitor last ran 10m0s ago",
		},
		"late_keeper": {
			beats(time.Minute, 3*time.Hour), Broken,
			"the app or its timer functions do not run: AC-poison-keeper last ran 3h0m0s ago",
		},
		"no_keeper": {
			map[string]time.Time{functionapp.MonitorTimer: now},
			Warning,
			"AC-poison-keeper has not run yet, or cannot record that it runs",
		},
	} {
		if got := judgeHeartbeats(test.beats, now); got.State != test.state || got.Text != test.text ||
			(got.Next == "") != (test.state == OK) {
			t.Errorf("%s: %+v, want %s: %s", name, got, test.state, test.text)
		}
	}
}

func TestClock(t *testing.T) {
	for ahead, want := range map[time.Duration]State{
		0: OK, 59 * time.Second: OK, -59 * time.Second: OK, time.Minute: Warning, -14 * time.Minute: Warning,
		15 * time.Minute: Broken, -time.Hour: Broken, 1 << 62: Broken,
	} {
		if got := judgeClock(ahead); got.State != want || (got.Next == "") != (want == OK) {
			t.Errorf("%v: %+v, want %s", ahead, got, want)
		}
	}
}

func TestCountMiscoded(t *testing.T) {
	const object = `{"asyncCaller":1}`
	once := storage.Base64.Encode([]byte(object))
	twice := storage.Base64.Encode([]byte(once))
	for _, test := range []struct {
		encoding storage.Encoding
		text     string
		want     int
	}{
		{storage.Base64, once, 0},
		{storage.Base64, " " + once + "\r\n", 0},
		{storage.Base64, object, 1},
		{storage.Base64, twice, 1},
		{storage.Base64, "", 0},
		{storage.Base64, storage.Base64.Encode([]byte("no object, which is for the handler to say")), 0},
		{storage.None, object, 0},
		{storage.None, once, 1},
		{storage.None, "ping", 0}, // is base64, by accident
	} {
		if got := countWronglyEncoded(test.encoding, []storage.Message{{Text: test.text}}); got != test.want {
			t.Errorf("%s %q: %d, want %d", test.encoding, test.text, got, test.want)
		}
	}
}

// TestProblems checks that each problem of a joined error is a line of its own.
func TestProblems(t *testing.T) {
	var lines []Line
	Reporter(func(l Line) { lines = append(lines, l) }).
		problems("settings", errors.Join(errors.New("one"), fmt.Errorf("two: %w", storage.ErrRefused)), "next", "fine")
	if want := []Line{
		{Broken, "settings", "one", "next"},
		{Broken, "settings", "two: storage refused", "next"},
	}; !slices.Equal(lines, want) {
		t.Errorf("%+v, want %+v", lines, want)
	}
}
