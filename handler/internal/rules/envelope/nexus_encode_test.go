package envelope_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/rules/envelope"
)

// oddArrival has as many digits as a time can have.
var oddArrival = arrival.Add(123456700 * time.Nanosecond)

// fullMessages return messages that n characters make longer.
var fullMessages = map[string]func(n int) string{
	"all_members": func(n int) string { return nexusMessage(plainCall, padding(n)) },
	"only_raw_request": func(n int) string {
		return `{"RawRequest":{"CallOut":"` + inBase64(plainCall) + `"` + padding(n) + `}}`
	},
	"null_members": func(n int) string {
		return `{"Organization":null,"Environment":null,"OriginalRequestId":null,"Attempts":null,"CreatedAt":null,` +
			`"LatestAttemptAt":null,` +
			`"LatestResponse":null,"DeadlineAt":null,"NextAttemptAt":null,"RawRequest":{"CallOut":"` +
			inBase64(plainCall) + `"` + padding(n) + `}}`
	},
	"shortest_values": func(n int) string {
		return `{"Attempts":0,"CreatedAt":"2026-01-31T11:00:00","DeadlineAt":"2026-02-07T11:00:00",` +
			`"RawRequest":{"Id":"r","CallOut":"` + inBase64(plainCall) + `"` + padding(n) + `}}`
	},
	"long_body": func(n int) string {
		return nexusMessage("POST /orders HTTP/1.1\r\nHost: target.example\r\nContent-Type: text/plain\r\n\r\n"+
			strings.Repeat("b", n), "")
	},
	"callback": func(n int) string { return nexusMessage(plainCall, withCallback+padding(n)) },
	"callback_and_context": func(n int) string {
		return nexusMessage(plainCall, withCallback+`,"Context":"`+inBase64(`"`+strings.Repeat("c", n)+`"`)+`"`)
	},
	"callback_to_long_url": func(n int) string {
		return nexusMessage(plainCall,
			`,"CallBack":"`+inBase64("POST /"+strings.Repeat("u", n)+" HTTP/1.1\r\nHost: sender.example\r\n\r\n")+`"`)
	},
	"callback_with_long_header": func(n int) string {
		return nexusMessage(plainCall, `,"CallBack":"`+
			inBase64("POST / HTTP/1.1\r\nHost: sender.example\r\nX-Long: "+strings.Repeat("h", n)+"\r\n\r\n")+`"`)
	},
	"long_original_id": func(n int) string {
		return strings.Replace(nexusMessage(plainCall, withCallback), `"OriginalRequestId":"order-42"`,
			`"OriginalRequestId":"`+strings.Repeat("o", n)+`"`, 1)
	},
	"long_tenant": func(n int) string {
		return strings.Replace(nexusMessage(plainCall, withCallback), `"acme"`, `"`+strings.Repeat("o", n)+`"`, 1)
	},
	"unknown_member": func(n int) string {
		return strings.Replace(nexusMessage(plainCall, ""), `"Attempts"`,
			`"Later":"`+strings.Repeat("l", n)+`","Attempts"`, 1)
	},
	"latest_response": func(n int) string {
		return strings.Replace(nexusMessage(plainCall, ""), `"LatestResponse":null`,
			`"LatestResponse":"`+inBase64("HTTP/1.1 500 Oops\r\nContent-Type: text/plain\r\n\r\n"+strings.Repeat("l",
				n))+`"`, 1)
	},
	"trail": func(n int) string {
		return strings.TrimSuffix(nexusMessage(plainCall, padding(n)), "}") + `,"Trail":[` +
			strings.Repeat(`{"At":"2026-01-31T11:00:00.5Z","Status":503,"TookMs":120000},`, 30) +
			`{"At":"2026-01-31T11:00:00.5Z","Error":"timeout"}]}`
	},
	"reserved_in_escapes": func(n int) string {
		return `{"RawRequest":{"CallOut":"` + inBase64(plainCall) + `"` + padding(n) + `},"Reserved":"` +
			strings.Repeat(`\u0079`, 128) + `"}`
	},
	"moved_back": func(n int) string {
		return strings.TrimSuffix(nexusMessage(plainCall, padding(n)), "}") + `,"DeadLetter":{"Reason":"expired"}}`
	},
}

// padding returns a member that makes RawRequest n characters longer.
func padding(n int) string { return `,"Title":"` + strings.Repeat("t", n) + `"` }

// TestNexusSizeGuarantee checks that an accepted envelope can be rescheduled, dead-lettered, moved back and reported,
// with its RawRequest unchanged, however full the message is.
func TestNexusSizeGuarantee(t *testing.T) {
	for name, message := range fullMessages {
		t.Run(name, func(t *testing.T) {
			most := 0
			for step := 32 << 10; step > 0; step /= 2 {
				if _, err := arrive(message(most + step)); err == nil {
					most += step
				}
			}
			if size := len(message(most)); size < limit/3 {
				t.Fatalf("more than %d bytes are not accepted", size)
			}
			liveAndDie(t, message(most), 0, 20)
			for _, spare := range []int{1, 2, 3, 250, 3000} {
				liveAndDie(t, message(most-spare), spare, 2)
			}
		})
	}
}

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
	raw := memberOf(t, content, "RawRequest")
	e := mustArrive(t, spare, content, nil)
	untried, err := e.Successor(limit)
	checkState(t, e, mustArrive(t, spare, string(untried.Bytes), err))
	for n := range attempts {
		e = e.WithState(nextState(e, n))
		if n == 0 || n == attempts-1 {
			die(t, e, raw, spare)
		}
		successor, err := e.Successor(limit)
		again := mustArrive(t, spare, string(successor.Bytes), err)
		if again.Attempts != e.Attempts || memberOf(t, string(successor.Bytes), "RawRequest") != raw {
			t.Fatalf("spare %d: attempts %d became %d, or RawRequest has changed", spare, e.Attempts, again.Attempts)
		}
		checkState(t, e, again)
		e = again
	}
}

// die writes and checks the envelope's dead letter and its callback.
func die(t *testing.T, e *envelope.Envelope, raw string, spare int) {
	t.Helper()
	dead, err := e.DeadLettered(envelope.DeadLetter{
		At: oddArrival, Reason: "temporary_status", Detail: strings.Repeat("d", 5000), Queue: "async-caller-10",
		Attempts: e.Attempts,
	}, limit)
	back := mustArrive(t, spare, string(dead.Bytes), err)
	if back.Attempts != 0 || !back.CreatedAt.Equal(oddArrival) || !back.Deadline.IsZero() || back.Latest != nil {
		t.Fatalf("spare %d: an envelope that was moved back does not start again: %+v", spare, back.State)
	}
	if memberOf(t, string(dead.Bytes), "RawRequest") != raw ||
		!strings.Contains(string(dead.Bytes), `"Reason":"temporary_status"`) {
		t.Fatalf("spare %d: the dead letter is not complete", spare)
	}
	if e.Callback != nil {
		callback, err := e.CallbackWith(longReport(), limit)
		mustArrive(t, spare, string(callback.Bytes), err)
	}
}

func mustArrive(t *testing.T, spare int, content string, err error) *envelope.Envelope {
	t.Helper()
	if err != nil {
		t.Fatalf("spare %d: %v", spare, err)
	}
	if len(content) > limit {
		t.Fatalf("spare %d: %d bytes, the queue takes %d", spare, len(content), limit)
	}
	e, err := arrive(content)
	if err != nil {
		t.Fatalf("spare %d: %v", spare, err)
	}
	return e
}

// nextState returns the largest state after one more attempt.
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

// memberOf returns the text of a top-level member.
func memberOf(t *testing.T, content, name string) string {
	t.Helper()
	_, rest, found := strings.Cut(content, `"`+name+`":`)
	if !found {
		t.Fatalf("there is no %s", name)
	}
	return rest[:strings.Index(rest, "}")+1]
}

// TestNexusDeadlineIsLimited checks that a limited deadline stays the same over the attempts of a message that begins
// late.
func TestNexusDeadlineIsLimited(t *testing.T) {
	const month = 30 * 24 * time.Hour
	e, err := arrive(`{"CreatedAt":"9999-01-01T00:00:00Z","NextAttemptAt":"2026-03-12T12:00:00Z",` +
		`"DeadlineAt":"9999-12-31T23:59:59Z",` +
		`"RawRequest":{"CallOut":"` + inBase64(plainCall) + `"}}`)
	if err != nil {
		t.Fatal(err)
	}
	want := time.Date(2026, 4, 11, 12, 0, 0, 0, time.UTC) // 40 and 30 days after its arrival
	for n, next := range []time.Time{
		e.NextAttemptAt, e.NextAttemptAt.Add(time.Hour),
		e.NextAttemptAt.Add(month - time.Second),
	} {
		e.NextAttemptAt = next
		e.LimitDeadline(month, month)
		if !e.Deadline.Equal(want) || e.DeadlineLimited != (n == 0) {
			t.Fatalf("attempt %d: deadline %v, limited %v", n+1, e.Deadline, e.DeadlineLimited)
		}
		content, err := e.Successor(limit)
		if err != nil {
			t.Fatal(err)
		}
		e, err = arrive(string(content.Bytes))
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestNexusTooLargeSaysByHowMuch(t *testing.T) {
	message := fullMessages["only_raw_request"]
	whole := limit - len(message(0))
	_, err := arrive(message(whole))
	tooLarge, ok := errors.AsType[*envelope.TooLargeError](err)
	if !ok {
		t.Fatalf("accepted without room for its state: %v", err)
	}
	if _, err := arrive(message(whole - tooLarge.Excess)); err != nil {
		t.Errorf("shortened by the %d bytes asked for: %v", tooLarge.Excess, err)
	}
	if _, err := arrive(message(whole - tooLarge.Excess + 1)); err == nil {
		t.Error("one byte less was enough")
	}
}

// TestNexusAnswerIsCut checks that a latest response that does not fit keeps its status and as much of the rest as
// fits, and leaves space for the C# side.
func TestNexusAnswerIsCut(t *testing.T) {
	for name, c := range map[string]struct {
		padding, headers int
		leftOut          string
		headersLeft      bool
	}{
		"long_body":         {0, 1, "the end of the latest response", true},
		"long_headers":      {0, 40, "the end of the latest response", false},
		"not_much_room":     {45_000, 1, "the end of the latest response", true},
		"room_for_a_status": {47_600, 1, "the end and headers of the latest response, trail and run", false},
	} {
		t.Run(name, func(t *testing.T) {
			e := accept(t, nexusMessage(plainCall, padding(c.padding)))
			header := http.Header{"Content-Type": {"text/plain"}}
			for i := range c.headers {
				header.Set(fmt.Sprintf("X-Header-%d", i), strings.Repeat("v", 1<<10))
			}
			state := e.State
			state.Latest = &envelope.Answer{Status: 503, Header: header, Body: []byte(strings.Repeat("body", 16<<10))}
			content, err := e.WithState(state).Successor(limit)
			if err != nil {
				t.Fatal(err)
			}
			again := accept(t, string(content.Bytes)).Latest
			if content.LeftOut != c.leftOut || again == nil || again.Status != 503 ||
				again.Header.Get("Content-Type") != "text/plain" || !again.Truncated {
				t.Fatalf("left out %q, answer present: %v", content.LeftOut, again != nil)
			}
			if (again.Header.Get("X-Header-0") != "") != c.headersLeft ||
				!strings.HasPrefix("body"+strings.Repeat("body", 16<<10), string(again.Body)) {
				t.Errorf("headers %v, %d bytes of the body", len(again.Header), len(again.Body))
			}
			if free := limit - len(content.Bytes); free < 240 || free > 300 {
				t.Errorf("%d bytes are left free", free)
			}
		})
	}
}

func TestNexusDeadLetterSaysWhy(t *testing.T) {
	e := accept(t, nexusMessage(plainCall, ""))
	got, err := e.DeadLettered(envelope.DeadLetter{
		At: arrival, Reason: "expired", Detail: "answered 503",
		Queue: "async-caller-3", Attempts: 3,
	}, limit)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.TrimSuffix(nexusMessage(plainCall, ""), "}") +
		`,"DeadLetter":{"At":"2026-01-31T12:00:00+00:00","Reason":"expired","Detail":"answered ` +
		`503","Queue":"async-caller-3","Attempts":3}}`
	if diff := cmp.Diff(want, string(got.Bytes)); diff != "" {
		t.Errorf("dead letter (-want +got):\n%s", diff)
	}
}

// TestNexusCallbackIsTheSameTwice checks that the receiver can recognize a duplicate callback by its id.
func TestNexusCallbackIsTheSameTwice(t *testing.T) {
	id := func(message string) string {
		t.Helper()
		content, err := accept(t, message).CallbackWith(envelope.Report{Status: 200, At: arrival}, limit)
		if err != nil {
			t.Fatal(err)
		}
		return accept(t, string(content.Bytes)).RequestID
	}
	first := nexusMessage(plainCall, withCallback)
	if again := id(first); again != id(first) {
		t.Error("the callback of one call has two ids")
	}
	if id(first) == id(strings.Replace(first, `"Id":"order-42"`, `"Id":"order-43"`, 1)) {
		t.Error("the callbacks of two calls have one id")
	}
}
