package message_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/retry"
	"asynccaller/handler/internal/storage"
)

var (
	inserted = time.Date(2026, 11, 21, 6, 0, 0, 0, time.UTC)
	givenUp  = inserted.Add(-time.Minute)
)

func rules() message.Rules {
	return message.Rules{Encoding: storage.Base64, Decision: decision.Rules{
		Expiration: 7 * 24 * time.Hour, GiveUp: envelope.GiveUpDeadLetter, Retry: retry.Default(),
		Limits: retry.Limits{MinDelay: time.Second, MaxDelay: 24 * time.Hour, MaxAttempts: 1000},
	}}
}

func inBase64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// native returns an envelope with more members.
func native(more string) string {
	return `{"asyncCaller":1,"requestId":"order-42","createdAt":"2026-11-20T00:00:00Z",` +
		`"call":{"url":"https://user:SECRET@Target.Example:8443/orders/4711/a%20b?code=SECRET","body":"SECRET"}` +
		more + `}`
}

func nexus(more string) string {
	return `{"Organization":"acme","Environment":"prod","OriginalRequestId":"order-42","Attempts":0,` +
		`"CreatedAt":"2026-11-20T00:00:00+00:00"` +
		more + `,"RawRequest":{"Id":"order-42","CallOut":"` +
		inBase64("PUT /orders/4711?code=SECRET HTTP/1.1\r\nHost: Target.Example\r\nContent-Type: "+
			"text/plain\r\n\r\nSECRET") + `","CallOutUriScheme":"https"}}`
}

// deadLetter returns the dead letter that the handler writes when it gives up.
func deadLetter(t *testing.T, content string, d envelope.DeadLetter, attempts ...envelope.Attempt) string {
	t.Helper()
	e, err := envelope.Parse([]byte(content))
	if err != nil {
		t.Fatal(err)
	}
	limit := storage.Base64.MaxContentBytes()
	if err := e.Accept(givenUp, "m1", limit); err != nil {
		t.Fatal(err)
	}
	state := e.State
	for _, a := range attempts {
		state.Attempts++
		state.Trail = envelope.AppendAttempt(state.Trail, a)
		if a.Status != 0 {
			state.Latest = &envelope.Answer{Status: a.Status}
		}
	}
	written, err := e.WithState(state).DeadLettered(d, limit)
	if err != nil {
		t.Fatal(err)
	}
	return string(written.Bytes)
}

func read(text string) message.Message {
	return message.Read(rules(), "async-caller-poison", storage.Message{
		ID: "id", Text: text, DequeueCount: 1, InsertedAt: inserted, ExpiresAt: inserted.AddDate(0, 0, 7),
	})
}

func TestReadDeadLetters(t *testing.T) {
	letter := envelope.DeadLetter{
		At: givenUp, Reason: "expired", Detail: "answered 503", Queue: "async-caller-3",
		Attempts: 2,
	}
	attempts := []envelope.Attempt{{At: givenUp.Add(-time.Hour), Status: 503}, {At: givenUp, Error: "timeout"}}
	want := message.Message{
		Queue: "async-caller-poison", ID: "id", InsertedAt: inserted, ExpiresAt: inserted.AddDate(0, 0, 7),
		DequeueCount: 1,
		Main:         "async-caller-3", Reason: "expired", Detail: "answered 503", Since: givenUp,
		RequestID: "order-42",
		Attempts:  2, Status: 503, Error: "timeout",
	}
	want.Answer = "(empty answer)"
	inNative, inNexus := want, want
	inNative.Format, inNative.Method, inNative.Host = envelope.FormatNative, "POST", "target.example:8443"
	inNative.Path, inNative.PathPattern = "/orders/4711/a%20b", "/orders/{n}/a%20b"
	inNexus.Format, inNexus.Method, inNexus.Host = envelope.FormatNexus, "PUT", "target.example"
	inNexus.Path, inNexus.PathPattern = "/orders/4711", "/orders/{n}"
	inNexus.Organization, inNexus.Environment = "acme", "prod"
	for name, test := range map[string]struct {
		content string
		want    message.Message
	}{
		"native": {deadLetter(t, native(""), letter, attempts...), inNative},
		"nexus":  {deadLetter(t, nexus(""), letter, attempts...), inNexus},
	} {
		t.Run(name, func(t *testing.T) {
			test.want.Bytes = len(test.content)
			got := read(inBase64(test.content))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
			printed, err := json.Marshal(got)
			if err != nil || strings.Contains(string(printed), "SECRET") {
				t.Errorf("printed as %s, %v", printed, err)
			}
		})
	}
}

// TestReadHostileDeadLetters checks that impossible values in a dead letter are ignored.
func TestReadHostileDeadLetters(t *testing.T) {
	for name, test := range map[string]struct {
		letter string
		want   message.Message // the fields from a dead letter
	}{
		"no_reason":     {`{}`, message.Message{Reason: "unknown"}},
		"not_an_object": {`"by hand"`, message.Message{Reason: "unknown"}},
		"control": {
			`{"reason":"a\u001b[2J","detail":"b\u202ec\n"}`,
			message.Message{Reason: "a\ufffd[2J", Detail: "b\ufffdc\ufffd"},
		},
		"reason_twice": {
			`{"reason":"dns","detail":"dns: no such host"}`,
			message.Message{Reason: "dns", Detail: "no such host"},
		},
		"only_reasons": {`{"reason":"dns","detail":"dns"}`, message.Message{Reason: "dns"}},
		"long_reason": {
			`{"reason":"` + strings.Repeat("ä", 40) + `"}`,
			message.Message{Reason: strings.Repeat("ä", 30) + "…"},
		},
		"other_queue": {
			`{"reason":"x","queue":"async-caller-7"}`,
			message.Message{Reason: "x", Main: "async-caller-7"},
		},
		"poison_queue":  {`{"reason":"x","queue":"async-caller-7-poison"}`, message.Message{Reason: "x"}},
		"no_queue_name": {`{"reason":"x","queue":"../etc"}`, message.Message{Reason: "x"}},
		"future":        {`{"reason":"x","at":"2026-11-23T00:00:00Z"}`, message.Message{Reason: "x"}},
		"clock_ahead": {
			`{"reason":"x","at":"2026-11-21T20:00:00Z"}`,
			message.Message{Reason: "x", Since: inserted.Add(14 * time.Hour)},
		},
		"year_zero":        {`{"reason":"x","at":"0000-01-01T00:00:00+14:00"}`, message.Message{Reason: "x"}},
		"attempts":         {`{"reason":"x","attempts":7}`, message.Message{Reason: "x", Attempts: 7}},
		"attempts_below_0": {`{"reason":"x","attempts":-7}`, message.Message{Reason: "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			if test.want.Main == "" {
				test.want.Main = "async-caller"
			}
			if test.want.Since.IsZero() {
				test.want.Since = inserted
			}
			m := read(inBase64(native(`,"deadLetter":` + test.letter)))
			got := message.Message{
				Reason: m.Reason, Detail: m.Detail, Main: m.Main, Since: m.Since,
				Attempts: m.Attempts,
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
			if _, err := json.Marshal(m); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestReadReasonsFoundOut(t *testing.T) {
	const crashed = "no failure was recorded: the handler crashed, timed out or could not reach storage"
	const faulted = "giveUp is fault: the handler answered 500 on purpose, or it crashed or timed out"
	const byPolicy = `,"retry":{"policy":"cycles","receiveErrorHandling":"Fault"}`
	callback := `,"giveUp":"fault","callback":{"url":"https://sender.example/"}`
	for name, test := range map[string]struct {
		text, reason, detail string
	}{
		"not_base64": {"hello, world", "undecodable", "not base64: illegal base64 data at input byte 5"},
		"envelope_not_base64": {
			native(""), "undecodable", "; the text is an envelope: calls retry --fix-encoding fixes it",
		},
		"nexus_not_base64": {nexus(""), "undecodable", "calls retry --fix-encoding"},
		"letter_not_base64": {
			native(`,"deadLetter":{"reason":"expired"}`), "undecodable", "calls retry --fix-encoding",
		},
		"empty":       {"", "malformed", "not JSON: line 1, column 1"},
		"not_json":    {inBase64("{\n\n  nonsense}"), "malformed", "not JSON: line 3, column 4"},
		"no_envelope": {inBase64(`{"a":1}`), "malformed", "asyncCaller: missing"},
		"no_url":      {inBase64(`{"asyncCaller":1,"call":{}}`), "malformed", "call.url: missing"},
		"nexus_malformed": {
			inBase64(`{"Organization":"acme","RawRequest":{}}`), "malformed", "RawRequest.CallOut: missing",
		},
		"letter_in_malformed": {
			inBase64(`{"asyncCaller":1,"call":{},"deadLetter":{"reason":"expired"}}`), "malformed", "call.url: missing",
		},
		"too_large": {
			inBase64(native(`,"callback":{"url":"https://s.example/` + strings.Repeat("x", 48_700) + `"}`)),
			"malformed", "leave room for its state",
		},
		"unknown_policy":      {inBase64(native(`,"retry":"often"`)), "malformed", "retry: "},
		"bad_policy":          {inBase64(native(`,"retry":{"factor":0.5}`)), "malformed", "retry.factor: "},
		"crashed":             {inBase64(native("")), "host_gave_up", crashed},
		"crashed_nexus":       {inBase64(nexus("")), "host_gave_up", crashed},
		"fault":               {inBase64(native(`,"giveUp":"fault"`)), "host_gave_up", faulted},
		"fault_with_callback": {inBase64(native(callback)), "host_gave_up", crashed},
		"fault_by_policy":     {inBase64(native(byPolicy)), "host_gave_up", faulted},
		"drop_beats_policy":   {inBase64(native(`,"giveUp":"drop"` + byPolicy)), "host_gave_up", crashed},
		"deadline": {
			inBase64(native(`,"deadline":"2026-11-21T05:59:59Z"`)), "host_gave_up",
			crashed + "; the deadline had passed",
		},
		"deadline_later": {inBase64(native(`,"deadline":"2026-11-21T06:00:01Z"`)), "host_gave_up", crashed},
		"no_creation_no_limit": {
			inBase64(`{"asyncCaller":1,"call":{"url":"http://t.example"}}`), "host_gave_up", crashed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := read(test.text)
			if m.Reason != test.reason || !strings.Contains(m.Detail, test.detail) {
				t.Errorf("got %s: %s", m.Reason, m.Detail)
			}
			if m.Reason == "host_gave_up" && m.Detail != test.detail {
				t.Errorf("detail %q, want %q", m.Detail, test.detail)
			}
			if !m.Since.Equal(inserted) || m.Main != "async-caller" {
				t.Errorf("since %v, main %s", m.Since, m.Main)
			}
		})
	}
}

func TestReadOperatorsRules(t *testing.T) {
	r := rules()
	r.Decision.GiveUp = envelope.GiveUpFault
	if m := message.Read(r, "q-poison", storage.Message{Text: inBase64(native(""))}); !strings.HasPrefix(m.Detail,
		"giveUp is fault") {
		t.Errorf("detail %q does not tell of the setting", m.Detail)
	}
	r.Encoding = storage.None
	if m := message.Read(r, "q-poison", storage.Message{Text: native("")}); m.Reason != "host_gave_up" ||
		m.Bytes != len(native("")) {
		t.Errorf("not decoded as host.json says: %+v", m)
	}
}

// TestReadSenderOfMalformed checks that the sender of a malformed message is known.
func TestReadSenderOfMalformed(t *testing.T) {
	for name, test := range map[string]struct{ content, id, organization string }{
		"native": {`{"asyncCaller":1,"requestId":"order-42","call":{}}`, "order-42", ""},
		"nexus": {
			`{"Organization":"ac\u001bme","OriginalRequestId":"order-42","RawRequest":{}}`, "order-42",
			"ac\ufffdme",
		},
		"no_id":        {`{"asyncCaller":1,"requestId":"order 42","call":{}}`, "", ""},
		"id_no_string": {`{"asyncCaller":1,"requestId":42,"call":{}}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if m := read(inBase64(test.content)); m.RequestID != test.id || m.Organization != test.organization ||
				m.Reason != "malformed" {
				t.Errorf("request %q of %q: %s", m.RequestID, m.Organization, m.Reason)
			}
		})
	}
}

func TestMessageNeverExpires(t *testing.T) {
	m := message.Read(rules(), "async-caller-poison",
		storage.Message{ExpiresAt: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)})
	printed, err := strictjson.Line(m)
	if err != nil || !m.ExpiresAt.IsZero() || !strings.Contains(string(printed), `"expiresAt":null`) {
		t.Errorf("expires at %v: %s, %v", m.ExpiresAt, printed, err)
	}
}

func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"", "hello", native(""), nexus(""),
		native(`,"deadLetter":{"reason":"\u001b","at":"9999-12-31T23:59:59-23:59"}`),
		native(`,"trail":[{"at":"2026-01-01T00:00:00Z","error":"\u202e"}],"retry":"often"`), inBase64(native("")),
		`{"asyncCaller":1,"requestId":"a"}`,
		nexus(`,"DeadLetter":{"Reason":"expired"},"LatestResponse":"SFRUUC8xLjEgNTAzIE5vDQoNCg=="`),
	} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, stored string, encode bool) {
		if encode {
			stored = inBase64(stored)
		}
		content := rules().Content(stored)
		_, err := envelope.Parse(content)
		m := read(stored)
		if (m.Format != "") != (err == nil) || m.Bytes != len(content) {
			t.Errorf("format %q, %d bytes; parsing %d bytes says %v", m.Format, m.Bytes, len(content), err)
		}
		if (m.Host == "") != (err != nil) || (m.PathPattern == "") != (err != nil) || m.Reason == "" {
			t.Errorf("host %q, path pattern %q, reason %q; parsing says %v", m.Host, m.PathPattern, m.Reason, err)
		}
		limits := map[string]int{
			m.Reason: 64, m.Detail: 300, m.RequestID: 128, m.Organization: 128, m.Environment: 128, m.Error: 100,
			m.Method: 32,
			m.Host:   260, m.Path: 512, m.PathPattern: 200, m.Main: 63,
		}
		for _, by := range []message.By{"reason", "status", "host", "path", "error"} {
			limits[by.Key(m)] = 260
			ofGroup := message.Filter{Group: &message.Group{By: by, Key: by.Key(m)}}
			if matches, _ := ofGroup.Match(m, content); by.Key(m) == "" || !matches {
				t.Errorf("its own group by %s, %q, does not match", by, by.Key(m))
			}
		}
		for value, limit := range limits {
			if text.Printable(value) != value {
				t.Errorf("%q is not one printable line", value)
			}
			if len(value) > limit {
				t.Errorf("%q has %d bytes, more than %d", value, len(value), limit)
			}
		}
		if _, err := json.Marshal(m); err != nil {
			t.Error(err)
		}
	})
}
