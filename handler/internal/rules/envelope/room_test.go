package envelope_test

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/rules/envelope"
)

// limit is the capacity of a queue message in base64: 64 KiB of text.
const limit = 48 << 10

// fullMessages return messages that n characters make longer.
var fullMessages = map[string]func(n int) string{
	"native/only_a_call":    func(n int) string { return filled(n, ``) },
	"native/own_deadline":   func(n int) string { return filled(n, `,"deadline":"2026-12-01T00:00:00Z"`) },
	"native/context":        func(n int) string { return filled(n, `,"context":"`+strings.Repeat("c", 300)+`"`) },
	"native/unknown_member": func(n int) string { return filled(n, `,"mine":"`+strings.Repeat("m", 3000)+`"`) },
	"native/callback": func(n int) string {
		return filled(n, `,"callback":{"url":"http://b","headers":{"a":"b"}},"context":{"k":"v"}`)
	},
	"native/callback_to_long_url": func(n int) string {
		return filled(0, `,"deadline":"2026-12-01T00:00:00Z","callback":{"url":"http://b/`+strings.Repeat("u", n)+`"}`)
	},
	"native/trail": func(n int) string {
		const attempt = `{"at":"2026-01-01T00:00:00Z","status":503,"tookMs":1},`
		return filled(n, `,"trail":[`+strings.Repeat(attempt, 40)+`{}]`)
	},
	"nexus/all_members":      func(n int) string { return nexusMessage(plainCall, padding(n)) },
	"nexus/only_raw_request": func(n int) string { return `{` + rawRequest(padding(n)) + `}` },
	"nexus/null_members": func(n int) string {
		return `{"Organization":null,"Environment":null,"OriginalRequestId":null,"Attempts":null,"CreatedAt":null,` +
			`"LatestAttemptAt":null,"LatestResponse":null,"DeadlineAt":null,"NextAttemptAt":null,` +
			rawRequest(padding(n)) + `}`
	},
	"nexus/shortest_values": func(n int) string {
		return `{"Attempts":0,"CreatedAt":"2026-01-31T11:00:00","DeadlineAt":"2026-02-07T11:00:00",` +
			rawRequest(`,"Id":"r"`+padding(n)) + `}`
	},
	"nexus/long_body": func(n int) string {
		return nexusMessage("POST / HTTP/1.1\r\nHost: h\r\nContent-Type: a/b\r\n\r\n"+strings.Repeat("b", n), "")
	},
	"nexus/callback": func(n int) string { return nexusMessage(plainCall, withCallback+padding(n)) },
	"nexus/callback_and_context": func(n int) string {
		return nexusMessage(plainCall, withCallback+`,"Context":"`+inBase64(`"`+strings.Repeat("c", n)+`"`)+`"`)
	},
	"nexus/callback_to_long_url": func(n int) string {
		callBack := "POST /" + strings.Repeat("u", n) + " HTTP/1.1\r\nHost: sender.example\r\n\r\n"
		return nexusMessage(plainCall, `,"CallBack":"`+inBase64(callBack)+`"`)
	},
	"nexus/long_original_id": func(n int) string {
		return strings.Replace(nexusMessage(plainCall, withCallback), `"order-42"`, `"`+strings.Repeat("o", n)+`"`, 1)
	},
	"nexus/long_tenant": func(n int) string {
		return strings.Replace(nexusMessage(plainCall, withCallback), `"acme"`, `"`+strings.Repeat("o", n)+`"`, 1)
	},
	"nexus/unknown_member": func(n int) string { return nexusWith(`,"Later":"`+strings.Repeat("l", n)+`"`, "") },
	"nexus/latest_response": func(n int) string {
		answer := inBase64("HTTP/1.1 500 Oops\r\nContent-Type: text/plain\r\n\r\n" + strings.Repeat("l", n))
		return strings.Replace(nexusMessage(plainCall, ""), `"LatestResponse":null`, `"LatestResponse":"`+answer+`"`, 1)
	},
	"nexus/trail": func(n int) string {
		const attempt = `{"At":"2026-01-31T11:00:00.5Z","Status":503,"TookMs":120000},`
		return nexusWith(`,"Trail":[`+strings.Repeat(attempt, 30)+`{"Error":"timeout"}]`, padding(n))
	},
	"nexus/reserved_in_escapes": func(n int) string {
		return `{` + rawRequest(padding(n)) + `,"Reserved":"` + strings.Repeat(`\u0079`, 128) + `"}`
	},
	"nexus/moved_back": func(n int) string { return nexusWith(`,"DeadLetter":{"Reason":"expired"}`, padding(n)) },
}

// filled returns a native envelope with a body of n bytes and further members.
func filled(n int, members string) string {
	return `{"asyncCaller":1,"call":{"url":"http://t.example/","body":"` + strings.Repeat("b", n) + `"}` + members + `}`
}

// rawRequest returns the smallest RawRequest with further members.
func rawRequest(members string) string {
	return `"RawRequest":{"CallOut":"` + inBase64(plainCall) + `"` + members + `}`
}

// padding returns a member that makes RawRequest n characters longer.
func padding(n int) string { return `,"Title":"` + strings.Repeat("t", n) + `"` }

// fullest returns the largest n for which a message is accepted.
func fullest(message func(n int) string) int {
	most := 0
	for step := 32 << 10; step > 0; step /= 2 {
		if _, err := arrive(message(most + step)); err == nil {
			most += step
		}
	}
	return most
}

// TestSizeGuarantee checks that an accepted envelope can be rescheduled, dead-lettered, moved back and reported, with
// its call unchanged, however full the message is.
func TestSizeGuarantee(t *testing.T) {
	for name, message := range fullMessages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			most := fullest(message)
			if size := len(message(most)); size < limit/3 {
				t.Fatalf("more than %d bytes are not accepted", size)
			}
			liveAndDie(t, message(most), 0, 6)
			for _, spare := range []int{1, 2, 250} {
				liveAndDie(t, message(most-spare), spare, 2)
			}
		})
	}
}

// TestTooLarge checks that 250 bytes are room enough for the state of any envelope (docs/envelope.md), and that the
// error says by how many bytes an envelope is too large.
func TestTooLarge(t *testing.T) {
	for _, name := range []string{"native/only_a_call", "nexus/only_raw_request"} {
		message := fullMessages[name]
		whole := limit - len(message(0))
		_, err := arrive(message(whole))
		tooLarge, ok := errors.AsType[*envelope.TooLargeError](err)
		if !ok {
			t.Fatalf("%s: accepted without room for its state: %v", name, err)
		}
		if most := fullest(message); most != whole-tooLarge.Excess {
			t.Errorf("%s: %d bytes are too many, and it says %d", name, whole-most, tooLarge.Excess)
		}
		if name == "native/only_a_call" && tooLarge.Excess > 250 {
			t.Errorf("an envelope needs %d bytes of room", tooLarge.Excess)
		}
	}
}

// arrive accepts a message at a time that has as many digits as a time can have.
func arrive(content string) (*envelope.Envelope, error) {
	e, err := envelope.Parse([]byte(content))
	if err != nil {
		return nil, err
	}
	if len(content) > limit {
		return nil, errors.New("no queue holds it")
	}
	return e, e.Accept(oddArrival, "0f8fad5b-d9cb-469f-a165-70867728950e", limit)
}

// liveAndDie makes attempts; each begins with the content that the one before rescheduled. It ends the first and the
// last in every way.
func liveAndDie(t *testing.T, content string, spare, attempts int) {
	t.Helper()
	call := callIn(content)
	e := mustArrive(t, spare, content, nil)
	e.LimitDeadline(2*time.Hour, time.Hour)
	die(t, e, call, spare)
	untried, err := e.Successor(limit)
	checkState(t, e, mustArrive(t, spare, string(untried.Bytes), err))
	for n := range attempts {
		e = e.WithState(nextState(e, 3*n))
		if n == 0 || n == attempts-1 {
			die(t, e, call, spare)
		}
		successor, err := e.Successor(limit)
		again := mustArrive(t, spare, string(successor.Bytes), err)
		if callIn(string(successor.Bytes)) != call {
			t.Fatalf("spare %d: the call has changed", spare)
		}
		checkState(t, e, again)
		e = again
	}
}

// die writes and checks the envelope's dead letter and its callback.
func die(t *testing.T, e *envelope.Envelope, call string, spare int) {
	t.Helper()
	dead, err := e.DeadLettered(envelope.DeadLetter{
		At: oddArrival, Reason: "temporary_status", Detail: strings.Repeat("d", 5000), Queue: "async-caller-10",
		Attempts: e.Attempts,
	}, limit)
	back := mustArrive(t, spare, string(dead.Bytes), err)
	if back.Attempts != 0 || !back.CreatedAt.Equal(oddArrival) || !back.Deadline.IsZero() || back.Latest != nil {
		t.Fatalf("spare %d: an envelope that was moved back does not start again: %+v", spare, back.State)
	}
	reason := strictjson.FoldNames.Get(dead.Bytes, "deadLetter", "reason")
	if callIn(string(dead.Bytes)) != call || string(reason) != `"temporary_status"` {
		t.Fatalf("spare %d: the dead letter is not complete: its reason is %s", spare, reason)
	}
	if e.Callback != nil {
		callback, err := e.CallbackWith(longReport(), limit)
		mustArrive(t, spare, string(callback.Bytes), err)
	}
}

// callIn returns the text of the call of a message in either format.
func callIn(content string) string {
	return string(strictjson.FoldNames.Get([]byte(content), "call")) +
		string(strictjson.FoldNames.Get([]byte(content), "RawRequest"))
}

func mustArrive(t *testing.T, spare int, content string, err error) *envelope.Envelope {
	t.Helper()
	if err != nil {
		t.Fatalf("spare %d: %v", spare, err)
	}
	e, err := arrive(content)
	if err != nil {
		t.Fatalf("spare %d: %d bytes: %v", spare, len(content), err)
	}
	return e
}

// checkState checks that a successor has all state without which the delivery could not continue. Times of Nexus
// envelopes may be cut to seconds.
func checkState(t *testing.T, want, got *envelope.Envelope) {
	t.Helper()
	same := func(a, b time.Time) bool { return a.Sub(b).Abs() < time.Second }
	const week = 7 * 24 * time.Hour
	if got.Attempts != want.Attempts || got.Ticket != want.Ticket || !same(got.CreatedAt, want.CreatedAt) ||
		!same(got.DueAt(), want.DueAt()) || !same(got.GiveUpAt(week), want.GiveUpAt(week)) {
		t.Fatalf("the successor has the state\n%+v, want\n%+v", got.State, want.State)
	}
}

// nextState returns the largest state after one more attempt. Its answer is larger for a larger n.
func nextState(e *envelope.Envelope, n int) envelope.State {
	state := e.State
	state.Attempts++
	state.LatestAttemptAt = oddArrival.Add(time.Duration(n) * time.Hour)
	state.NextAttemptAt = state.LatestAttemptAt.Add(time.Minute)
	state.Expires = e.GiveUpAt(7 * 24 * time.Hour)
	state.Ticket = envelope.MaxTicket
	header := http.Header{"Content-Type": {longMediaType}}
	for i := range 30 {
		header.Set(fmt.Sprintf("X-Header-%d", i), strings.Repeat("v", 1<<(n%11)))
	}
	state.Latest = &envelope.Answer{Status: 503, Header: header, Body: make([]byte, 1<<(n%17))}
	state.Trail = envelope.AppendAttempt(state.Trail,
		envelope.Attempt{At: state.LatestAttemptAt, Status: 503, Error: strings.Repeat("e", 300), Took: time.Minute})
	return state
}

// longMediaType has the longest subtype that RFC 6838 allows.
var longMediaType = "application/" + strings.Repeat("x", 127)

func longReport() envelope.Report {
	return envelope.Report{
		Status: 503, Payload: strings.Repeat("\"\x00é", 40000), MediaType: longMediaType, Reason: "temporary_status",
		At: oddArrival, Deadline: oddArrival.Add(7 * 24 * time.Hour),
	}
}

// TestNexusAnswerIsCut checks that a latest response that does not fit keeps its status and as much of the rest as
// fits, and leaves space for the C# side.
func TestNexusAnswerIsCut(t *testing.T) {
	const body, status = "the end of the latest response", "the end and headers of the latest response, trail and run"
	for name, c := range map[string]struct {
		padding, headers int
		leftOut          string
		headersLeft      bool
	}{
		"long_body":         {0, 1, body, true},
		"long_headers":      {0, 40, body, false},
		"not_much_room":     {45_000, 1, body, true},
		"room_for_a_status": {47_600, 1, status, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := accept(t, nexusMessage(plainCall, padding(c.padding)))
			header := http.Header{"Content-Type": {"text/plain"}}
			for i := range c.headers {
				header.Set(fmt.Sprintf("X-Header-%d", i), strings.Repeat("v", 1<<10))
			}
			long := strings.Repeat("body", 16<<10)
			e.Latest = &envelope.Answer{Status: 503, Header: header, Body: []byte(long)}
			content := written(t)(e.Successor(limit))
			again := accept(t, string(content.Bytes)).Latest
			if content.LeftOut != c.leftOut || again == nil || again.Status != 503 ||
				again.Header.Get("Content-Type") != "text/plain" || !again.Truncated {
				t.Fatalf("left out %q, answer present: %v", content.LeftOut, again != nil)
			}
			if (again.Header.Get("X-Header-0") != "") != c.headersLeft || !strings.HasPrefix(long, string(again.Body)) {
				t.Errorf("headers %v, %d bytes of the body", len(again.Header), len(again.Body))
			}
			if free := limit - len(content.Bytes); free < 240 || free > 300 {
				t.Errorf("%d bytes are left free", free)
			}
		})
	}
}

// TestTrailKeepsTheFirstAndTheLast also checks that a trail takes at most 2 KiB.
func TestTrailKeepsTheFirstAndTheLast(t *testing.T) {
	var trail []envelope.Attempt
	for n := range 200 {
		attempt := envelope.Attempt{At: arrival.Add(time.Duration(n) * time.Minute), Status: 500, Took: time.Second}
		trail = envelope.AppendAttempt(trail, attempt)
	}
	minutes := func(i int) int { return int(trail[i].At.Sub(arrival).Minutes()) }
	if minutes(0) != 0 || minutes(1) != 1 || minutes(2) != 2 {
		t.Errorf("the first attempts are gone: %v", trail[:3])
	}
	if n := len(trail); minutes(n-1) != 199 || minutes(n-2) != 198 || n < 10 || n > 100 {
		t.Errorf("%d attempts kept, the last is %d", n, minutes(n-1))
	}
	e := accept(t, formats["native"](""))
	with := written(t)(e.WithState(envelope.State{Trail: trail}).Successor(limit))
	if got := strictjson.FoldNames.Get(with.Bytes, "trail"); len(got) > 2<<10 {
		t.Errorf("the trail takes %d bytes", len(got))
	}
}

// TestStateKeepsToWhatParseAccepts appends to the longest trail that is accepted, and writes the most attempts.
func TestStateKeepsToWhatParseAccepts(t *testing.T) {
	for _, format := range formats {
		e := accept(t, format(`,"attempts":2147483647,"trail":[`+strings.Repeat("{},", 99)+`{}]`))
		for _, took := range []time.Duration{-time.Hour, 25 * time.Hour, math.MaxInt64} {
			e.Trail = envelope.AppendAttempt(e.Trail, envelope.Attempt{At: arrival, Status: 999, Took: took})
			e = accept(t, string(written(t)(e.Successor(limit)).Bytes))
		}
		if e.Attempts != envelope.MaxAttempts || len(e.Trail) > 100 {
			t.Errorf("%d attempts, a trail of %d", e.Attempts, len(e.Trail))
		}
	}
}

// TestLevels checks in which order parts are left out as the call leaves less and less room, and that each part is
// there until its turn.
func TestLevels(t *testing.T) {
	for name, c := range map[string]struct {
		message func(n int) string
		// levels are the texts of the levels that leave something out, and parts what they leave out; the last parts
		// are never left out.
		levels []string
		parts  []string
	}{
		"native": {
			func(n int) string {
				return filled(n, `,"requestId":"r1","createdAt":"2026-01-30T00:00:00Z","run":"T0KEN","priority":3,`+
					`"mine":"m","retry":{"maxAttempts":9},"context":"`+strings.Repeat("c", 500)+`"`)
			},
			[]string{
				"trail", "trail, trace, run and latestAttemptAt",
				"trail, trace, run, latestAttemptAt, priority and unknown members",
				"trail, trace, run, latestAttemptAt, priority, unknown members and context",
			},
			[]string{
				"trail.1", "trail.0 trace run latestAttemptAt", "priority mine", "context",
				"call retry createdAt attempts nextAttemptAt reserved",
			},
		},
		"nexus": {
			func(n int) string {
				return nexusWith(`,"Run":"T0KEN","Mine":"`+strings.Repeat("m", 500)+`"`, padding(n))
			},
			[]string{
				"the end of the latest response", "the end and headers of the latest response, trail and run",
				"the latest response, trail, run and unknown members",
			},
			[]string{
				"", "Trail.1 Trail.0 Run", "LatestResponse Mine",
				"RawRequest CreatedAt Attempts DeadlineAt NextAttemptAt LatestAttemptAt Reserved",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			levels := []string{}
			most := fullest(c.message)
			for n := most - (5 << 10); n <= most; n += 23 {
				e := accept(t, c.message(n))
				e = e.WithState(triedTwice(e))
				successor := written(t)(e.Successor(limit))
				at := slices.Index(c.levels, successor.LeftOut) // -1 if nothing is left out
				levels = append(levels, successor.LeftOut)
				for i, parts := range c.parts {
					for part := range strings.FieldsSeq(parts) {
						value := strictjson.ExactNames.Get(successor.Bytes, strings.Split(part, ".")...)
						if kept := value != nil && !strictjson.IsNull(value); kept != (i > at) {
							t.Fatalf("%d bytes, left out %q: has %s: %v", n, successor.LeftOut, part, kept)
						}
					}
				}
				why := envelope.DeadLetter{At: arrival, Reason: "expired", Detail: "answered 503", Queue: "q"}
				checkLetter(t, written(t)(e.DeadLettered(why, limit)), c.levels[len(c.levels)-1])
			}
			levels = slices.Compact(levels)
			if !slices.Equal(levels, append([]string{""}, c.levels...)) {
				t.Errorf("levels %q, want %q after a first one that leaves out nothing", levels, c.levels)
			}
		})
	}
}

// triedTwice returns the state of an envelope after two calls, with all that a state can have.
func triedTwice(e *envelope.Envelope) envelope.State {
	state := e.State
	state.Attempts, state.LatestAttemptAt, state.NextAttemptAt = 2, arrival, arrival.Add(time.Minute)
	state.Expires, state.Ticket = arrival.Add(time.Hour), envelope.MaxTicket
	for range 2 {
		state.Trail = envelope.AppendAttempt(state.Trail, envelope.Attempt{At: arrival, Status: 503, Took: time.Second})
	}
	header := http.Header{"Content-Type": {"text/plain"}, "X-Long": {strings.Repeat("h", 1000)}}
	state.Latest = &envelope.Answer{Status: 503, Header: header, Body: []byte(strings.Repeat("b", 1000))}
	return state
}

// checkLetter checks that a dead letter has no ticket of a limit, and states more than its reason before the last
// level.
func checkLetter(t *testing.T, dead envelope.Content, last string) {
	t.Helper()
	letter := strictjson.FoldNames.Get(dead.Bytes, "deadLetter")
	hasOnlyReason := string(letter) == `{"reason":"expired"}` || string(letter) == `{"Reason":"expired"}`
	isLast := strings.HasSuffix(dead.LeftOut, last)
	if strictjson.FoldNames.Get(dead.Bytes, "reserved") != nil || hasOnlyReason != isLast {
		t.Fatalf("left out %q: %s", dead.LeftOut, letter)
	}
}

// TestAnswerIsLeftOutFirst checks that a dead letter's answer has only the room that nothing else needs.
func TestAnswerIsLeftOutFirst(t *testing.T) {
	const members = `,"trail":[{"at":"2026-01-31T11:00:00Z","status":503,"tookMs":5},` +
		`{"at":"2026-01-31T11:30:00Z","status":503,"tookMs":5}],"mine":"m"`
	for name, message := range map[string]func(n int) string{
		"native": func(n int) string { return filled(n, members) },
		"nexus":  func(n int) string { return nexusWith(members, padding(n)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := envelope.Answer{
				Status: 422, Header: http.Header{"Content-Type": {"text/plain"}},
				Body: []byte(strings.Repeat("\x1b", 3<<10)),
			}
			lengths, longest := map[bool]int{}, 0
			most := fullest(message)
			for n := most - (20 << 10); n <= most; n += 197 {
				got, content := deadAnswer(t, message(n), &answer)
				lengths[got != nil]++
				if got == nil {
					if !strings.HasPrefix(content.LeftOut, "the answer") {
						t.Errorf("%d bytes: left out %q", n, content.LeftOut)
					}
					continue
				}
				kept := strictjson.FoldNames.Get(content.Bytes, "Trail", "1") != nil &&
					strictjson.FoldNames.Get(content.Bytes, "mine") != nil
				if !kept || !got.Truncated || strings.Trim(got.Text, "\x1b") != "" {
					t.Fatalf("%d bytes: the answer has taken the place of something: %s", n, content.Bytes)
				}
				longest = max(longest, len(got.Text))
			}
			if lengths[true] == 0 || lengths[false] == 0 || longest != 2<<10 {
				t.Errorf("with and without an answer: %v; at most %d bytes of it", lengths, longest)
			}
		})
	}
}
