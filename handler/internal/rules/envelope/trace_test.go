package envelope_test

import (
	"fmt"
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
	tests := map[string]struct{ traceparent, want string }{
		"valid":            {traceparent, "01"},
		"not_sampled":      {strings.TrimSuffix(traceparent, "1") + "0", "00"},
		"random":           {strings.TrimSuffix(traceparent, "1") + "2", "02"},
		"unknown_flags":    {strings.TrimSuffix(traceparent, "01") + "ff", "03"},
		"later_version":    {"01" + traceparent[2:] + "-more", "01"},
		"later_flags":      {"cc" + strings.TrimSuffix(traceparent, "01")[2:] + "0e", "00"},
		"empty":            {"", ""},
		"no_dashes":        {strings.ReplaceAll(traceparent, "-", ""), ""},
		"capitals":         {strings.ToUpper(traceparent), ""},
		"version_ff":       {"ff" + traceparent[2:], ""},
		"version_not_hex":  {"0g" + traceparent[2:], ""},
		"longer":           {traceparent + "-00", ""},
		"later_no_dash":    {"01" + traceparent[2:] + "00", ""},
		"zero_trace":       {"00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01", ""},
		"zero_parent":      {"00-" + traceID + "-" + strings.Repeat("0", 16) + "-01", ""},
		"short_trace":      {"00-" + traceID[1:] + "-00f067aa0ba902b7-01", ""},
		"short_parent":     {"00-" + traceID + "-0f067aa0ba902b7-01", ""},
		"no_flags":         {strings.TrimSuffix(traceparent, "-01"), ""},
		"space":            {" " + traceparent, ""},
		"line_break":       {traceparent + "\n", ""},
		"later_line_break": {"01" + traceparent[2:] + "-\r\nX: y", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			trace, ok := envelope.ParseTrace(test.traceparent, "")
			if ok != (test.want != "") {
				t.Fatalf("valid: %t", ok)
			}
			trace.SpanID = "1111111111111111"
			if want := "00-" + traceID + "-1111111111111111-" + test.want; ok && trace.Traceparent() != want {
				t.Errorf("%s, want %s", trace.Traceparent(), want)
			}
		})
	}
}

func TestTracestate(t *testing.T) {
	tests := map[string]struct {
		state string
		valid bool
	}{
		"one":         {"rojo=00f067aa0ba902b7", true},
		"several":     {"rojo=1, tenant@system=a b ,,x/y*_-=~", true},
		"longest":     {"a=" + strings.Repeat("x", 254) + ",b=" + strings.Repeat("x", 252), true},
		"too_long":    {"a=" + strings.Repeat("x", 254) + ",b=" + strings.Repeat("x", 254), false},
		"empty":       {"", false},
		"no_entry":    {" , ", false},
		"no_value":    {"a=", false},
		"no_key":      {"=a", false},
		"no_equals":   {"a", false},
		"two_equals":  {"a=b=c", false},
		"capitals":    {"A=b", false},
		"line_break":  {"a=b\r\nX-Evil: 1", false},
		"not_ascii":   {"a=å", false},
		"entries_32":  {strings.Repeat("a=1,", 32), true},
		"entries_33":  {strings.Repeat("a=1,", 33), false},
		"long_value":  {"a=" + strings.Repeat("x", 257), false},
		"other_entry": {"a=b,\x00", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			trace, ok := envelope.ParseTrace(traceparent, test.state)
			if !ok || (trace.State == test.state) != test.valid && test.state != "" || !test.valid &&
				trace.State != "" {
				t.Errorf("state %q, trace %t", trace.State, ok)
			}
		})
	}
}

func TestTraceOfEnvelope(t *testing.T) {
	header := `"call":{"url":"http://a",` +
		`"headers":{"traceparent":"00-11111111111111111111111111111111-00f067aa0ba902b7-00","tracestate":["h=1",` +
		`"i=2"]}}`
	const plain = `"call":{"url":"http://a"}`
	tests := map[string]struct{ members, id, state string }{
		"member":             {plain + `,"trace":{"traceparent":"` + traceparent + `","tracestate":"a=1"}`, traceID, "a=1"},
		"member_and_header":  {header + `,"trace":{"traceparent":"` + traceparent + `"}`, traceID, ""},
		"header":             {header, strings.Repeat("1", 32), "h=1,i=2"},
		"invalid_and_header": {header + `,"trace":{"traceparent":"00-x"}`, strings.Repeat("1", 32), "h=1,i=2"},
		"invalid_state":      {plain + `,"trace":{"traceparent":"` + traceparent + `","tracestate":"A"}`, traceID, ""},
		"state_alone":        {plain + `,"trace":{"tracestate":"a=1"}`, "", ""},
		"number":             {plain + `,"trace":1`, "", ""},
		"array":              {plain + `,"trace":["` + traceparent + `"]`, "", ""},
		"traceparent_number": {plain + `,"trace":{"traceparent":1,"tracestate":"a=1"}`, "", ""},
		"null":               {plain + `,"trace":null`, "", ""},
		"two_headers": {`"call":{"url":"http://a","headers":{"traceparent":["` + traceparent + `","` +
			traceparent + `"]}}`, "", ""},
		"header_with_comment": {`"call":{"url":"http://a","headers":{"traceparent":"` + traceparent +
			` x","tracestate":"a=1"}}`, "", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := accept(t, `{"asyncCaller":1,"requestId":"r1",`+test.members+`}`)
			if test.id != "" && e.Trace.ID != test.id || e.Trace.State != test.state {
				t.Errorf("%+v", e.Trace)
			}
			if e.Trace.ID == traceID && test.id == "" {
				t.Error("an invalid traceparent was taken")
			}
			content, err := e.Successor(limit)
			if err != nil {
				t.Fatal(err)
			}
			if next := accept(t, string(content.Bytes)); next.Trace.ID != e.Trace.ID ||
				next.Trace.State != e.Trace.State {
				t.Errorf("%+v became %+v", e.Trace, next.Trace)
			}
		})
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
