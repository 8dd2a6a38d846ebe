package schedule_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/tools/faults/schedule"
)

func TestNew_sameSeedSamePlan(t *testing.T) {
	if !reflect.DeepEqual(schedule.New(7, 3), schedule.New(7, 3)) {
		t.Error("the same seed and number give two plans")
	}
	if reflect.DeepEqual(schedule.New(7, 3), schedule.New(8, 3)) || reflect.DeepEqual(schedule.New(7, 3), schedule.New(7, 4)) {
		t.Error("another seed or number gives the same plan")
	}
}

// TestNew: over many schedules everything that is planned for occurs, and makes sense.
func TestNew(t *testing.T) {
	outcomes, formats := map[schedule.Outcome]int{}, map[schedule.Format]int{}
	points, actions := map[schedule.Point]int{}, map[schedule.Action]int{}
	words := map[schedule.Word]int{}
	for number := range 1000 {
		s := schedule.New(1, number)
		byID := map[string]schedule.Message{}
		for _, m := range s.Messages {
			byID[m.ID] = m
			outcomes[m.Outcome]++
			formats[m.Format]++
			for _, w := range append(m.Answers, m.Callbacks...) {
				words[w]++
			}
			checkMessage(t, m)
		}
		for _, f := range s.Faults {
			points[f.Point]++
			actions[f.Action]++
			m, ok := byID[strings.TrimSuffix(f.ID, schedule.CallbackSuffix)]
			if !ok || f.ID != m.ID && m.Callbacks == nil {
				t.Fatalf("%+v strikes nobody", f)
			}
			if f.Point == schedule.AfterWrite && !m.Writes() {
				t.Errorf("%+v waits for a write that %+v does not need", f, m)
			}
		}
	}
	for what, n := range map[string][2]int{
		"outcomes": {len(outcomes), 7}, "formats": {len(formats), 2}, "points": {len(points), 8}, "actions": {len(actions), 16}, "words": {len(words), 16},
	} {
		if n[0] != n[1] {
			t.Errorf("%d %s of %d occur", n[0], what, n[1])
		}
	}
}

func checkMessage(t *testing.T, m schedule.Message) {
	t.Helper()
	if m.Outcome == schedule.Malformed {
		return
	}
	status, want := m.Answers[len(m.Answers)-1].Status(), 200
	switch m.Outcome {
	case schedule.Rejected, schedule.ToldRejected:
		want = 400
	case schedule.Expired, schedule.ToldExpired:
		want = 503
	case schedule.Delivered, schedule.ToldOK, schedule.Malformed:
		if status == 204 {
			want = 204
		}
	}
	if status != want {
		t.Errorf("%s ends with %d: %+v", m.Outcome, status, m)
	}
}

// TestOutage: storage is away for longer than the minute that a settle write is tried.
func TestOutage(t *testing.T) {
	s := schedule.Outage(1, 0)
	if len(s.Faults) != 1 || s.Faults[0].For <= time.Minute || s.Faults[0].ID != s.Messages[0].ID || !s.Messages[0].Writes() {
		t.Errorf("outage %+v of %+v", s.Faults, s.Messages[0])
	}
}
