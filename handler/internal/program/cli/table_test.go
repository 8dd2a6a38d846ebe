package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/program/terminal"
	"asynccaller/handler/internal/rules/envelope"
)

// screen is a terminal with a width.
type screen struct {
	bytes.Buffer
	width int
}

func (s *screen) Columns() int { return s.width }

// TestTablesFit: no row is wider than the terminal, and no name of a queue, a target or a run is cut while another
// column could be.
func TestTablesFit(t *testing.T) {
	const many = 123_456_789
	now, long := time.Now(), strings.Repeat("x", 300)
	name, old := strings.Repeat("q", 56)+"-poison", now.Add(-999*24*time.Hour)
	shown := message.Message{
		ID: "0A1B2C3D-1", Queue: name, Reason: long, Detail: long, Attempts: many, Status: 999, Since: old,
		Format: envelope.FormatNative, Method: long, Host: long, Path: long,
	}
	const requeue, undo = "20261119-120000-requeue-cccc", "20261121-115900-undo-aaaa"
	summary := func(s run.Summary) operation.RunSummary { return operation.RunSummary{Here: true, Summary: s} }
	reasons := []account.ReasonCount{{Reason: "rejected", Count: 20}, {Reason: "certificate", Count: 12}}
	for table, c := range map[string]struct {
		widths []int
		whole  []string
		print  func(out *screen)
	}{
		"list": {[]int{40, 60, 100, 200}, []string{"0a1b2c3d "}, func(out *screen) {
			out.WriteString(poisonLine(poisonTable(out), message.Recorded{Message: shown}, ""))
		}},
		"groups": {[]int{40, 60, 100, 200}, []string{" 0a1b2c3d "}, func(out *screen) {
			printGroups(out, []message.Row{{Key: long, Count: many, First: old, Last: old, Sample: shown}})
		}},
		"runs": {[]int{40, 60, 100, 200}, []string{undo + " ", requeue + " "}, func(out *screen) {
			printRuns(out, []operation.RunSummary{
				summary(run.Summary{Run: undo, At: old, Total: 3, Done: 3, State: "finished", Of: requeue}),
				summary(run.Summary{Run: requeue, At: old, Total: 100_000, State: "undone", UndoneBy: undo}),
				summary(run.Summary{Run: requeue, State: "unreadable", Problem: long}),
			}, now)
		}},
		"status": {[]int{80}, []string{"async-caller-10", "orders", "12,345", "rejec"}, func(out *screen) {
			printQueueStates(out, account.Status{At: now, Queues: []account.QueueStatus{
				{Queue: "async-caller-10", Messages: new(12345), Poison: new(32), Sample: reasons},
				{Queue: "orders", Messages: new(1), Poison: new(0), Sample: reasons},
				{Queue: name, Messages: new(1), Poison: new(0)},
			}}, false)
		}},
		"targets": {[]int{80}, []string{"crm-staging.example.com", "cert"}, func(out *screen) {
			printTargets(out, []account.TargetStatus{{
				ScheduledGroup: message.ScheduledGroup{Key: "crm-staging.example.com"},
				Failing:        []sight.Target{{Since: now, Cause: "certificate has expired or is not yet valid"}},
			}}, account.Status{At: now})
		}},
		"settings": {[]int{80}, []string{"crm-staging.example.com:8443", "rate 100/m", "a-long-"}, func(out *screen) {
			printSettings(out, []account.Setting{{Setting: setting.Setting{
				Host: "crm-staging.example.com:8443", Member: setting.Rate, Value: "100/m", Since: now,
				By: "a-long-user-name@a-long-machine-name", Reason: "maintenance of the whole system, INC-4711",
			}, File: "1/s"}}, now)
		}},
	} {
		for _, width := range c.widths {
			out := &screen{width: width}
			c.print(out)
			for line := range strings.Lines(out.String()) {
				if n := terminal.DisplayWidth(strings.TrimSuffix(line, "\n")); n > width {
					t.Errorf("%s: %d columns instead of %d: %s", table, n, width, line)
				}
			}
			for _, want := range c.whole {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%s: no %q in %d columns:\n%s", table, want, width, out)
				}
			}
		}
	}
}
