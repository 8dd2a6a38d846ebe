package host

import (
	"runtime"
	"testing"

	"asynccaller/handler/internal/functionapp"
)

func TestComplete(t *testing.T) {
	const limit = 5
	for name, test := range map[string]struct {
		out       outcome
		dequeues  int64
		hasPoison bool
		want      completion
	}{
		"success":                    {succeeded, 1, true, deleteMessage},
		"success_at_the_limit":       {succeeded, limit, true, deleteMessage},
		"success_without_poison":     {succeeded, 1, false, deleteMessage},
		"failure":                    {failedTry, 1, true, releaseMessage},
		"failure_below_the_limit":    {failedTry, limit - 1, true, releaseMessage},
		"failure_at_the_limit":       {failedTry, limit, true, poisonMessage},
		"failure_without_poison":     {failedTry, 1, false, leaveMessage},
		"late_failure_no_poison":     {failedTry, limit, false, leaveMessage},
		"not_invoked":                {notInvoked, 1, true, giveBack},
		"not_invoked_at_the_limit":   {notInvoked, limit, true, giveBack},
		"not_invoked_without_poison": {notInvoked, 1, false, giveBack},
	} {
		t.Run(name, func(t *testing.T) {
			if got := complete(test.out, test.dequeues, limit, test.hasPoison); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestTooOften(t *testing.T) {
	for _, test := range []struct {
		dequeues  int64
		hasPoison bool
		want      bool
	}{{1, true, false}, {5, true, false}, {6, true, true}, {6, false, false}} {
		if got := tooOften(test.dequeues, 5, test.hasPoison); got != test.want {
			t.Errorf("tooOften(%d, 5, %v) = %v", test.dequeues, test.hasPoison, got)
		}
	}
}

func TestUndecodable(t *testing.T) {
	if got := undecodable(true); got != rejectMessage {
		t.Errorf("with a poison queue: %d, want %d", got, rejectMessage)
	}
	if got := undecodable(false); got != leaveMessage {
		t.Errorf("without a poison queue: %d, want %d", got, leaveMessage)
	}
}

func TestNewRules_threshold(t *testing.T) {
	for name, test := range map[string]struct {
		batchSize, threshold int
		env                  []string
		want                 int
	}{
		"given":       {16, 8, nil, 8},
		"zero":        {1, 0, nil, 0},
		"default":     {17, -1, nil, 8 * runtime.NumCPU()},
		"consumption": {16, -1, []string{"WEBSITE_SKU=Dynamic"}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			options := functionapp.QueueOptions{BatchSize: test.batchSize, NewBatchThreshold: test.threshold}
			if got := newRules(options, defaultLease, test.env).threshold; got != test.want {
				t.Errorf("threshold %d, want %d", got, test.want)
			}
		})
	}
}
