package delivery_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/observers/sight"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/storage/memory"
)

// watched is a bench that records scheduled messages and targets that fail.
type watched struct {
	*bench
	scheduled, sight memory.Table
}

func watch(t *testing.T, called *target) (w *watched, closeTables func()) {
	t.Helper()
	w = &watched{bench: setup(t, called)}
	w.Record = record.NewWriter(&w.scheduled, 1<<20, zerolog.Nop())
	w.Sight = sight.New(&w.sight, "app", "instance", zerolog.Nop())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { w.Sight.Run(ctx); close(ended) }()
	return w, func() {
		stop()
		<-ended
		w.Sight.Close(time.Second)
		w.Record.Close(time.Second)
	}
}

// deliver delivers a message, and waits until its rows are written.
func (w *watched) deliver(content string) {
	w.Deliver(w.ctx, on(mainQueue, content))
	<-time.After(2 * time.Second)
	synctest.Wait()
}

// failing describes the targets that fail.
func (w *watched) failing(t *testing.T) (texts []string) {
	t.Helper()
	failing, err := sight.NewReader(&w.sight).Failing(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range failing {
		texts = append(texts, fmt.Sprintf("%s %s %s %q open %t", f.Host, f.Reason, f.Cause, f.Answer, f.IsOpen()))
	}
	return texts
}

// row returns the row of the scheduled message.
func (w *watched) row(t *testing.T) (row record.Row) {
	t.Helper()
	see := func(r record.Row) error { row = r; return nil }
	err := record.ListScheduled(t.Context(), &w.scheduled, record.Query{}, see)
	if err != nil {
		t.Fatal(err)
	}
	return row
}

// TestTargetOfOutcome: each call that the target does not answer with 2xx makes it one that fails, and no other call
// does.
func TestTargetOfOutcome(t *testing.T) {
	body := func(status int, text string) decision.Outcome {
		return decision.Outcome{
			Status: status, Body: []byte(text), Header: http.Header{"Content-Type": {"text/plain"}},
		}
	}
	for name, test := range map[string]struct {
		outcome decision.Outcome
		want    string
	}{
		"delivered": {body(200, ""), ""},
		"temporary": {body(503, "down"), `target.example:8443 temporary_status 503 "down" open false`},
		"rejected":  {body(400, "no"), `target.example:8443 rejected 400 "no" open false`},
		"timeout": {
			decision.Outcome{Failure: decision.FailureTimeout, Detail: "no answer in time"},
			`target.example:8443 timeout no answer in time "" open false`,
		},
		"certificate": {
			decision.Outcome{Failure: decision.FailureCertificate, Detail: "the certificate is for another host"},
			`target.example:8443 certificate certificate is for another host "" open false`,
		},
		"redirected": {
			decision.Outcome{Failure: decision.FailureRedirected, Status: 302, Detail: "answered 302"},
			`target.example:8443 redirected answered 302 "(empty answer)" open false`,
		},
		"broken_off": {
			decision.Outcome{Failure: decision.FailureConnection, Status: 200, Detail: "connection reset"},
			`target.example:8443 connection connection reset "" open false`,
		},
		"interrupted": {decision.Outcome{Failure: decision.FailureInterrupted}, ""},
		"bad_url":     {decision.Outcome{Failure: decision.FailureBadURL}, ""},
		"refused":     {decision.Outcome{Failure: decision.FailureTargetRefused}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, closeTables := watch(t, answers(test.outcome))
				defer closeTables()
				w.deliver(fmt.Sprintf(plain, ""))
				got := ""
				if failing := w.failing(t); len(failing) > 0 {
					got = failing[0]
				}
				if got != test.want {
					t.Errorf("got %q, want %q", got, test.want)
				}
			})
		})
	}
}

// nexusLate is a Nexus message late in its schedule, so that its next attempt is recorded.
const nexusLate = `{"Attempts":6,"CreatedAt":"1999-12-31T23:00:00+00:00","RawRequest":{"Id":"n1","CallOut":` +
	`"UE9TVCAvb3JkZXJzIEhUVFAvMS4xDQpIb3N0OiB0YXJnZXQuZXhhbXBsZTo4NDQzDQoNCng=","CallOutUriScheme":"https"}}`

// TestCauseOfWaitingMessages: a message that waits has the cause and the answer of its own attempt or, if the circuit
// breaker has refused it, those of its target.
func TestCauseOfWaitingMessages(t *testing.T) {
	for name, late := range map[string]string{
		"native": fmt.Sprintf(plain, `,"attempts":6,"nextAttemptAt":"1999-12-31T23:59:00Z"`), "nexus": nexusLate,
	} {
		t.Run(name, func(t *testing.T) { testCauseOfWaiting(t, late) })
	}
}

func testCauseOfWaiting(t *testing.T, late string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		down := decision.Outcome{Status: 503, Body: []byte("down"), Header: http.Header{"Content-Type": {"text/plain"}}}
		w, closeTables := watch(t, answers(down))
		defer closeTables()
		w.deliver(late)
		if row := w.row(t); row.Cause != "503" || row.Answer != "down" || row.Reason != "temporary_status" {
			t.Errorf("after its attempt: cause %q, answer %q, reason %s", row.Cause, row.Answer, row.Reason)
		}
		for range 5 { // until the breaker opens
			w.deliver(late)
		}
		if row := w.row(t); row.Cause != "503" || row.Answer != "down" || row.Reason != "target_down" {
			t.Errorf("refused: cause %q, answer %q, reason %s", row.Cause, row.Answer, row.Reason)
		}
		<-time.After(2 * time.Minute)
		const want = `target.example:8443 temporary_status 503 "down" open true`
		if failing := w.failing(t); len(failing) != 1 || failing[0] != want {
			t.Errorf("target %q, want %s", failing, want)
		}
	})
}
