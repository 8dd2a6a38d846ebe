package delivery_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
)

// Envelopes that the table is about. The call has something of everything, so that it can be seen to
// survive.
const (
	call = `"call":{"url":"https://user:pw@target.example:8443/orders?code=1","method":"PUT",` +
		`"headers":{"X-A":["1","2"]},"body":"<a/>"}`
	plain    = `{"asyncCaller":1,"requestId":"r1","createdAt":"2000-01-01T00:00:00Z",` + call + `%s}`
	callback = `,"callback":{"url":"https://sender.example/done","headers":{"X-Key":"k"}},"context":{"order":[42]}`
	seen503  = `,"attempts":3,"latestAttemptAt":"1999-12-31T23:59:00Z","trail":[{"at":"1999-12-31T23:59:00Z",` +
		`"status":503,"tookMs":12}]`
)

// TestSettle is the settlement table, from a message's arrival to what stands on the queues afterwards.
// Every call takes 40 ms, and no jitter is at work.
func TestSettle(t *testing.T) {
	const took = 40 * time.Millisecond
	const week = 7 * 24 * time.Hour
	answer := func(status int, body string) decision.Outcome {
		return decision.Outcome{
			Status: status, Body: []byte(body), Header: http.Header{"Content-Type": {"text/plain"}},
			Took: took,
		}
	}
	failure := func(f decision.Failure, detail string) decision.Outcome {
		return decision.Outcome{Failure: f, Detail: detail, Took: took}
	}
	successor := func(extra string) string { return fmt.Sprintf(plain, extra) }
	told := func(status int, payload, mediaType string, attempts int, reason string, at time.Duration) string {
		return fmt.Sprintf(`{"asyncCaller":1,"requestId":"r1.callback","createdAt":%q,"call":{"url":"https://sender.example/done","headers":{"X-Key":"k"},
			"json":{"Id":"r1","Context":{"order":[42]},"StatusCode":%d,"Payload":%q,"PayloadMediaType":%q,"Attempts":%d,"Reason":%q,"PayloadTruncated":false}}}`,
			clock(at), status, payload, mediaType, attempts, reason)
	}
	letter := func(reason, detail string, attempts int, at time.Duration, answer string) string {
		return fmt.Sprintf(`,"deadLetter":{"at":%q,"reason":%q,"detail":%q,"queue":"async-caller","attempts":%d%s}`,
			clock(at), reason, detail, attempts, answer)
	}
	state := func(attempts int, trail string) string {
		return fmt.Sprintf(`,"attempts":%d,"latestAttemptAt":"2000-01-01T00:00:00Z","trail":[%s]`, attempts, trail)
	}
	const (
		first500  = `{"at":"2000-01-01T00:00:00Z","status":500,"tookMs":40}`
		first400  = `{"at":"2000-01-01T00:00:00Z","status":400,"tookMs":40}`
		before503 = `{"at":"1999-12-31T23:59:00Z","status":503,"tookMs":12}`
	)

	rows := map[string]struct {
		extra   string // of the envelope, beyond a plain call
		outcome decision.Outcome

		main    string // what stands on the main queue afterwards, and for how long it is invisible
		delay   time.Duration
		poison  string // what stands on the poison queue
		settled logLine
		gaveUp  string // the error line, or empty
	}{
		// 2xx from target
		"delivered": {
			outcome: answer(201, "made"),
			settled: logLine{"action": "finish", "reason": "delivered", "attempt": 1.0, "status": 201.0, "took": 40.0},
		},
		"delivered_at_fourth": {
			extra: seen503, outcome: answer(200, ""),
			settled: logLine{"action": "finish", "reason": "delivered", "attempt": 4.0, "status": 200.0, "took": 40.0},
		},
		"delivered_with_callback": {
			extra: callback, outcome: answer(201, `made "it"`),
			main: told(201, `made "it"`, "text/plain", 1, "delivered", took),
			settled: logLine{
				"action": "callback", "reason": "delivered", "attempt": 1.0, "status": 201.0,
				"took": 40.0,
			},
		},

		// temporary failure, next attempt before deadline
		"temporary_status": {
			outcome: answer(500, "secret"),
			main:    successor(state(1, first500) + `,"nextAttemptAt":"2000-01-01T00:00:05.04Z"`),
			delay:   5 * time.Second,
			settled: logLine{
				"action": "reschedule", "reason": "temporary_status", "attempt": 1.0, "status": 500.0, "took": 40.0,
				"delay": 5000.0, "next_attempt_at": "2000-01-01T00:00:05Z", "detail": "answered 500",
			},
		},
		"temporary_timeout": {
			extra: `,"x":{"kept": 1.50}`, outcome: failure(decision.FailureTimeout, "no answer in time"),
			main: successor(`,"x":{"kept":1.50}` + state(1,
				`{"at":"2000-01-01T00:00:00Z","error":"timeout: no answer in time","tookMs":40}`) +
				`,"nextAttemptAt":"2000-01-01T00:00:05.04Z"`), delay: 5 * time.Second,
			settled: logLine{
				"action": "reschedule", "reason": "timeout", "attempt": 1.0, "took": 40.0,
				"delay": 5000.0, "next_attempt_at": "2000-01-01T00:00:05Z", "detail": "no answer in time",
			},
		},
		"temporary_own_schedule": {
			extra: seen503 + `,"retry":{"schedule":["1s","90s"]}`, outcome: answer(500, ""),
			main: successor(
				`,"retry":{"schedule":["1s","90s"]}` + state(4, before503+","+first500) +
					`,"nextAttemptAt":"2000-01-01T00:01:30.04Z"`,
			), delay: 90 * time.Second,
			settled: logLine{
				"action": "reschedule", "reason": "temporary_status", "attempt": 4.0, "status": 500.0, "took": 40.0,
				"delay": 90_000.0, "next_attempt_at": "2000-01-01T00:01:30Z", "detail": "answered 500",
			},
		},
		"temporary_keeps_callback": {
			extra: callback, outcome: answer(500, ""),
			main:  successor(callback + state(1, first500) + `,"nextAttemptAt":"2000-01-01T00:00:05.04Z"`),
			delay: 5 * time.Second,
			settled: logLine{
				"action": "reschedule", "reason": "temporary_status", "attempt": 1.0, "status": 500.0, "took": 40.0,
				"delay": 5000.0, "next_attempt_at": "2000-01-01T00:00:05Z", "detail": "answered 500",
			},
		},

		// temporary failure, the policy's next attempt would be after the deadline
		"last_attempt": {
			extra:   `,"deadline":"2000-01-01T00:00:20Z","retry":{"schedule":["1s","1h"]},"attempts":1`,
			outcome: answer(500, ""),
			main: successor(`,"deadline":"2000-01-01T00:00:20Z","retry":{"schedule":["1s","1h"]}` + state(2, first500) +
				// of 9.96 s: storage counts whole seconds
				`,"nextAttemptAt":"2000-01-01T00:00:10Z"`), delay: 10 * time.Second,
			settled: logLine{
				"action": "reschedule", "reason": "temporary_status", "attempt": 2.0, "status": 500.0, "took": 40.0,
				"delay": 9960.0, "next_attempt_at": "2000-01-01T00:00:10Z", "detail": "answered 500",
			},
		},
		"no_time_for_another": {
			extra: `,"deadline":"2000-01-01T00:00:05Z"`, outcome: answer(500, ""),
			poison: successor(
				`,"deadline":"2000-01-01T00:00:05Z"` + state(
					1,
					first500,
				) + letter(
					"expired",
					"the deadline comes before the next attempt; the last one: answered 500",
					1,
					took,
					`,"answer":{"status":500,"mediaType":"text/plain","text":""}`,
				),
			),
			settled: logLine{
				"action":  "dead_letter",
				"reason":  "expired",
				"attempt": 1.0,
				"status":  500.0,
				"took":    40.0,
				"detail":  "the deadline comes before the next attempt; the last one: answered 500",
			},
			gaveUp: "Giving up on envelope r1: the deadline comes before the next attempt; the last one: answered 500",
		},
		"no_time_for_another_with_callback": {
			extra:   callback + `,"deadline":"2000-01-01T00:00:05Z"`,
			outcome: failure(decision.FailureDNS, "the host name does not exist"),
			main:    told(504, "", "application/json", 1, "expired", took),
			settled: logLine{
				"action":  "callback",
				"reason":  "expired",
				"attempt": 1.0,
				"took":    40.0,
				"detail": "the deadline comes before the next attempt; the last one: dns: the host name does " +
					"not exist",
			},
			gaveUp: "Giving up on envelope r1: the deadline comes before the next attempt; the last one: dns: " +
				"the host name does not exist",
		},
		"attempts_used_up": {
			extra: `,"retry":{"maxAttempts":1}`, outcome: answer(500, ""),
			poison: successor(`,"retry":{"maxAttempts":1}` + state(1, first500) + letter("exhausted", "1 attempts, "+
				"the last one: answered 500", 1, took, `,"answer":{"status":500,"mediaType":"text/plain","text":""}`)),
			settled: logLine{
				"action":  "dead_letter",
				"reason":  "exhausted",
				"attempt": 1.0,
				"status":  500.0,
				"took":    40.0,
				"detail":  "1 attempts, the last one: answered 500",
			},
			gaveUp: "Giving up on envelope r1: 1 attempts, the last one: answered 500",
		},

		// permanent failure
		"rejected": {
			outcome: answer(400, "no"),
			poison: successor(state(1, first400) + letter("rejected", "answered 400", 1, took,
				`,"answer":{"status":400,"mediaType":"text/plain","text":"no"}`)),
			settled: logLine{
				"action": "dead_letter", "reason": "rejected", "attempt": 1.0, "status": 400.0,
				"took": 40.0, "detail": "answered 400",
			},
			gaveUp: "Giving up on envelope r1: answered 400",
		},
		"rejected_with_callback": {
			extra: callback + seen503, outcome: answer(400, "no"),
			main: told(400, "no", "text/plain", 4, "rejected", took),
			settled: logLine{
				"action": "callback", "reason": "rejected", "attempt": 4.0, "status": 400.0, "took": 40.0,
				"detail": "answered 400",
			},
		},
		"rejected_drop": {
			extra: `,"giveUp":"drop"`, outcome: answer(400, "no"),
			settled: logLine{
				"action": "drop", "reason": "rejected", "attempt": 1.0, "status": 400.0, "took": 40.0,
				"detail": "answered 400",
			},
			gaveUp: "Giving up on envelope r1: answered 400",
		},
		"rejected_fault": {
			extra: `,"giveUp":"fault"`, outcome: answer(400, "no"),
			settled: logLine{
				"action": "fault", "reason": "rejected", "attempt": 1.0, "status": 400.0, "took": 40.0,
				"detail": "answered 400",
			},
			gaveUp: "Giving up on envelope r1: answered 400",
		},
		"rejected_url": {
			outcome: failure(decision.FailureBadURL, "the URL cannot be called"),
			poison: successor(state(1,
				`{"at":"2000-01-01T00:00:00Z","error":"bad_url: the URL cannot be called","tookMs":40}`) +
				letter("bad_url", "the URL cannot be called", 1, took, "")),
			settled: logLine{
				"action":  "dead_letter",
				"reason":  "bad_url",
				"attempt": 1.0,
				"took":    40.0,
				"detail":  "the URL cannot be called",
			},
			gaveUp: "Giving up on envelope r1: the URL cannot be called",
		},

		// not due yet
		"early": {
			extra: seen503 + `,"nextAttemptAt":"2000-01-01T00:00:30.5Z"`,
			main:  successor(seen503 + `,"nextAttemptAt":"2000-01-01T00:00:30.5Z"`), delay: 31 * time.Second,
			settled: logLine{
				"action": "reschedule", "reason": "not_due", "status": 503.0, "delay": 30_500.0,
				"next_attempt_at": "2000-01-01T00:00:30Z",
			},
		},
		"not_before": {
			extra: `,"notBefore":"2000-01-01T12:00:00+02:00"`,
			main:  successor(`,"notBefore":"2000-01-01T12:00:00+02:00","nextAttemptAt":"2000-01-01T10:00:00Z"`),
			delay: 10 * time.Hour,
			settled: logLine{
				"action": "reschedule", "reason": "not_due", "delay": 36_000_000.0,
				"next_attempt_at": "2000-01-01T10:00:00Z",
			},
		},
		"not_before_a_month": {
			extra: `,"notBefore":"2000-01-31T00:00:00Z"`,
			main:  successor(`,"notBefore":"2000-01-31T00:00:00Z","nextAttemptAt":"2000-01-31T00:00:00Z"`),
			delay: week - time.Second,
			settled: logLine{
				"action": "reschedule", "reason": "not_due", "delay": 604_799_000.0,
				"next_attempt_at": "2000-01-31T00:00:00Z",
			},
		},

		// deadline passed on arrival
		"expired": {
			extra: `,"deadline":"2000-01-01T00:00:00Z"`,
			poison: successor(`,"deadline":"2000-01-01T00:00:00Z"` + letter("expired", "the deadline has passed",
				0, 0, "")),
			settled: logLine{"action": "dead_letter", "reason": "expired", "detail": "the deadline has passed"},
			gaveUp:  "Giving up on envelope r1: the deadline has passed",
		},
		"expired_with_callback": {
			extra: callback + seen503 + `,"deadline":"1999-12-31T23:59:59Z"`,
			main:  told(503, "", "application/json", 3, "expired", 0),
			settled: logLine{
				"action": "callback", "reason": "expired", "status": 503.0,
				"detail": "the deadline has passed",
			},
			gaveUp: "Giving up on envelope r1: the deadline has passed",
		},

		// moved back by hand: drop deadLetter, start again with a new deadline
		"moved_back": {
			extra: `,"deadline":"1999-12-01T00:00:00Z"` + seen503 + `,"nextAttemptAt":"2000-01-02T00:00:00Z"` +
				letter("expired", "x", 3, 0, `,"answer":{"status":503,"text":"busy"}`), outcome: answer(500, ""),
			main: successor(state(1, first500) + `,"nextAttemptAt":"2000-01-01T00:00:05.04Z"`), delay: 5 * time.Second,
			settled: logLine{
				"action": "reschedule", "reason": "temporary_status", "attempt": 1.0, "status": 500.0, "took": 40.0,
				"delay": 5000.0, "next_attempt_at": "2000-01-01T00:00:05Z", "detail": "answered 500",
			},
		},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, answers(row.outcome))

				result := b.deliver(fmt.Sprintf(plain, row.extra))

				if result.Err != nil {
					t.Fatal(result.Err)
				}
				if made, wanted := len(b.target.calls), row.outcome.Took > 0; (made == 1) != wanted || made > 1 {
					t.Errorf("%d calls were made", made)
				}
				b.wantQueue(t, mainQueue, row.main, row.delay)
				b.wantQueue(t, poisonQueue, row.poison, 0)

				want := logLine{
					"level": "info", "message": "settled", "request_id": "r1",
					"target_host": "target.example:8443",
				}
				maps.Copy(want, row.settled)
				b.wantSettled(t, want)
				b.wantGaveUp(t, row.gaveUp)
			})
		})
	}
}

// wantSettled checks that exactly one line tells what became of the message.
func (b *bench) wantSettled(t *testing.T, want logLine) {
	t.Helper()
	settled := b.linesWith(t, "settled")
	if len(settled) != 1 {
		t.Fatalf("want one settled line in\n%s", b.log)
	}
	delete(settled[0], "age") // TestAge
	if diff := cmp.Diff(want, settled[0]); diff != "" {
		t.Errorf("settled line (-want +got):\n%s", diff)
	}
}

// wantGaveUp checks that an error line says so when the message was given up, and only then.
func (b *bench) wantGaveUp(t *testing.T, message string) {
	t.Helper()
	lines := b.lines(t)
	at := slices.IndexFunc(lines, func(l logLine) bool { return l["level"] == "error" })
	switch {
	case message == "" && at >= 0:
		t.Errorf("nothing was given up, but the log says so:\n%s", b.log)
	case message == "":
	case at != 0 || lines[0]["message"] != message || lines[0]["request_id"] != "r1":
		t.Errorf("want a first line at error level %q in\n%s", message, b.log)
	case len(lines) != 2:
		t.Errorf("want two lines in\n%s", b.log)
	}
}

// TestPolicyThatCannotBe: the dead letter says so itself, and keeps the call.
func TestPolicyThatCannotBe(t *testing.T) {
	for retry, want := range map[string]string{
		`"often"`:                            `retry: unknown policy "often"`,
		`{"schedule":["2s","1s"]}`:           "retry.schedule[1]: 1s is shorter",
		`{"schedule":[]}`:                    "retry.schedule: the list is empty",
		`{"factor":0.5}`:                     "retry.factor: ",
		`{"baseDelay":"-1s"}`:                "retry.baseDelay: ",
		`{"baseDelay":"2h","maxDelay":"1h"}`: "retry.maxDelay: ",
	} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t, answers(decision.Outcome{Status: 200}))
			const call = `{"url":"https://t.example/", "body":"x"}`
			result := b.deliver(`{"asyncCaller":1,"requestId":"r1","call":` + call + `,"retry":` + retry + `}`)
			if result.Err != nil || len(b.target.calls) > 0 {
				t.Fatalf("%s: error %v, %d calls", retry, result.Err, len(b.target.calls))
			}
			letters := b.items(t, poisonQueue)
			if len(letters) != 1 || !strings.Contains(letters[0].content, `"call":`+call) ||
				!strings.Contains(letters[0].content, `"deadLetter":{`) ||
				!strings.Contains(letters[0].content, `"reason":"malformed"`) {
				t.Fatalf("%s: poison queue %v", retry, letters)
			}
			e, err := envelope.Parse([]byte(letters[0].content))
			if err != nil || !strings.HasPrefix(e.DeadLetter.Detail, want) {
				t.Errorf("%s: the dead letter says %q, %v; want %q", retry, e.DeadLetter.Detail, err, want)
			}
		})
	}
}

// TestMalformed: what is no envelope comes to the poison queue byte for byte, and no call is made.
func TestMalformed(t *testing.T) {
	rows := map[string]struct{ content, detail string }{
		"empty":       {"", "line 1, column 1"},
		"text":        {"hello", "line 1, column 1"},
		"not_utf8":    {"{\"a\":\"\xff\"}", "invalid UTF-8"},
		"binary":      {"\x00\x01\x02", "line 1, column 1"},
		"array":       {`[1,"two"]`, "want an object"},
		"no_marker":   {`{"call":{"url":"https://t.example/"}}`, "asyncCaller: missing"},
		"spaces_kept": {" { \"asyncCaller\" : 2 }\r\n", "asyncCaller: want 1"},
		"bad_url":     {`{"asyncCaller":1,"call":{"url":"ftp://t.example/"}}`, "call.url: "},
		"no_room_for_state": {`{"asyncCaller":1,"call":{"url":"https://t.example/","body":"` + strings.Repeat("x",
			48<<10-80) + `"}}`, "shorten it by"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, answers(decision.Outcome{Status: 200}))

				result := b.deliver(row.content)

				if result.Err != nil || len(b.target.calls) > 0 {
					t.Fatalf("error %v, %d calls", result.Err, len(b.target.calls))
				}
				b.wantQueue(t, mainQueue, "", 0)
				if diff := cmp.Diff([]item{{row.content, 0, true}}, b.items(t, poisonQueue),
					cmp.AllowUnexported(item{})); diff != "" {
					t.Errorf("poison queue (-want +got):\n%s", diff)
				}
				lines := b.lines(t)
				if len(lines) != 1 || lines[0]["message"] != "settled" || lines[0]["level"] != "error" ||
					lines[0]["action"] != "dead_letter" ||
					lines[0]["reason"] != "malformed" {
					t.Fatalf("want one settled line, dead_letter for malformed, in\n%s", b.log)
				}
				if detail, _ := lines[0]["detail"].(string); !strings.Contains(detail, row.detail) {
					t.Errorf("detail %q does not say %q", detail, row.detail)
				}
			})
		})
	}
}

// TestOperatorsGiveUp: where the envelope does not say how to give up, the setting does.
func TestOperatorsGiveUp(t *testing.T) {
	for giveUp, want := range map[envelope.GiveUp]struct {
		action decision.Action
		poison int
	}{
		envelope.GiveUpDeadLetter: {decision.DeadLetter, 1},
		envelope.GiveUpDrop:       {decision.Drop, 0},
		envelope.GiveUpFault:      {decision.Fault, 0},
	} {
		t.Run(string(giveUp), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, answers(decision.Outcome{Status: 400}))
				b.Rules.GiveUp = giveUp

				result := b.deliver(fmt.Sprintf(plain, ""))

				if result.Action != want.action || result.Err != nil {
					t.Errorf("%v, error %v; want %v", result.Action, result.Err, want.action)
				}
				if got := len(b.items(t, poisonQueue)); got != want.poison {
					t.Errorf("%d dead letters, want %d", got, want.poison)
				}
				b.wantGaveUp(t, "Giving up on envelope r1: answered 400")
			})
		})
	}
}

// TestSettleOnOwnQueue: successor, callback and dead letter stay with the message's own queue.
func TestSettleOnOwnQueue(t *testing.T) {
	const own = "async-caller-3"
	for name, row := range map[string]struct {
		extra  string
		status int
		queue  string
	}{
		"reschedule":  {"", 503, own},
		"callback":    {callback, 200, own},
		"dead_letter": {"", 400, own + "-poison"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, answers(decision.Outcome{Status: row.status}))

				result := b.Deliver(b.ctx, on(own, fmt.Sprintf(plain, row.extra)))

				if result.Err != nil {
					t.Fatal(result.Err)
				}
				if names, err := b.store.Names(t.Context(), own); err != nil ||
					!slices.Equal(names, []string{row.queue}) {
					t.Errorf("queues written: %v (%v), want %s", names, err, row.queue)
				}
				b.wantQueue(t, mainQueue, "", 0)
			})
		})
	}
}

// TestPoisonQueueItself: nothing can be dead-lettered from a poison queue, so the host must keep it.
func TestPoisonQueueItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, answers(decision.Outcome{Status: 400}))

		result := b.Deliver(b.ctx, on(poisonQueue, fmt.Sprintf(plain, "")))

		if result.Err == nil {
			t.Error("the host would delete the only copy")
		}
		if settled := b.linesWith(t, "settled"); len(settled) > 0 {
			t.Errorf("not settled, but the log says %v", settled)
		}
	})
}

// TestEncodingNone: what is written is encoded as host.json says.
func TestEncodingNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, answers(decision.Outcome{Status: 400}))
		b.Settler = settle.New(b.store, storage.None)

		if result := b.deliver("hello"); result.Err != nil {
			t.Fatal(result.Err)
		}
		if all := b.store.All(poisonQueue); len(all) != 1 || all[0].Text != "hello" {
			t.Errorf("the poison queue holds %v, want the plain text", all)
		}
	})
}
