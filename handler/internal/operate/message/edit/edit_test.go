package edit_test

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/operate/message/edit"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
)

// prepare prepares a message and returns the envelope that the handler will receive.
func prepare(tb testing.TB, content string, o edit.Options) *envelope.Envelope {
	tb.Helper()
	return mustParse(tb, prepareContent(tb, content, o))
}

func prepareContent(tb testing.TB, content string, o edit.Options) []byte {
	tb.Helper()
	text, err := edit.Prepare(tb.Context(), mustRules(tb), inBase64(content), messageID, o, now)
	if err != nil {
		tb.Fatal(err)
	}
	decoded, err := storage.Base64.Decode(text)
	if err != nil {
		tb.Fatal(err)
	}
	return decoded
}

// TestRestart checks that a message starts as if it had just been sent, with the same call.
func TestRestart(t *testing.T) {
	const deadline = `,"deadline":"2026-02-07T11:00:00Z"`
	tests := map[string]string{
		"dead_letter":               order + state + letter + `}`,
		"dead_letter_with_deadline": order + state + deadline + letter + `}`,
		"moved_by_host":             order + state + `}`,
		"moved_by_host_deadline":    order + state + deadline + `}`,
		"never_tried":               order + `}`,
		"nexus_dead_letter":         nexusOf(callOut, nexusLetter),
		"nexus_moved_by_host":       nexusOf(callOut, ""),
		"nexus_lower_case": strings.NewReplacer(`"Attempts"`, `"attempts"`, `"DeadlineAt"`, `"deadlineAt"`, `"Reason"`,
			`"reason"`).
			Replace(nexusOf(callOut, nexusLetter)),
	}
	for name, content := range tests {
		t.Run(name, func(t *testing.T) {
			came, got := mustParse(t, []byte(content)), prepare(t, content, edit.Options{})
			if got.DeadLetter != nil || got.Attempts != 0 || got.Trail != nil || got.Latest != nil ||
				!got.NextAttemptAt.IsZero() || !got.LatestAttemptAt.IsZero() {
				t.Errorf("old state is still there: %+v", got)
			}
			if !got.CreatedAt.Equal(now) || !got.GiveUpAt(expiration).Equal(now.Add(expiration)) {
				t.Errorf("created %v, given up %v", got.CreatedAt, got.GiveUpAt(expiration))
			}
			diff := cmp.Diff(came.Call, got.Call, cmp.AllowUnexported(envelope.Body{}))
			if diff != "" || got.RequestID != "order-42" {
				t.Errorf("call %s (-came +got):\n%s", got.RequestID, diff)
			}
			// The C# side would drop a message without a deadline.
			if got.Format() == envelope.FormatNexus && got.Deadline.IsZero() {
				t.Error("DeadlineAt is not written")
			}
		})
	}
}

func TestCallStaysByteForByte(t *testing.T) {
	_, call, _ := strings.Cut(order, `"call":`)
	if content := prepareContent(t, order+state+letter+`}`, edit.Options{}); !strings.Contains(string(content), call) {
		t.Errorf("the call is not as it was:\n%s", content)
	}
	_, raw, _ := strings.Cut(nexusOf(callOut, ""), `"RawRequest": `)
	if content := prepareContent(t, nexusOf(callOut, nexusLetter), edit.Options{}); !strings.Contains(string(content),
		strings.TrimSuffix(raw, "}")) {
		t.Errorf("RawRequest is not as it was:\n%s", content)
	}
}

// TestDeadline checks that the old deadline is removed, and that a deadline from an edit stays.
func TestDeadline(t *testing.T) {
	native := order + `,"deadline":"2026-12-31T00:00:00Z","notBefore":"2026-02-01T00:00:00Z"` + state + letter + `}`
	nexus := strings.Replace(nexusOf(callOut, nexusLetter), "2026-02-07T11:00:00+00:00", "2026-12-31T00:00:00+00:00", 1)
	old, later := time.Date(2026, 12, 31, 0, 0, 0, 0, time.UTC), time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC)
	afresh := now.Add(expiration)
	tests := map[string]struct {
		content string
		options edit.Options
		want    time.Time
	}{
		"none":            {native, edit.Options{}, afresh},
		"other_edit":      {native, edit.Options{Edits: flags(t, "--set", "call.method=POST")}, afresh},
		"set":             {native, edit.Options{Edits: flags(t, "--set", "deadline=2027-01-31T00:00:00Z")}, later},
		"set_to_the_same": {native, edit.Options{Edits: flags(t, "--set", "deadline=2026-12-31T00:00:00Z")}, old},
		"set_to_none":     {native, edit.Options{Edits: flags(t, "--set", "deadline=null")}, afresh},
		"jq":              {native, edit.Options{Edits: flags(t, "--jq", `.deadline = "2027-01-31T00:00:00Z"`)}, later},
		"by_hand": {
			native,
			edit.Options{Edited: []byte(strings.Replace(native, "2026-12-31", "2027-01-31", 1))},
			later,
		},
		"nexus_none":     {nexus, edit.Options{}, afresh},
		"nexus_set":      {nexus, edit.Options{Edits: flags(t, "--set", "deadline=2027-01-31T00:00:00Z")}, later},
		"nexus_set_same": {nexus, edit.Options{Edits: flags(t, "--set", "deadline=2026-12-31T00:00:00Z")}, old},
		"nexus_set_none": {nexus, edit.Options{Edits: flags(t, "--set", "deadline=null")}, afresh},
		"nexus_by_hand": {
			nexus,
			edit.Options{Edited: []byte(strings.Replace(nexus, "2026-12-31", "2027-01-31", 1))},
			later,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := prepare(t, test.content, test.options)
			if at := got.GiveUpAt(expiration); !at.Equal(test.want) {
				t.Errorf("given up at %v, want %v", at, test.want)
			}
		})
	}
	if got := prepare(t, native, edit.Options{}); got.NotBefore.IsZero() {
		t.Error("notBefore is gone")
	}
}

func TestRequestIDFromMessage(t *testing.T) {
	const content = `{"asyncCaller":1,"call":{"url":"http://h.example/"}}`
	if got := prepare(t, content, edit.Options{}).RequestID; got != messageID {
		t.Errorf("request id %q, want the message's", got)
	}
}

func TestRequestIDFromInvalidMessageID(t *testing.T) {
	const content = `{"asyncCaller":1,"call":{"url":"http://h.example/"}}`
	_, err := edit.Prepare(t.Context(), mustRules(t), inBase64(content), "two words", edit.Options{}, now)
	if err == nil || !strings.Contains(err.Error(), "would be malformed: requestId") {
		t.Errorf("got %v", err)
	}
}

// TestAllowedTargets checks that a host is judged by its name only. The handler judges its address when it calls.
func TestAllowedTargets(t *testing.T) {
	for _, call := range []string{
		`"url":"http://h.example/"`, `"url":"http://10.0.0.1:80/"`, `"url":"https://localhost.example/"`,
		`"url":"http://h.example/","headers":{"Host":"127.0.0.1:80"}`,
		`"url":"http://[fd00::1]/","headers":{"Host":"other.example"}`,
	} {
		got := prepare(t, `{"asyncCaller":1,"call":{`+call+`}}`, edit.Options{})
		if !strings.Contains(call, got.Call.URL) {
			t.Errorf("%s became %s", call, got.Call.URL)
		}
	}
}

func TestEncoding(t *testing.T) {
	content := order + letter + `}`
	tests := map[string]struct {
		encoding storage.Encoding
		text     string
		fix      bool
		want     string // in the error; empty for none
	}{
		"base64":              {storage.Base64, inBase64(content), false, ""},
		"base64_is_default":   {"", inBase64(content), false, ""},
		"base64_left_alone":   {storage.Base64, inBase64(content), true, ""},
		"raw":                 {storage.Base64, content, false, "--fix-encoding"},
		"raw_fixed":           {storage.Base64, content, true, ""},
		"none":                {storage.None, content, false, ""},
		"marked":              {storage.Base64, inBase64("\ufeff" + content), false, ""},
		"twice":               {storage.Base64, inBase64(inBase64(content)), false, "--fix-encoding repairs it (1 layer of base64 removed)"},
		"none_holds_base64":   {storage.None, inBase64(content), false, "--fix-encoding repairs it"},
		"none_fixed":          {storage.None, inBase64(content), true, ""},
		"twice_no_url":        {storage.Base64, inBase64(inBase64(`{"asyncCaller":1}`)), false, "alone does not help"},
		"quoted":              {storage.Base64, `"` + inBase64(content) + `"`, false, "--fix-encoding takes it"},
		"escaped_stays":       {storage.None, url.QueryEscape(content), true, "malformed"},
		"fixed_is_no_message": {storage.Base64, "hello, world", true, "malformed"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			rules := mustRules(t)
			rules.Encoding = test.encoding
			text, err := edit.Prepare(t.Context(), rules, test.text, messageID, edit.Options{FixEncoding: test.fix},
				now)
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %q, %v, want an error with %q", text, err, test.want)
				}
				return
			}
			decoded, decodeErr := test.encoding.Decode(text)
			if err != nil || decodeErr != nil || mustParse(t, decoded).RequestID != "order-42" {
				t.Errorf("got %q, %v, %v", text, err, decodeErr)
			}
		})
	}
}

func escapeXML(text string) string {
	return strings.NewReplacer(`"`, "&quot;", "&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}

// TestFixEncoding checks what is said about a repair, and that it gives the bytes of the envelope.
func TestFixEncoding(t *testing.T) {
	twice := func(text string) string { return inBase64(inBase64(text)) }
	for _, content := range []string{order + letter + `}`, nexusOf(callOut, "")} {
		for name, test := range map[string]struct {
			encoding   storage.Encoding
			text, want string
		}{
			"right":          {storage.Base64, inBase64(content), ""},
			"right_none":     {storage.None, content, ""},
			"marked":         {storage.Base64, inBase64("\ufeff" + content), ""},
			"missing":        {storage.Base64, content, "1 layer of base64 added"},
			"missing_marked": {storage.Base64, "\ufeff" + content, "1 layer of base64 added"},
			"twice":          {storage.Base64, twice(content), "1 layer of base64 removed"},
			"thrice":         {storage.Base64, inBase64(twice(content)), "2 layers of base64 removed"},
			"5_times":        {storage.Base64, inBase64(twice(twice(content))), "4 layers of base64 removed"},
			"twice_marked":   {storage.Base64, twice("\ufeff" + content), "1 layer of base64 removed"},
			"none_once":      {storage.None, inBase64(content), "1 layer of base64 removed"},
			"none_twice":     {storage.None, twice(content), "2 layers of base64 removed"},
			"quoted":         {storage.Base64, `"` + inBase64(content) + `"`, "a quoted JSON string removed"},
			"quoted_twice": {
				storage.Base64, `"` + twice(content) + `"`, "a quoted JSON string removed, 1 layer of base64 removed",
			},
			"xml": {
				storage.Base64, "<QueueMessage><MessageText>" + inBase64(content) + "</MessageText></QueueMessage>",
				"a <QueueMessage> element removed",
			},
			"xml_text": {
				storage.Base64, "<QueueMessage><MessageText>" + escapeXML(content) + "</MessageText></QueueMessage>",
				"a <QueueMessage> element removed, 1 layer of base64 added",
			},
			"xml_in_base64": {
				storage.Base64,
				inBase64("<QueueMessage><MessageText>" + escapeXML(content) + "</MessageText></QueueMessage>"),
				"a <QueueMessage> element removed",
			},
			"entities":      {storage.Base64, escapeXML(content), "XML entities removed, 1 layer of base64 added"},
			"entities_none": {storage.None, escapeXML(content), "XML entities removed"},
			"logic_apps": {
				storage.Base64, inBase64(`{"$content-type":"a/b","$content":"` + inBase64(content) + `"}`),
				"a $content object removed, 1 layer of base64 removed",
			},
			"logic_apps_json": {
				storage.None, `{"$content-type":"application/json","$content":` + content + `}`,
				"a $content object removed",
			},
			"mark_before": {storage.Base64, "\ufeff" + inBase64(content), "characters around base64 removed"},
			"python_none": {
				storage.None, `b'` + inBase64(content) + `'`,
				"a Python bytes literal removed, 1 layer of base64 removed",
			},
		} {
			t.Run(name, func(t *testing.T) {
				rules := mustRules(t)
				rules.Encoding = test.encoding
				fixed, change := edit.FixEncoding(rules, test.text, false)
				if string(fixed) != content || change != test.want {
					t.Errorf("%s: %s, want %s", change, fixed, test.want)
				}
				raw, change := edit.FixEncoding(rules, test.text, true)
				if string(raw) != string(rules.Content(test.text)) || strings.Contains(change, "removed") {
					t.Errorf("content of a route: %s: %s", change, raw)
				}
			})
		}
	}
	hostile := strings.Repeat("b", 64<<10)
	if fixed, change := edit.FixEncoding(mustRules(t), hostile, false); change != "" || len(fixed) != 48<<10 {
		t.Errorf("%d bytes, %s", len(fixed), change)
	}
}

// TestEditMarked checks that flags can edit an envelope that begins with a byte order mark, or is wrapped.
func TestEditMarked(t *testing.T) {
	for _, content := range []string{"\ufeff" + order + `}`, inBase64(order + `}`)} {
		o := edit.Options{FixEncoding: true, Edits: flags(t, "--set", "call.method=PATCH")}
		if e := prepare(t, content, o); e.Call.Method != "PATCH" {
			t.Errorf("method %s", e.Call.Method)
		}
	}
}

// TestPrepareRefuses checks that messages are refused that the handler would refuse, and that the error helps.
func TestPrepareRefuses(t *testing.T) {
	const password = "hunter2"
	at := func(url, more string) string {
		return `{"asyncCaller":1,"call":{"url":"` + url + `"` + more + `},"context":"` + password + `"` + letter + `}`
	}
	good := at("http://h.example/", "")
	with := func(member string) string { return strings.Replace(good, `"context"`, member+`,"context"`, 1) }
	hostHeader := `,"headers":{"Host":"denied.example:80"}`
	linkLocal := nexusOf(strings.Replace(callOut, "old.example", "169.254.169.254", 1), "")
	later := with(`"notBefore":"2027-01-01T00:00:00Z"`)
	const isDenied = "ASYNC_CALLER_TARGETS_DENY has denied.example"
	none := edit.Options{}
	set := func(argument string) edit.Options { return edit.Options{Edits: flags(t, "--set", argument)} }
	edited := func(content string) edit.Options { return edit.Options{FixEncoding: true, Edited: []byte(content)} }
	tests := map[string]struct {
		content string
		options edit.Options
		want    string
	}{
		"not_json":      {`{"asyncCaller":1,` + password, none, "malformed: not JSON: line 1"},
		"bad_url":       {at("ftp://h/"+password, ""), none, "malformed: call.url: want an absolute http"},
		"edit_worse":    {good, set("priority=" + password), "malformed: priority: want a whole number"},
		"edit_fails":    {good, edit.Options{Edits: flags(t, "--jq", "empty")}, "--jq: the expression has no result"},
		"loopback":      {at("http://127.0.0.1/"+password, ""), none, "must not be called: 127.0.0.1 is refused: loopback"},
		"denied":        {at("http://u:"+password+"@denied.example:8443/?"+password, ""), none, isDenied},
		"denied_header": {at("http://h.example/", hostHeader), none, "the Host header is refused"},
		"denied_edit":   {good, set("call.url=http://denied.example/"), isDenied},
		"retry":         {with(`"retry":"frobnicate"`), none, "--set retry=NAME"},
		"passed":        {good, set("deadline=2026-01-01T00:00:00Z"), "the deadline that was set has passed"},
		"too_early":     {later, set("deadline=2026-12-31T00:00:00Z"), "is not after notBefore"},
		"too_large":     {at("http://h.example/"+strings.Repeat("x", 49<<10), ""), none, "shorten it by"},
		"nexus_private": {linkLocal, none, "link-local"},
		"edited_denied": {`no JSON`, edited(at("http://denied.example/", "")), isDenied},
		"fixed_no_json": {good, edited(`[`), "malformed: not JSON"},
		"callback":      {with(`"callback":{"url":"` + password + `"}`), none, "callback.url"},
		"nexus_broken":  {nexusOf("GET "+password, ""), none, "RawRequest.CallOut: request line"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			text, err := edit.Prepare(t.Context(), mustRules(t), inBase64(test.content), messageID, test.options, now)
			if err == nil {
				t.Fatalf("prepared %q", text)
			}
			if !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), password) || text != "" {
				t.Errorf("got %q, %q, want %q", text, err, test.want)
			}
		})
	}
}

// TestInvalidXML checks that text is refused that a queue without base64 cannot carry.
func TestInvalidXML(t *testing.T) {
	rules := mustRules(t)
	rules.Encoding = storage.None
	content := order + `,"note":"` + "\uffff" + `"}`
	if text, err := edit.Prepare(t.Context(), rules, content, messageID, edit.Options{}, now); err == nil ||
		text != "" {
		t.Errorf("got %q, %v, want an error", text, err)
	}
}

// TestFullMessage checks that a message of the largest size can be sent again.
func TestFullMessage(t *testing.T) {
	limit := storage.Base64.MaxContentBytes()
	full := `{"asyncCaller":1,"call":{"url":"http://h.example/","body":""}}`
	for _, spare := range []int{350, 2000, 3000} {
		body := strings.Repeat("b", limit-len(full)-spare)
		content := prepareContent(t, strings.Replace(full, `"body":"`, `"body":"`+body, 1), edit.Options{})
		if len(content) > limit || !bytes.Contains(content, []byte(body)) || !json.Valid(content) {
			t.Errorf("%d bytes spare: %d bytes of %d, or the body has changed", spare, len(content), limit)
		}
	}
}
