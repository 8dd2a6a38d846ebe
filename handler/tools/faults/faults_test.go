package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/tools/faults/judge"
	"asynccaller/handler/tools/faults/schedule"
	"asynccaller/handler/tools/faults/target"
)

// TestContent: what is sent is what was planned, and is recognized again.
func TestContent(t *testing.T) {
	l := &lane{}
	var err error
	if l.target, err = target.Open(t.Context(), partner{l}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.target.Close() })
	l.script.forget()
	now := time.Now()
	for number := range 50 {
		for _, m := range schedule.New(1, number).Messages {
			content, err := l.content(m, now)
			if err != nil {
				t.Fatalf("%+v: %v", m, err)
			}
			l.script.add(m, content)
			if id := l.script.who(queue.Base64.Encode(content)); id != m.ID {
				t.Errorf("%+v is recognized as %q", m, id)
			}
			e, err := envelope.Parse(content)
			if (err != nil) != (m.Outcome == schedule.Malformed) {
				t.Errorf("%+v: %v", m, err)
			}
			if err != nil {
				continue
			}
			wantFormat := map[schedule.Format]envelope.Format{schedule.Native: envelope.FormatNative, schedule.Nexus: envelope.FormatNexus}[m.Format]
			if e.Format() != wantFormat || (e.Callback != nil) != (m.Callbacks != nil) || e.Deadline.Before(now) {
				t.Errorf("%+v is sent as %s", m, content)
			}
		}
	}
}

func TestScript(t *testing.T) {
	var s script
	s.forget()
	s.add(schedule.Message{ID: "m", Answers: []schedule.Word{"503", "200"}, Callbacks: []schedule.Word{"204"}}, nil)
	for call, want := range map[target.Call]schedule.Word{
		{ID: "m", Attempt: 1}:          "503",
		{ID: "m", Attempt: 2}:          "200",
		{ID: "m", Attempt: 9}:          "200",
		{ID: "m.callback", Attempt: 1}: "204",
		{ID: "x", Attempt: 1}:          "410",
	} {
		if got := s.word(call); got != want {
			t.Errorf("%+v is answered %q, want %q", call, got, want)
		}
	}

	s.arm([]schedule.Fault{{Point: schedule.BeforeCall, ID: "m", Skip: 1, Action: schedule.KillHost}})
	for n, want := range []bool{false, true, false} {
		if f := s.at(schedule.BeforeCall, "m"); (f != nil) != want {
			t.Errorf("passing %d: fault %v, want one: %v", n+1, f, want)
		}
	}
	if f := s.at(schedule.AfterCall, "m"); f != nil {
		t.Errorf("%+v strikes at another point", f)
	}
}

func TestPlanLong(t *testing.T) {
	const n = 10_000
	once, forGood := 0, 0
	for _, m := range planLong(1, n) {
		switch {
		case m.Outcome == schedule.Rejected:
			forGood++
		case len(m.Answers) == 2:
			once++
		}
	}
	if once < n*9/100 || once > n*11/100 || forGood < n/200 || forGood > n/50 {
		t.Errorf("of %d, %d fail once and %d for good", n, once, forGood)
	}
}

func TestReport(t *testing.T) {
	r := result{
		Seed: 7, Took: "1s",
		Faults: map[schedule.Action]int{schedule.KillHost: 1, schedule.KillHandler: 2},
		Memory: []sample{{At: time.Second, Resident: 20 << 20}, {At: time.Minute, Resident: 30 << 20}},
	}
	r.add(partial{verdict: judge.Verdict{
		Messages: 3, Calls: 4, RepeatedCalls: 1,
		Lost: []judge.Finding{{ID: "m", What: "gone"}}, Violations: []judge.Finding{{ID: "n", What: "odd"}},
	}})
	var out bytes.Buffer
	r.print(&out)
	for _, want := range []string{
		"seed        7\n", "messages    3\n", "lost        1\n", "unexplained 1\n", "1 (25.0 %) of calls", "3: handler killed 2, host killed 1",
		"20/20 30/30", "LOST m: gone", "UNEXPLAINED n: odd", "faults: NO",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
