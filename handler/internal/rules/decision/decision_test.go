package decision_test

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/retry"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
)

var (
	now     = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	created = now.Add(-time.Hour)
)

// Shapes of envelopes that the table is about.
const (
	plain = `{"asyncCaller":1,"requestId":"r1","createdAt":"2026-01-31T11:00:00Z",` +
		`"call":{"url":"https://target.example/"}%s}`
	withCallback = `,"callback":{"url":"https://sender.example/"}`
	nearDeadline = `,"deadline":"2026-01-31T12:00:02Z"`
	past         = `,"deadline":"2026-01-31T11:59:59Z"`
	answered503  = `,"attempts":3,"trail":[{"at":"2026-01-31T11:30:00Z","status":503,"tookMs":12}]`
)

// TestSettlementTable is the settlement table: the message and the outcome of its call on the left, the
// decision on the right. The policy is the default one, without jitter.
func TestSettlementTable(t *testing.T) {
	type outcome = decision.Outcome
	type row struct {
		envelope string  // beyond a plain call
		outcome  outcome // of the call, if one is made

		action   decision.Action
		reason   decision.Reason
		delay    time.Duration
		attempts int
		status   int
		givenUp  bool
	}
	const (
		again, done, letter = decision.Reschedule, decision.Finish, decision.DeadLetter
		callback            = decision.Callback
		retried, s, week    = decision.Status, time.Second, 7 * 24 * time.Hour
		last                = `,"attempts":2,"retry":{"maxAttempts":3}`
		only                = `,"retry":{"maxAttempts":1}`
	)
	answer := func(status int) outcome { return outcome{Status: status} }
	failure := func(f decision.Failure) outcome { return outcome{Failure: f} }
	cut := func(status int) outcome {
		return outcome{Status: status, Failure: decision.FailureConnection, Body: []byte("half"), Truncated: true}
	}
	nexus := func(status int, meaningful bool) outcome {
		body := fmt.Appendf(nil, `{"Type":"Xlent.Fulcrum.Conflict","IsRetryMeaningful":%v}`, meaningful)
		return outcome{Status: status, Body: body}
	}
	unauthorized := outcome{Failure: decision.FailureAuth, Status: 401}
	redirected := outcome{Failure: decision.FailureRedirected, Status: 302}
	asking := func(o outcome, wait string) outcome {
		o.Header = http.Header{"Retry-After": {wait}}
		return o
	}
	interrupted := failure(decision.FailureInterrupted)
	for name, row := range map[string]row{
		// 2xx from target
		"delivered":               {``, answer(200), done, decision.Delivered, 0, 1, 200, false},
		"delivered_208":           {``, answer(208), done, decision.Delivered, 0, 1, 208, false},
		"delivered_with_callback": {withCallback, answer(201), callback, decision.Delivered, 0, 1, 201, false},
		"delivered_at_fourth":     {answered503, answer(200), done, decision.Delivered, 0, 4, 200, false},
		"delivered_beats_clock":   {nearDeadline, answer(200), done, decision.Delivered, 0, 1, 200, false},

		// temporary failure, next attempt before deadline; TestDefaultStatuses has the statuses
		"status_500":        {``, answer(500), again, retried, 4 * s, 1, 500, false},
		"status_503_fourth": {answered503, answer(503), again, retried, 32 * s, 4, 503, false},
		"timeout":           {``, failure(decision.FailureTimeout), again, "timeout", 4 * s, 1, 0, false},
		"no_such_host":      {``, failure(decision.FailureDNS), again, "dns", 4 * s, 1, 0, false},
		"refused":           {``, failure(decision.FailureConnect), again, "connect", 4 * s, 1, 0, false},
		"handshake":         {``, failure(decision.FailureTLS), again, "tls", 4 * s, 1, 0, false},
		"reset":             {``, failure(decision.FailureConnection), again, "connection", 4 * s, 1, 0, false},
		"certificate":       {``, failure(decision.FailureCertificate), again, "certificate", 4 * s, 1, 0, false},
		"cut_2xx":           {withCallback, cut(200), again, "connection", 4 * s, 1, 200, false},
		"cut_400":           {``, cut(400), again, "connection", 4 * s, 1, 400, false},
		"nexus_says_retry":  {``, nexus(400, true), again, retried, 4 * s, 1, 400, false},
		"callback_waits":    {withCallback, answer(500), again, retried, 4 * s, 1, 500, false},
		"own_schedule": {
			`,"attempts":1,"retry":{"schedule":["1s","90s"]}`, answer(500), again, retried, 90 * s, 2, 500, false,
		},
		"one_attempt_left": {`,"attempts":1,"retry":{"maxAttempts":3}`, answer(500), again, retried, 8 * s, 2, 500, false},
		"most_attempts":    {`,"attempts":2147483647`, answer(500), again, retried, 17280 * s, 2147483647, 500, false},

		// no token, or one that the target refuses
		"token_refused":         {``, unauthorized, again, decision.Auth, time.Minute, 1, 401, false},
		"token_refused_later":   {`,"attempts":6`, unauthorized, again, decision.Auth, 256 * s, 7, 401, false},
		"token_refused_asks":    {``, asking(unauthorized, "90"), again, decision.Auth, 90 * s, 1, 401, false},
		"token_refused_at_last": {only, unauthorized, letter, decision.Exhausted, 0, 1, 401, true},
		"no_token":              {``, failure(decision.FailureAuth), again, decision.Auth, 4 * s, 1, 0, false},

		// temporary failure, the policy's next attempt would be after the deadline
		"last_attempt": {
			`,"attempts":9,"deadline":"2026-01-31T12:01:00Z"`, answer(500), again, retried, 50 * s, 10, 500, false,
		},
		"no_time":            {nearDeadline, answer(500), letter, decision.Expired, 0, 1, 500, true},
		"no_time_callback":   {nearDeadline + withCallback, answer(500), callback, decision.Expired, 0, 1, 500, true},
		"no_time_no_answer":  {nearDeadline + answered503, failure(decision.FailureTimeout), letter, decision.Expired, 0, 4, 503, true},
		"no_attempts_left":   {last, answer(500), letter, decision.Exhausted, 0, 3, 500, true},
		"none_left_callback": {last + withCallback, answer(500), callback, decision.Exhausted, 0, 3, 500, true},
		"cut_2xx_at_last":    {only + withCallback, cut(200), callback, decision.Exhausted, 0, 1, 0, true},

		// permanent failure
		"status_400":             {``, answer(400), letter, decision.Rejected, 0, 1, 400, true},
		"status_304":             {``, answer(304), letter, decision.Rejected, 0, 1, 304, true},
		"nexus_says_never":       {``, nexus(500, false), letter, decision.Rejected, 0, 1, 500, true},
		"rejected_with_callback": {withCallback, answer(400), callback, decision.Rejected, 0, 1, 400, false},
		"redirected":             {``, redirected, letter, "redirected", 0, 1, 302, true},
		"redirected_later":       {``, asking(redirected, "120"), again, "redirected", 120 * s, 1, 302, false},
		"redirected_unreadable":  {``, asking(redirected, "soon"), letter, "redirected", 0, 1, 302, true},
		"bad_url":                {``, failure(decision.FailureBadURL), letter, "bad_url", 0, 1, 0, true},
		"target_refused":         {``, failure(decision.FailureTargetRefused), letter, "target_refused", 0, 1, 0, true},
		"sender_wants_drop":      {`,"giveUp":"drop"`, answer(400), decision.Drop, decision.Rejected, 0, 1, 400, true},
		"sender_wants_fault":     {`,"giveUp":"fault"`, answer(400), decision.Fault, decision.Rejected, 0, 1, 400, true},
		"callback_before_drop": {
			`,"giveUp":"drop"` + withCallback, answer(400), callback, decision.Rejected, 0, 1, 400, false,
		},

		// not due yet
		"not_due": {
			`,"attempts":2,"nextAttemptAt":"2026-01-31T12:00:30Z"`, answer(200),
			again, decision.NotDue, 30 * s, 2, 0, false,
		},
		"not_before": {
			`,"notBefore":"2026-01-31T13:00:00Z"`, answer(200), again, decision.NotDue, time.Hour, 0, 0, false,
		},
		"not_before_a_month": {
			`,"notBefore":"2026-03-02T12:00:00Z"`, answer(200), again, decision.NotDue, week - s, 0, 0, false,
		},
		"due_now": {`,"notBefore":"2026-01-31T12:00:00Z"`, answer(200), done, decision.Delivered, 0, 1, 200, false},

		// deadline passed on arrival
		"expired":                  {past, answer(200), letter, decision.Expired, 0, 0, 0, true},
		"expired_with_callback":    {past + withCallback, answer(200), callback, decision.Expired, 0, 0, 0, true},
		"expired_knows_the_status": {past + answered503, answer(200), letter, decision.Expired, 0, 3, 503, true},
		"expired_drop":             {past + `,"giveUp":"drop"`, answer(200), decision.Drop, decision.Expired, 0, 0, 0, true},

		// handler is stopping, call interrupted
		"interrupted":          {answered503, interrupted, again, decision.Interrupted, 10 * s, 3, 503, false},
		"interrupted_callback": {withCallback, interrupted, again, decision.Interrupted, 10 * s, 0, 0, false},
		"interrupted_late": {
			`,"deadline":"2026-01-31T12:00:08Z"`, interrupted, again, decision.Interrupted, 6 * s, 0, 0, false,
		},
		"interrupted_at_deadline": {nearDeadline, interrupted, again, decision.Interrupted, s, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := decide(t, rules(), fmt.Sprintf(plain, row.envelope), row.outcome, 0)
			got := row
			got.action, got.reason, got.delay = d.Action, d.Reason, d.Delay
			got.attempts, got.status, got.givenUp = d.State.Attempts, d.Status, d.GivenUp
			if diff := cmp.Diff(row, got, cmp.AllowUnexported(row)); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRefuse: a message that has no slot, or whose target is down or paused, comes back before its deadline as long as
// there is time, without an attempt. A paused one comes back when the pause ends, within ten minutes.
func TestRefuse(t *testing.T) {
	const s, minute, days = time.Second, time.Minute, 100 * time.Hour
	busy := func(delay time.Duration) *decision.Refusal {
		return &decision.Refusal{Reason: decision.Busy, Detail: "share", Delay: delay}
	}
	paused := func(pause time.Duration, jitter float64) *decision.Refusal {
		return decision.PausedUntil(now.Add(pause), now, jitter)
	}
	forever := func(jitter float64) *decision.Refusal { return decision.PausedUntil(time.Time{}, now, jitter) }
	for name, row := range map[string]struct {
		refusal *decision.Refusal
		left    time.Duration
		jitter  float64
		want    time.Duration // 0: given up
	}{
		"turn_comes_in_time":     {busy(minute), time.Hour, 0, minute},
		"turn_comes_late":        {busy(time.Hour), minute, 0, 50 * s},
		"before_last_attempt":    {busy(minute), 10*s + 1, 0, 1},
		"after_last_attempt":     {busy(minute), 9 * s, 0, s},
		"spread":                 {busy(minute), 9 * s, 0.5, 1500 * time.Millisecond},
		"short_turn":             {busy(4 * s), 9 * s, 0, s},
		"soon_enough":            {busy(0), 3200 * time.Millisecond, 0.9, 1200 * time.Millisecond},
		"once_more":              {busy(0), 2 * s, 0.9, s},
		"no_time":                {busy(minute), s, 0, 0},
		"deadline_while_decided": {busy(minute), -s, 0, 0},

		"paused":             {forever(0), days, 0, 8 * minute},
		"paused_spread":      {forever(0.999), days, 0.999, 8*minute + 119880*time.Millisecond},
		"long":               {paused(2*time.Hour, 0), days, 0, 8 * minute},
		"short":              {paused(minute, 0), days, 0, minute},
		"short_spread":       {paused(minute, 0.5), days, 0.5, 67500 * time.Millisecond},
		"over_in_a_moment":   {paused(1, 0), time.Hour, 0, s},
		"deadline_first":     {paused(time.Hour, 0), 5 * minute, 0, 5*minute - 10*s},
		"end_just_before":    {paused(4*minute, 0.5), 4*minute + 11*s, 0.5, 4*minute + s},
		"last_seconds":       {forever(0), 9 * s, 0, s},
		"last_second":        {forever(0), s, 0, 0},
		"ends_with_deadline": {paused(s, 0), s, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			deadline := now.Add(row.left).Format(time.RFC3339Nano)
			in := rules().Open(fmt.Appendf(nil, plain, `,"attempts":2,"deadline":"`+deadline+`"`), "id", limit, now)
			d := rules().Decide(&in, &decision.Verdict{Refusal: row.refusal}, world(row.jitter))
			action, reason, detail := decision.Reschedule, row.refusal.Reason, d.Detail
			if row.want == 0 {
				action, reason, detail = decision.DeadLetter, decision.Expired, string(row.refusal.Reason)
			}
			if d.Action != action || d.Reason != reason || d.Delay != row.want || d.State.Attempts != 2 ||
				d.GivenUp != (row.want == 0) || d.Detail != detail {
				t.Errorf("%+v, want %s for %s in %v", d, action, reason, row.want)
			}
		})
	}
}

// TestNotice: the longer the app needs to notice a message, the earlier it becomes due before its deadline.
func TestNotice(t *testing.T) {
	unavailable := decision.Outcome{Status: 503, Header: header("Retry-After: 3600")}
	interrupted := decision.Outcome{Failure: decision.FailureInterrupted}
	for name, row := range map[string]struct {
		outcome      decision.Outcome
		left         time.Duration
		host, worker time.Duration
	}{
		"last_attempt":     {unavailable, 10 * time.Minute, 590 * time.Second, 560 * time.Second},
		"handed_back":      {interrupted, 10 * time.Minute, 10 * time.Second, 10 * time.Second},
		"handed_back_late": {interrupted, 40 * time.Second, 10 * time.Second, 8 * time.Second},
		"handed_back_last": {interrupted, 5 * time.Second, 3 * time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			deadline := now.Add(row.left)
			for notice, want := range map[time.Duration]time.Duration{
				0: row.host, decision.HostNotice: row.host, 32 * time.Second: row.worker,
			} {
				r := rules()
				r.Notice = notice
				content := fmt.Sprintf(plain, `,"deadline":"`+deadline.Format(time.RFC3339Nano)+`"`)
				if d := decide(t, r, content, row.outcome, 0); d.Action != decision.Reschedule || d.Delay != want {
					t.Errorf("notice %v: %s after %v, want %v", notice, d.Action, d.Delay, want)
				}
			}
		})
	}
}

// TestHold: a held message comes back unchanged, whatever it is, and not before it is due.
func TestHold(t *testing.T) {
	at := func(due string) string { return fmt.Sprintf(plain, `,"nextAttemptAt":"`+due+`"`) }
	for name, row := range map[string]struct {
		content  string
		min, max time.Duration
	}{
		"due":               {fmt.Sprintf(plain, ``), 4 * time.Minute, 6 * time.Minute},
		"due_soon":          {at("2026-01-31T12:03:00Z"), 4 * time.Minute, 6 * time.Minute},
		"due_later":         {at("2026-01-31T13:00:00Z"), time.Hour, time.Hour},
		"not_before_later":  {fmt.Sprintf(plain, `,"notBefore":"2026-01-31T13:00:00Z"`), time.Hour, time.Hour},
		"expired":           {fmt.Sprintf(plain, past), 4 * time.Minute, 6 * time.Minute},
		"unknown_policy":    {at(`2026-01-31T13:00:00Z","retry":"ours`), time.Hour, time.Hour},
		"not_an_envelope":   {`{"asyncCaller":1,"call":{}}`, 4 * time.Minute, 6 * time.Minute},
		"not_even_json":     {"\x00\xff", 4 * time.Minute, 6 * time.Minute},
		"longer_than_queue": {at("9999-12-31T23:59:59Z"), storage.MaxDelay, storage.MaxDelay},
	} {
		t.Run(name, func(t *testing.T) {
			in := rules().Open([]byte(row.content), "m1", limit, now)
			for jitter, want := range map[float64]time.Duration{0: row.min, 1: row.max} {
				held := world(jitter)
				held.Hold = true
				d := rules().Decide(&in, nil, held)
				w := rules().Compose(in, d, "async-caller", now)
				if d.Action != decision.Hold || d.Reason != decision.BadSetting || string(w.Content) != row.content ||
					w.Queue != "async-caller" || w.Delay != want {
					t.Errorf("%s for %s: %q to %q in %v, want the same content in %v", d.Action, d.Reason, w.Content,
						w.Queue, w.Delay, want)
				}
			}
		})
	}
}

// TestProfilesPolicy: a profile's policy applies if the envelope asks for none.
func TestProfilesPolicy(t *testing.T) {
	r := rules()
	r.Limits = retry.Limits{MinDelay: time.Minute, MaxDelay: 2 * time.Minute, MaxAttempts: 2}
	var err error
	r.Profiles, err = targets.Parse([]byte(`{"target.example":{"retry":{"schedule":["30s","1h"],"maxAttempts":9}},`+
		`"*":{"timeout":"5s"}}`), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		content                string
		policy                 string
		attempts               int
		firstDelay, afterThree time.Duration
	}{
		// as for the setting, only the shortest delay is limited
		"profile":  {fmt.Sprintf(plain, ``), "list", 9, time.Minute, time.Hour},
		"envelope": {fmt.Sprintf(plain, `,"retry":{"schedule":["1h"]}`), "list", 2, 2 * time.Minute, 2 * time.Minute},
		"other_target": {
			strings.Replace(fmt.Sprintf(plain, ``), "target.example", "other.example", 1), "exponential",
			0, 4 * time.Second, 16 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := accepted(t, r, row.content).Policy
			if p.Name != row.policy || p.MaxAttempts != row.attempts || p.Delay(1, 0) != row.firstDelay ||
				p.Delay(3, 0) != row.afterThree {
				t.Errorf("policy %s, %d attempts, %v after the first and %v after the third", p.Name, p.MaxAttempts,
					p.Delay(1, 0), p.Delay(3, 0))
			}
		})
	}
}

// TestMalformedPolicy: an envelope with a wrong retry policy is kept, so that its dead letter can say why.
func TestMalformedPolicy(t *testing.T) {
	for value, want := range map[string]string{
		`{"factr":2}`:                "retry.factr: unknown parameter",
		`{"schedule":["1s","x"]}`:    "retry.schedule[1]: want a duration",
		`3`:                          "retry: want a policy's name",
		`{"policy":"io","factor":2}`: "retry.factor: unknown parameter of policy io",
	} {
		in := rules().Open(fmt.Appendf(nil, plain, `,"attempts":2,"retry":`+value), "m1", limit, now)
		d := rules().Decide(&in, nil, world(0))
		if d.Reason != decision.Malformed || d.State.Attempts != 2 || in.Envelope == nil ||
			!strings.HasPrefix(d.Detail, want) {
			t.Errorf("%s: %+v, want %s", value, d, want)
		}
	}
}

func TestOperatorChoosesHowToGiveUp(t *testing.T) {
	for giveUp, want := range map[envelope.GiveUp]decision.Action{
		envelope.GiveUpDeadLetter: decision.DeadLetter,
		envelope.GiveUpDrop:       decision.Drop,
		envelope.GiveUpFault:      decision.Fault,
	} {
		r := rules()
		r.GiveUp = giveUp
		for members, want := range map[string]decision.Action{"": want, `,"giveUp":"drop"`: decision.Drop} {
			d := decide(t, r, fmt.Sprintf(plain, members), decision.Outcome{Status: 400}, 0)
			if d.Action != want {
				t.Errorf("%s, envelope with %s: action %s, want %s", giveUp, members, d.Action, want)
			}
		}
	}
}

func TestStateAfterACall(t *testing.T) {
	timeout := decision.Outcome{Failure: decision.FailureTimeout, Detail: "no answer in time", Took: 2 * time.Minute}
	d := decide(t, rules(), fmt.Sprintf(plain, answered503), timeout, 0)
	want := envelope.State{
		Attempts:        4,
		CreatedAt:       created,
		LatestAttemptAt: now.Add(-2 * time.Minute),
		NextAttemptAt:   now.Add(32 * time.Second),
		Expires:         created.Add(rules().Expiration),
		Trail: []envelope.Attempt{
			{At: now.Add(-30 * time.Minute), Status: 503, Took: 12 * time.Millisecond},
			{At: now.Add(-2 * time.Minute), Error: "timeout: no answer in time", Took: 2 * time.Minute},
		},
	}
	if diff := cmp.Diff(want, d.State); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
}

func TestReportTellsTheSender(t *testing.T) {
	outcome := decision.Outcome{
		Status: 400, Body: []byte("no such order"),
		Header: http.Header{"Content-Type": {"text/plain"}}, Truncated: true,
	}
	d := decide(t, rules(), fmt.Sprintf(plain, withCallback), outcome, 0)
	want := envelope.Report{
		Status: 400, Payload: "no such order", MediaType: "text/plain", Truncated: true, Attempts: 1,
		Reason: "rejected",
		At:     now, Deadline: now.Add(rules().Expiration),
	}
	if diff := cmp.Diff(want, rules().Report(d, now), cmpopts.IgnoreUnexported(envelope.Report{})); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

// TestReportOfTheLatestAnswer: the report has the latest answer, also if the last calls got none, and 504 if there was
// none. A 2xx that broke off is not an answer: a sender who reads only the status must not take a call that was given
// up for a delivered one.
func TestReportOfTheLatestAnswer(t *testing.T) {
	cut := decision.Outcome{
		Status: 200, Failure: decision.FailureConnection, Detail: "cut", Body: []byte("half"), Truncated: true,
	}
	busy := decision.Outcome{Status: 503, Body: []byte("busy")}
	cutInTrail := strings.Replace(answered503, "503", "200", 1)
	for name, c := range map[string]struct {
		members string
		calls   []decision.Outcome
		status  int
		payload string
	}{
		"no_call":                 {past, nil, 504, ""},
		"the_only_answer":         {`,"retry":{"maxAttempts":1}`, []decision.Outcome{cut}, 504, ""},
		"known_from_the_trail":    {past + cutInTrail, nil, 504, ""},
		"after_an_answer":         {answered503 + `,"retry":{"maxAttempts":4}`, []decision.Outcome{cut}, 503, ""},
		"after_an_answer_in_hand": {`,"retry":{"maxAttempts":2}`, []decision.Outcome{busy, cut}, 503, "busy"},
		"after_no_answer": {
			`,"retry":{"maxAttempts":2}`, []decision.Outcome{busy, {Failure: decision.FailureDNS}}, 503, "busy",
		},
	} {
		in := accepted(t, rules(), fmt.Sprintf(plain, withCallback+c.members))
		d := rules().Decide(&in, nil, world(0))
		for _, call := range c.calls {
			d = ended(in, call, 0)
			in.Envelope = in.Envelope.WithState(d.State)
		}
		got := rules().Report(d, now)
		if got.Status != c.status || got.Payload != c.payload || got.Truncated || !d.GivenUp {
			t.Errorf("%s: the sender is told %+v, want %d %q", name, got, c.status, c.payload)
		}
	}
	long := decision.Outcome{Status: 200, Body: []byte("the beginning"), Truncated: true}
	d := decide(t, rules(), fmt.Sprintf(plain, withCallback), long, 0)
	if got := rules().Report(d, now); got.Status != 200 || !got.Truncated {
		t.Errorf("a long answer that was delivered is reported as %+v", got)
	}
}

// TestNoReasonIsTooLong: a longer one would break the promise that an accepted envelope always fits.
func TestNoReasonIsTooLong(t *testing.T) {
	for _, reason := range []decision.Reason{
		decision.Delivered, decision.Status, decision.NotDue, decision.Interrupted, decision.Rejected, decision.Expired,
		decision.Exhausted, decision.Malformed, decision.BadSetting,
		decision.HostGone, decision.Busy, decision.TargetDown, decision.Auth, decision.Paused,
		decision.Reason(decision.FailureRedirected),
		decision.Reason(decision.FailureCertificate),
		decision.Reason(decision.FailureTargetRefused),
	} {
		if len(reason) > 16 {
			t.Errorf("%q has %d characters", reason, len(reason))
		}
	}
}

// FuzzDecide checks the properties of decisions that the rest of the program relies on.
func FuzzDecide(f *testing.F) {
	f.Add(0, 500, 0, "", int64(0), int64(3600), 0.5)
	f.Add(7, 200, 0, "", int64(-10), int64(20), 0.0)
	f.Add(1<<30, 0, 30, "timeout", int64(1<<40), int64(math.MaxInt64), 0.999)
	f.Fuzz(func(t *testing.T, attempts, status, maxAttempts int, failure string, due, deadline int64, jitter float64) {
		if jitter < 0 || jitter >= 1 || math.IsNaN(jitter) || attempts < 0 || maxAttempts < 0 {
			return // outside the contract of the arguments
		}
		e := &envelope.Envelope{}
		e.Attempts, e.CreatedAt = attempts, created
		e.NextAttemptAt, e.Deadline = time.Unix(due, 0), time.Unix(deadline, 0)
		policy := retry.Default()
		policy.MaxAttempts = maxAttempts
		in := decision.Intake{Envelope: e, Policy: policy}
		d := rules().Decide(&in, nil, world(0))
		if d.Action == decision.Call {
			d = ended(in, decision.Outcome{Status: status, Failure: decision.Failure(failure)}, jitter)
		}
		checkInvariants(t, e, d)
	})
}

func checkInvariants(t *testing.T, e *envelope.Envelope, d decision.Decision) {
	t.Helper()
	switch d.Action {
	case decision.Reschedule:
		if d.Delay < 0 || d.Delay > storage.MaxDelay {
			t.Errorf("delay %v is outside what a queue takes", d.Delay)
		}
		if d.GivenUp {
			t.Error("given up and rescheduled")
		}
	case decision.Callback:
		if e.Callback == nil {
			t.Error("a callback that nobody asked for")
		}
	case decision.DeadLetter, decision.Drop, decision.Fault:
		if !d.GivenUp {
			t.Errorf("%s without giving up", d.Action)
		}
	case decision.Finish:
		if d.Status/100 != 2 {
			t.Errorf("finished with status %d and nobody told", d.Status)
		}
	case decision.Call, decision.Hold, decision.Release:
		t.Errorf("%s is no end", d.Action)
	}
	if d.State.Attempts < e.Attempts {
		t.Errorf("attempts fell from %d to %d", e.Attempts, d.State.Attempts)
	}
	if d.Reason == "" || strings.Contains(d.Detail, "%!") {
		t.Errorf("reason %q, detail %q", d.Reason, d.Detail)
	}
}

func rules() decision.Rules {
	return decision.Rules{
		Expiration: 7 * 24 * time.Hour, GiveUp: envelope.GiveUpDeadLetter, Retry: retry.Default(),
		MaxDelay: storage.MaxDelay,
	}
}

// world is the world in which a message that has just arrived is decided.
func world(jitter float64) decision.World {
	return decision.World{Arrived: now, Now: now, Jitter: jitter}
}

// ended decides about a message whose call has ended.
func ended(in decision.Intake, o decision.Outcome, jitter float64) decision.Decision {
	return rules().Decide(&in, &decision.Verdict{Outcome: &o}, world(jitter))
}

// decide decides about an envelope, as a delivery does. The outcome does not matter if no call is made.
func decide(t *testing.T, r decision.Rules, content string, o decision.Outcome, jitter float64) decision.Decision {
	t.Helper()
	in, w := accepted(t, r, content), world(jitter)
	if !r.IsDue(&in, w) {
		return r.Decide(&in, nil, w)
	}
	w.Arrived = now.Add(-o.Took)
	return r.Decide(&in, &decision.Verdict{Outcome: &o}, w)
}

const limit = 48 << 10

func accepted(t *testing.T, r decision.Rules, content string) decision.Intake {
	t.Helper()
	in := r.Open([]byte(content), "m1", limit, now)
	if in.Malformed != nil {
		t.Fatalf("%s: %v", content, in.Malformed)
	}
	return in
}

// TestReleaseOfLongExpired: a deadline that no duration reaches back to counts as any other that has passed.
func TestReleaseOfLongExpired(t *testing.T) {
	now := time.Date(2026, time.January, 31, 12, 0, 0, 0, time.UTC)
	for _, year := range []int{1582, 1733, 1734, 2025} {
		e := &envelope.Envelope{Deadline: time.Date(year, time.January, 1, 0, 0, 0, 0, time.UTC)}
		gone := decision.World{Now: now, Jitter: 0.5, HostGone: true}
		d := decision.Rules{}.Decide(&decision.Intake{Envelope: e}, nil, gone)
		if d.Delay != time.Second {
			t.Errorf("year %d: a delay of %v", year, d.Delay)
		}
	}
}
