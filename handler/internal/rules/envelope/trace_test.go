package envelope_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/rules/envelope"
)

const (
	traceID     = "0af7651916cd43dd8448eb211c80319c"
	traceparent = "00-" + traceID + "-00f067aa0ba902b7-01"
)

func TestParseTrace(t *testing.T) {
	flags := func(flags string) string { return strings.TrimSuffix(traceparent, "01") + flags }
	const parent = "-00f067aa0ba902b7-01"
	for text, want := range map[string]string{ // the flags, or empty if it is invalid
		traceparent: "01", flags("00"): "00", flags("02"): "02", flags("ff"): "03",
		"01" + traceparent[2:] + "-more": "01", "cc" + flags("0e")[2:]: "00",

		"": "", strings.ReplaceAll(traceparent, "-", ""): "", strings.ToUpper(traceparent): "",
		"ff" + traceparent[2:]: "", "0g" + traceparent[2:]: "", traceparent + "-00": "",
		"01" + traceparent[2:] + "00":            "",
		"00-" + strings.Repeat("0", 32) + parent: "", "00-" + traceID + "-" + strings.Repeat("0", 16) + "-01": "",
		"00-" + traceID[1:] + parent: "", "00-" + traceID + "-0f067aa0ba902b7-01": "",
		strings.TrimSuffix(traceparent, "-01"): "", " " + traceparent: "", traceparent + "\n": "",
		"01" + traceparent[2:] + "-\r\nX: y": "",
	} {
		trace, ok := envelope.ParseTrace(text, "")
		trace.SpanID = "1111111111111111"
		written := "00-" + traceID + "-1111111111111111-" + want
		if ok != (want != "") || ok && trace.Traceparent() != written {
			t.Errorf("%q: valid: %t, %s, want %s", text, ok, trace.Traceparent(), written)
		}
	}
}

func TestTracestate(t *testing.T) {
	const long = 254
	valid := []string{
		"rojo=00f067aa0ba902b7", "rojo=1, tenant@system=a b ,,x/y*_-=~", strings.Repeat("a=1,", 32),
		"a=" + strings.Repeat("x", long) + ",b=" + strings.Repeat("x", long-2),
	}
	invalid := []string{
		"", " , ", "a=", "=a", "a", "a=b=c", "A=b", "a=b\r\nX-Evil: 1", "a=å", strings.Repeat("a=1,", 33),
		"a=" + strings.Repeat("x", 257), "a=b,\x00",
		"a=" + strings.Repeat("x", long) + ",b=" + strings.Repeat("x", long),
	}
	for _, state := range slices.Concat(valid, invalid) {
		want := state
		if slices.Contains(invalid, state) {
			want = ""
		}
		if trace, ok := envelope.ParseTrace(traceparent, state); !ok || trace.State != want {
			t.Errorf("%q: state %q, trace %t", state, trace.State, ok)
		}
	}
}

func TestTraceOfEnvelope(t *testing.T) {
	const ones = "11111111111111111111111111111111"
	const plain, given = `"call":{"url":"http://a"}`, `"trace":{"traceparent":"` + traceparent + `"`
	headers := func(members string) string { return `"call":{"url":"http://a","headers":{` + members + `}}` }
	header := headers(`"traceparent":"00-` + ones + `-00f067aa0ba902b7-00","tracestate":["h=1","i=2"]`)
	for members, want := range map[string]struct{ id, state string }{ // an empty id is a new one
		plain + `,` + given + `,"tracestate":"a=1"}`:                           {traceID, "a=1"},
		header + `,` + given + `}`:                                             {traceID, ""},
		header:                                                                 {ones, "h=1,i=2"},
		header + `,"trace":{"traceparent":"00-x"}`:                             {ones, "h=1,i=2"},
		plain + `,` + given + `,"tracestate":"A"}`:                             {traceID, ""},
		plain + `,"trace":{"tracestate":"a=1"}`:                                {"", ""},
		plain + `,"trace":1`:                                                   {"", ""},
		plain + `,"trace":["` + traceparent + `"]`:                             {"", ""},
		plain + `,"trace":{"traceparent":1,"tracestate":"a=1"}`:                {"", ""},
		headers(`"traceparent":["` + traceparent + `","` + traceparent + `"]`): {"", ""},
		headers(`"traceparent":"` + traceparent + ` x","tracestate":"a=1"`):    {"", ""},
	} {
		e := accept(t, `{"asyncCaller":1,"requestId":"r1",`+members+`}`)
		isNew := e.Trace.ID != traceID && e.Trace.ID != ones
		if e.Trace.State != want.state || isNew != (want.id == "") || !isNew && e.Trace.ID != want.id {
			t.Errorf("%s: %+v", members, e.Trace)
		}
		next := accept(t, string(written(t)(e.Successor(limit)).Bytes)).Trace
		if next.ID != e.Trace.ID || next.State != e.Trace.State {
			t.Errorf("%s: %+v became %+v", members, e.Trace, next)
		}
	}
}

// TestNewTraceOfACall: a message that is delivered again before anything was written keeps its trace, and other calls
// have other traces.
func TestNewTraceOfACall(t *testing.T) {
	const nexus = `{"Organization":%q,"OriginalRequestId":%q,"RawRequest":{"Id":%q,` +
		`"CallOut":"R0VUIC8gSFRUUC8xLjENCkhvc3Q6IGENCg0K"}}`
	const unnamed, named, dated = `{"asyncCaller":1,"call":{"url":"http://a"}}`,
		`{"asyncCaller":1,"requestId":"r1","call":{"url":"http://a"}}`,
		`{"asyncCaller":1,"requestId":"r1","createdAt":"2026-01-01T00:00:00Z","call":{"url":"http://a"}}`
	trace := func(content, messageID string, now time.Time) envelope.Trace {
		t.Helper()
		e, err := envelope.Parse([]byte(content))
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Accept(now, messageID, limit); err != nil {
			t.Fatal(err)
		}
		return e.Trace
	}
	seen := map[string]bool{}
	for _, content := range []string{
		unnamed, named, dated, fmt.Sprintf(nexus, "a", "b", "b"),
		fmt.Sprintf(nexus, "ab", "", ""), fmt.Sprintf(nexus, "a", "c", "c"),
	} {
		first, again := trace(content, "m1", arrival), trace(content, "m1", arrival.Add(time.Minute))
		if first.ID != again.ID || first.SpanID == again.SpanID {
			t.Errorf("%s: %+v, then %+v", content, first, again)
		}
		if seen[first.ID] || first.ID == first.SpanID || len(first.ID) != 32 || len(first.SpanID) != 16 {
			t.Errorf("%s: %+v", content, first)
		}
		seen[first.ID] = true
	}
	if trace(unnamed, "m1", arrival).ID == trace(unnamed, "m2", arrival).ID || trace(named, "m1", arrival).
		ID == trace(named, "m2", arrival).ID {
		t.Error("two calls share a trace")
	}
	if trace(dated, "m1", arrival).ID != trace(dated, "m2", arrival).ID {
		t.Error("a duplicate of a message has another trace")
	}
}

// TestTraceOfEarlierVersion: a call that waits during an upgrade keeps its trace, although a Nexus message has no place
// for one. The ids are those that version 0.1.0 made.
func TestTraceOfEarlierVersion(t *testing.T) {
	for content, want := range map[string]string{
		`{"Organization":"acme","Environment":"prod","RawRequest":{"Id":"order-42",` +
			`"CallOut":"R0VUIC8gSFRUUC8xLjENCkhvc3Q6IGENCg0K"}}`: "e8be42f97c221e27f277e4b4001ad9fe",
		`{"asyncCaller":1,"requestId":"r1","createdAt":"2026-01-30T00:00:00Z",` +
			`"call":{"url":"http://a"}}`: "1a0e202a713161ab4f0a36849226ce89",
	} {
		e, err := envelope.Parse([]byte(content))
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Accept(arrival, "m1", limit); err != nil {
			t.Fatal(err)
		}
		if e.Trace.ID != want {
			t.Errorf("%s: trace %s, want %s", content, e.Trace.ID, want)
		}
	}
}
