package schedule_test

import (
	"reflect"
	"strings"
	"testing"

	"asynccaller/handler/internal/program/demo/target"
	"asynccaller/handler/tools/faults/schedule"
)

func TestNewIsReproducible(t *testing.T) {
	if !reflect.DeepEqual(schedule.New(7, 3), schedule.New(7, 3)) {
		t.Error("the same seed and number give two plans")
	}
}

// TestNew checks that everything occurs in many schedules, and that messages and faults fit together.
func TestNew(t *testing.T) {
	outcomes, nexus := map[string]int{}, map[bool]int{}
	points, actions := map[schedule.Point]int{}, map[schedule.Action]int{}
	answers := map[string]int{}
	for number := range 1000 {
		s := schedule.New(1, number)
		byID := map[string]schedule.Message{}
		for _, m := range s.Messages {
			byID[m.ID] = m
			outcomes[m.String()]++
			nexus[m.Nexus]++
			for _, a := range append(m.Answers, m.Callbacks...) {
				answers[a]++
				if _, err := target.Parse(a); err != nil {
					t.Error(err)
				}
			}
			checkMessage(t, m)
		}
		for _, f := range s.Faults {
			points[f.Point]++
			actions[f.Action]++
			m, ok := byID[strings.TrimSuffix(f.ID, schedule.CallbackSuffix)]
			if !ok || f.ID != m.ID && m.Callbacks == nil {
				t.Fatalf("%+v waits for an unknown message", f)
			}
			if (f.Action == schedule.BadDeploy) != (f.End != "") {
				t.Errorf("%+v has the end of a bad deploy, or a bad deploy has none", f)
			}
			if f.Point == schedule.AfterWrite && !m.Writes() {
				t.Errorf("%+v waits for a write that %+v does not need", f, m)
			}
		}
	}
	for what, n := range map[string][2]int{
		"outcomes": {len(outcomes), 7}, "formats": {len(nexus), 2}, "points": {len(points), 8},
		"actions": {len(actions), 17}, "answers": {len(answers), 16},
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
	status := schedule.Status(m.Answers[len(m.Answers)-1])
	want := map[schedule.Outcome]int{schedule.Rejected: 400, schedule.Expired: 503, schedule.Delivered: 200}[m.Outcome]
	if status != want && (m.Outcome != schedule.Delivered || status != 204) {
		t.Errorf("%s ends with %d: %+v", m, status, m)
	}
}
