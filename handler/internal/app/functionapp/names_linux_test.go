package functionapp_test

import (
	"testing"

	"asynccaller/handler/internal/app/functionapp"
)

// TestNamesThatDifferInCase is about folders that file systems of other platforms cannot have side by side.
func TestNamesThatDifferInCase(t *testing.T) {
	for name, row := range map[string]struct {
		files files
		want  string
	}{
		"queue_and_timer": {
			files{"WORK/function.json": function(validTimer)}, "functions Work and WORK differ only in case",
		},
		"two_timers": {
			files{"Clock/function.json": function(validTimer), "clock/function.json": function(validTimer)},
			"functions Clock and clock differ only in case",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := functionapp.Load(app(row.files).write(t), nil)
			wantProblem(t, err, row.want)
		})
	}
}
