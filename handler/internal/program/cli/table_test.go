package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/observers/sight"

	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/program/terminal"
)

// screen is a terminal with a width.
type screen struct {
	bytes.Buffer
	width int
}

func (s *screen) Columns() int { return s.width }

// TestNamesAt80 checks that no name of a queue or a target is cut on a terminal of 80 columns while another column
// could be, and that no row is wider.
func TestNamesAt80(t *testing.T) {
	now := time.Now()
	reasons := []account.ReasonCount{{Reason: "rejected", Count: 20}, {Reason: "certificate", Count: 12}}
	long := strings.Repeat("long-name-", 6) + "end"
	counts := &message.ScheduledGroup{}
	for name, test := range map[string]struct {
		print func(out *screen)
		whole []string
		cut   string // a part that only the whole name has
	}{
		"status": {func(out *screen) {
			printQueueStates(out, account.Status{At: now, Queues: []account.QueueStatus{
				{Queue: "async-caller-10", Messages: new(12345), Scheduled: counts, Poison: new(32), Sample: reasons},
				{Queue: "orders", Messages: new(1), Poison: new(0), Sample: reasons},
			}}, false)
		}, []string{"async-caller-10", "orders", "12,345", "rejec"}, ""},
		"status_long": {func(out *screen) {
			queues := []account.QueueStatus{{Queue: long, Messages: new(1), Poison: new(0)}}
			printQueueStates(out, account.Status{At: now, Queues: queues}, false)
		}, []string{"long-name"}, long},
		"targets": {func(out *screen) {
			printTargets(out, []account.TargetStatus{{
				ScheduledGroup: message.ScheduledGroup{Key: "crm-staging.example.com"},
				Failing:        []sight.Target{{Since: now, Cause: "certificate has expired or is not yet valid"}},
			}}, account.Status{At: now})
		}, []string{"crm-staging.example.com", "cert"}, ""},
		"settings": {func(out *screen) {
			printSettings(out, []account.Setting{{Setting: setting.Setting{
				Host: "crm-staging.example.com:8443", Member: setting.Rate, Value: "100/m", Since: now,
				By: "a-long-user-name@a-long-machine-name", Reason: "maintenance of the whole system, INC-4711",
			}, File: "1/s"}}, now)
		}, []string{"crm-staging.example.com:8443", "rate 100/m", "a-long-"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			out := &screen{width: 80}
			test.print(out)
			for _, part := range test.whole {
				if !strings.Contains(out.String(), part) {
					t.Errorf("no %q in\n%s", part, out)
				}
			}
			if test.cut != "" && strings.Contains(out.String(), test.cut) {
				t.Errorf("%q is in\n%s", test.cut, out)
			}
			for line := range strings.Lines(out.String()) {
				if terminal.DisplayWidth(strings.TrimSuffix(line, "\n")) > 80 {
					t.Errorf("wider than 80: %s", line)
				}
			}
		})
	}
}
