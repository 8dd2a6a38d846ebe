package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/observers/background"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/guard"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// outcomes delivers messages to a bench that records outcomes, and returns these.
func outcomes(t *testing.T, b *bench, contents ...string) (texts []string) {
	t.Helper()
	var kept memory.Table
	b.Outcomes = record.NewOutcomeWriter(&kept, 1<<20, zerolog.Nop())
	for _, content := range contents {
		b.deliver(content)
	}
	b.Outcomes.Close(time.Second)
	err := rows.List(t.Context(), &kept, storage.Query{}, func(row record.Outcome) error {
		if row.At.IsZero() {
			t.Errorf("row %+v", row)
		}
		text := fmt.Sprintf("%s/%s %s %s %d", row.Partition, row.ID, row.Action, row.Reason, row.Status)
		texts = append(texts, text+" at "+row.TargetHost)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

const ofRun = `,"run":"T0KEN"`

// TestOutcomes checks the row that each end of a message of a run has.
func TestOutcomes(t *testing.T) {
	answered := func(status int) decision.Outcome { return decision.Outcome{Status: status} }
	failed := func(why decision.Failure) decision.Outcome { return decision.Outcome{Failure: why} }
	const callback = `,"callback":{"url":"https://s.example/"}`
	denied := func(b *bench) { b.Guard.Deny, _ = guard.ParseDeny("target.example") }
	refusing := func(b *bench) {
		refuse := func(context.Context) error { return storage.ErrRefused }
		b.Settler = settle.New(failing{b.store, refuse}, storage.Base64)
	}
	for name, c := range map[string]struct {
		outcome decision.Outcome
		members string
		prepare func(*bench)
		want    string
	}{
		"delivered":   {answered(204), ``, nil, "r1.1.called finish delivered 204"},
		"callback":    {answered(200), callback, nil, "r1.1.called callback delivered 200"},
		"rescheduled": {answered(503), `,"attempts":4`, nil, "r1.5.called reschedule temporary_status 503"},
		"no_answer":   {failed(decision.FailureConnect), ``, nil, "r1.1.called reschedule connect 0"},
		"last_attempt": {
			answered(503), `,"deadline":"2000-01-01T00:00:02Z"`, nil, "r1.1.called dead_letter temporary_status 503",
		},
		"exhausted": {
			failed(decision.FailureConnect), `,"retry":{"schedule":["5s"],"maxAttempts":1}`, nil,
			"r1.1.called dead_letter connect 0",
		},
		"rejected":       {answered(400), ``, nil, "r1.1.called dead_letter rejected 400"},
		"reported":       {answered(400), callback, nil, "r1.1.called callback rejected 400"},
		"dropped":        {answered(400), `,"giveUp":"drop"`, nil, "r1.1.called drop rejected 400"},
		"fault":          {answered(400), `,"giveUp":"fault"`, nil, "r1.1.called fault rejected 400"},
		"interrupted":    {failed(decision.FailureInterrupted), ``, nil, "r1.1.refused reschedule interrupted 0"},
		"not_due":        {members: `,"notBefore":"2000-01-01T01:00:00Z"`, want: "r1.1.refused reschedule not_due 0"},
		"expired":        {members: `,"deadline":"1999-12-31T00:00:00Z"`, want: "r1.1.refused dead_letter expired 0"},
		"bad_policy":     {members: `,"retry":"none such"`, want: "r1.1.refused dead_letter malformed 0"},
		"moved_by_hand":  {answered(204), `,"deadLetter":{}`, nil, ""},
		"hold_mode":      {prepare: func(b *bench) { b.Hold = time.Second }, want: "r1.1.refused hold bad_setting 0"},
		"refused_target": {prepare: denied, want: "r1.1.called dead_letter target_refused 0"},
		"not_settled":    {answered(503), ``, refusing, ""},
		"host_gone":      {answered(200), ``, func(b *bench) { b.hostGone() }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, answers(c.outcome))
				if c.prepare != nil {
					c.prepare(b)
				}
				got := strings.Join(outcomes(t, b, fmt.Sprintf(plain, ofRun+c.members)), "; ")
				want := ""
				if c.want != "" {
					want = "T0KEN/" + c.want + " at target.example:8443"
				}
				if got != want {
					t.Errorf("rows %q, want %q", got, want)
				}
			})
		})
	}
}

// TestOutcomeOfTooLarge checks that a message of a run without room for its state is recorded, though it cannot be
// accepted.
func TestOutcomeOfTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, answers(decision.Outcome{Status: 200}))
		form := fmt.Sprintf(plain, ofRun+`,"callback":{"url":"https://s.example/%s"}`)
		content := fmt.Sprintf(form, strings.Repeat("x", b.Settler.MaxContentBytes()-len(form)))
		got := outcomes(t, b, content)
		if len(got) != 1 || !strings.Contains(got[0], "r1.1.refused dead_letter malformed") {
			t.Errorf("rows %q", got)
		}
	})
}

// TestOutcomeBehindTheBreaker checks that a refusal and the call of the same attempt are two rows.
func TestOutcomeBehindTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		status := 503
		b := setup(t, &target{answer: func(context.Context, *envelope.Envelope) decision.Outcome {
			return decision.Outcome{Status: status}
		}})
		var kept memory.Table
		b.Outcomes = record.NewOutcomeWriter(&kept, 1<<20, zerolog.Nop())
		for range 50 { // opens the breaker
			b.deliver(fmt.Sprintf(plain, ""))
		}
		message := fmt.Sprintf(plain, ofRun)
		b.deliver(message)
		status = 200
		<-time.After(time.Hour)
		b.deliver(message)
		b.Outcomes.Close(time.Second)
		var got []string
		err := rows.List(t.Context(), &kept, storage.Query{}, func(row record.Outcome) error {
			got = append(got, row.ID+" "+row.Reason)
			return nil
		})
		if text := fmt.Sprint(got); err != nil || text != "[r1.1.called delivered r1.1.refused target_down]" {
			t.Errorf("%s, %v", text, err)
		}
	})
}

// TestNoOutcomes checks that a message without a run costs no row, and that nothing depends on the table.
func TestNoOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, answers(decision.Outcome{Status: 200}))
		contents := []string{"{", `{"run":"x"}`}
		for _, members := range []string{"", `,"run":"two words"`, `,"run":7`} {
			contents = append(contents, fmt.Sprintf(plain, members))
		}
		if got := outcomes(t, b, contents...); len(got) > 0 {
			t.Errorf("rows %q", got)
		}
		var away memory.Table
		away.Fail(errors.New("away"))
		for _, recorder := range []*background.Writer{nil, record.NewOutcomeWriter(&away, 1<<20, zerolog.Nop())} {
			b.Outcomes = recorder
			began := time.Now()
			r := b.deliver(fmt.Sprintf(plain, ofRun))
			if !r.MayDelete() || r.Reason != decision.Delivered || time.Since(began) > 0 {
				t.Errorf("%+v after %v", r, time.Since(began))
			}
			recorder.Close(time.Second)
		}
	})
}
