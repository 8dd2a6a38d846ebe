package edit_test

import (
	"strings"
	"testing"

	"asynccaller/handler/internal/operate/message/edit"
)

// TestNativeEdits checks that each edit changes the member that it names and no other byte.
func TestNativeEdits(t *testing.T) {
	const content = " " + order + `, "retry":{"maxAttempts":3,"schedule":["5s", "1m"]},"mine":{"deep":[1, {"k":2}]}}`
	const json = `"json":{"n":1.0, "k":"\u00e9"}`
	const others = `"headers":{"X-A":"1","x-b":["2","3"]},`
	tests := map[string]struct{ flag, argument, old, new string }{
		"url": {
			"--set", "call.url=https://new.example/?a=b",
			`https://old.example/orders?code=s%2Fecret`, `https://new.example/?a=b`,
		},
		"url_quoted": {
			"--set", `call.url="https://new.example/"`, `https://old.example/orders?code=s%2Fecret`,
			`https://new.example/`,
		},
		"method":              {"--set", "call.method=DELETE", `"PUT"`, `"DELETE"`},
		"method_none":         {"--set", "call.method=null", ` , "method":"PUT"`, ``},
		"header":              {"--set", `call.headers.x-a="9"`, `"X-A":"1"`, `"X-A":"\"9\""`},
		"new_header_with_dot": {"--set", "call.headers.X.Y=null", `"3"]}`, `"3"],"X.Y":"null"}`},
		"header_of_callback":  {"--set", "callback.headers.X-A=1", `]}}`, `]},"callback":{"headers":{"X-A":"1"}}}`},
		"body_of_json": {
			"--set", `call.body={"a":1}`, others + json,
			`"headers":{"X-A":"1","x-b":["2","3"],"Content-Type":"application/json"},` +
				`"body":"{\"a\":1}"`,
		},
		"body_is_text": {
			"--set", `call.body=42`, others + json,
			`"headers":{"X-A":"1","x-b":["2","3"],"Content-Type":"application/json"},"body":"42"`,
		},
		"body_base64": {
			"--set", `call.bodyBase64=aGk=`, others + json,
			`"headers":{"X-A":"1","x-b":["2","3"],"Content-Type":"application/json"},` +
				`"bodyBase64":"aGk="`,
		},
		"json":             {"--set", `call.json=[1.0, "<"]`, json, `"json":[1.0, "<"]`},
		"json_of_text":     {"--set", `call.json=a & b`, json, `"json":"a & b"`},
		"timeout_seconds":  {"--set", "call.timeout=30", json, json + `,"timeout":30`},
		"timeout_duration": {"--set", "call.timeout=1m30s", json, json + `,"timeout":"1m30s"`},
		"callback": {
			"--set", "callback.url=https://sender.example/", `]}}`,
			`]},"callback":{"url":"https://sender.example/"}}`,
		},
		"retry_name":        {"--set", "retry=nexus", `{"maxAttempts":3,"schedule":["5s", "1m"]}`, `"nexus"`},
		"retry_member":      {"--set", "retry.maxAttempts=10", `:3`, `:10`},
		"retry_element":     {"--set", "retry.schedule[1]=2m", `"5s", "1m"`, `"5s","2m"`},
		"retry_new_element": {"--set", "retry.schedule.2=2m", `"5s", "1m"`, `"5s","1m","2m"`},
		"give_up":           {"--set", "giveUp=drop", `]}}`, `]},"giveUp":"drop"}`},
		"deadline": {
			"--set", "deadline=2027-01-31T12:00:00Z", `]}}`,
			`]},"deadline":"2027-01-31T12:00:00Z"}`,
		},
		"deadline_that_is_not": {"--set", "deadline=null", "", ""},
		"not_before": {
			"--set", "notBefore=2027-01-31T12:00:00Z", `]}}`,
			`]},"notBefore":"2027-01-31T12:00:00Z"}`,
		},
		"priority":           {"--set", "priority=3", `]}}`, `]},"priority":3}`},
		"context":            {"--set", `context={"a": 1.0}`, `]}}`, `]},"context":{"a": 1.0}}`},
		"context_text":       {"--set", `context=some text`, `]}}`, `]},"context":"some text"}`},
		"request_id":         {"--set", `requestId=42`, `"order-42"`, `"42"`},
		"attempts":           {"--set", `attempts=0`, `]}}`, `]},"attempts":0}`},
		"unknown_deep":       {"--set", `mine.deep[1].k=x`, `[1, {"k":2}]`, `[1,{"k":"x"}]`},
		"headers_of_others":  {"--set", `mine.headers.X=1`, `[1, {"k":2}]`, `[1, {"k":2}],"headers":{"X":1}`},
		"element_that_is_so": {"--set", `mine.deep[1].k=2`, ``, ``},
		"objects_are_made":   {"--set", `mine.a.b=1`, `[1, {"k":2}]`, `[1, {"k":2}],"a":{"b":1}`},
		"what_it_is_already": {"--set", `call.method=PUT`, ``, ``},
		"set_header":         {"--set-header", "x-a: 9", `"X-A":"1"`, `"X-A":"9"`},
		"set_header_of_many": {"--set-header", "X-B:  a: b ", `["2","3"]`, `"a: b"`},
		"set_header_new":     {"--set-header", "X-C: <é>", `"3"]}`, `"3"],"X-C":"<é>"}`},
		"set_header_host":    {"--set-header", "Host: new.example", `"3"]}`, `"3"],"Host":"new.example"}`},
		"set_header_empty":   {"--set-header", "X-A:", `"X-A":"1"`, `"X-A":""`},
		"delete_header":      {"--delete-header", "X-B", `,"x-b":["2","3"]`, ``},
		"delete_no_header":   {"--delete-header", "X-C", ``, ``},
		"replace_host":       {"--replace-host", "old.example=new.example", `old.example`, `new.example`},
		"replace_no_host":    {"--replace-host", "older.example=new.example", ``, ``},
		"jq":                 {"--jq", `.call.method = "DELETE"`, `"PUT"`, `"DELETE"`},
		"jq_that_is_so":      {"--jq", `.`, ``, ``},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := flags(t, test.flag, test.argument).Apply(t.Context(), []byte(content))
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Replace(content, test.old, test.new, 1)
			if test.old == test.new && string(got) != content {
				t.Errorf("nothing was to change, got\n%s", got)
			}
			if squeeze(string(got)) != squeeze(want) {
				t.Errorf("got\n%s, want\n%s", got, want)
			}
		})
	}
}

// squeeze removes the white space between the members around an edited one.
func squeeze(content string) string {
	return strings.NewReplacer(", \"requestId", ",\"requestId", "\" , \"method", "\",\"method", ", \"retry",
		",\"retry", "\", \"1m", "\",\"1m").
		Replace(strings.TrimSpace(content))
}

// TestNexusEdits checks that each edit changes one member of RawRequest and no other byte.
func TestNexusEdits(t *testing.T) {
	const value = "\r\n\r\nhello"
	tests := map[string]struct{ flag, argument, member, old, new string }{
		"url": {
			"--set", "call.url=https://new.example:8443/a%2Fb?c", "CallOut",
			"/orders?code=s%2Fecret HTTP/1.0\r\nX-A:  1\r\nhost: " +
				"old.example", "/a%2Fb?c HTTP/1.0\r\nX-A:  1\r\nHost: new.example:8443",
		},
		"url_without_path": {"--set", "call.url=https://old.example", "CallOut", "/orders?code=s%2Fecret", "/"},
		"url_scheme": {
			"--set", "call.url=HTTP://old.example/orders?code=s%2Fecret", "CallOutUriScheme",
			"https", "http",
		},
		"body":           {"--set", `call.body={"a":1}`, "CallOut", "5" + value, "7\r\n\r\n{\"a\":1}"},
		"body_is_text":   {"--set", `call.body="42"`, "CallOut", "5" + value, "4\r\n\r\n\"42\""},
		"json":           {"--set", `call.json={"a": 1.0}`, "CallOut", "5" + value, "10\r\n\r\n{\"a\": 1.0}"},
		"body_base64":    {"--set", `call.bodyBase64=/w==`, "CallOut", "5" + value, "1\r\n\r\n\xff"},
		"request_id":     {"--set", `requestId=42`, "Id", "order-42", "42"},
		"set_header":     {"--set-header", "x-A: 9", "CallOut", "X-A:  1", "x-A: 9"},
		"set_header_new": {"--set-header", "X-C: 9", "CallOut", "Content-Type", "X-C: 9\r\nContent-Type"},
		"set_content_type": {
			"--set-header", "Content-Type: application/json", "CallOut", "text/plain",
			"application/json",
		},
		"set_header_host":  {"--set-header", "Host: new.example", "CallOut", "host: old.example", "Host: new.example"},
		"delete_header":    {"--delete-header", "x-b", "CallOut", "X-B: 2\r\nx-b: 3\r\n", ""},
		"delete_no_header": {"--delete-header", "X-C", "CallOut", "", ""},
		"replace_host": {
			"--replace-host", "OLD.example=new.example", "CallOut", "host: old.example",
			"Host: new.example",
		},
		"replace_host_back": {
			"--replace-host", "old.example:8443=http://new.example", "CallBack", "old.example:8443",
			"new.example:8443",
		},
		"replace_scheme": {
			"--replace-host", "old.example:8443=http://new.example", "CallBackUriScheme",
			"https", "http",
		},
		"replace_no_host": {"--replace-host", "old.example:443=new.example", "CallOut", "", ""},
		"set_what_it_is":  {"--set", "call.url=HTTPS://old.example/orders?code=s%2Fecret", "CallOut", "", ""},
	}
	content := nexusOf(callOut, nexusLetter)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := flags(t, test.flag, test.argument).Apply(t.Context(), []byte(content))
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Replace(rawMember(t, []byte(content), test.member), test.old, test.new, 1)
			if member := rawMember(t, got, test.member); member != want {
				t.Errorf("%s is\n%q, want\n%q", test.member, member, want)
			}
			if test.old == test.new && string(got) != content {
				t.Errorf("nothing was to change, got\n%s", got)
			}
			before, _, _ := strings.Cut(content, ` "RawRequest"`)
			if !strings.HasPrefix(string(got), before[:len(before)-1]) ||
				!strings.HasSuffix(string(got), nexusLetter+"}") {
				t.Errorf("other members have changed:\n%s", got)
			}
		})
	}
}

// TestNexusStateEdits edits members outside RawRequest, and missing members.
func TestNexusStateEdits(t *testing.T) {
	const bare = `{"RawRequest":{"CallOut":"R0VUIC8gSFRUUC8xLjENCkhvc3Q6IGgNCg0K"}}`
	rest := func(more string) string { return strings.TrimSuffix(bare, "}}") + more }
	tests := map[string]struct{ argument, want string }{
		"deadline":       {"deadline=2027-01-31T13:00:00+01:00", rest(`},"DeadlineAt":"2027-01-31T12:00:00+00:00"}`)},
		"deadline_never": {"deadline=null", rest(`},"DeadlineAt":"0001-01-01T00:00:00+00:00"}`)},
		"body": {"call.body=hi", `{"RawRequest":{"CallOut":"` + inBase64("GET / HTTP/1.1\r\nHost: h\r\nContent-Type: "+
			"application/octet-stream\r\n\r\nhi") + `"}}`},
		"json": {"call.json=1", `{"RawRequest":{"CallOut":"` +
			inBase64("GET / HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n\r\n1") + `"}}`},
		"http_is_no_word": {"call.url=http://h/", bare},
		"https_is":        {"call.url=https://h/", rest(`,"CallOutUriScheme":"https"}}`)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := flags(t, "--set", test.argument).Apply(t.Context(), []byte(bare))
			if err != nil || string(got) != test.want {
				t.Errorf("got\n%s, %v, want\n%s", got, err, test.want)
			}
		})
	}
}

// TestEditsInOrder checks that each edit sees the result of the one before.
func TestEditsInOrder(t *testing.T) {
	edits := flags(t,
		"--set-header", "X-A: first", "--set", "call.headers.X-A=second", "--set", "call.url=http://a.example/set",
		"--replace-host", "a.example=b.example", "--jq", `.call.url += "/" | .call.headers["X-A"] += " third"`,
		"--replace-host", "b.example=c.example", "--set-header", "X-B: 1", "--delete-header", "X-B")
	got, err := edits.Apply(t.Context(), []byte(`{"asyncCaller":1,"call":{}}`))
	const want = `{"asyncCaller":1,"call":{"headers":{"X-A":"second third"},"url":"http://c.example/set/"}}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

// TestMarkerCanBeSet checks that --set can add the missing marker of a native envelope.
func TestMarkerCanBeSet(t *testing.T) {
	got, err := flags(t, "--set", "asyncCaller=1").Apply(t.Context(), []byte(`{"call":{}}`))
	if err != nil || string(got) != `{"call":{},"asyncCaller":1}` {
		t.Errorf("got %s, %v", got, err)
	}
}

// TestFlagsRefuse checks that the error of an invalid argument quotes no value.
func TestFlagsRefuse(t *testing.T) {
	const password = "hunter2"
	tests := map[string]struct{ flag, argument string }{
		"set_no_value":        {"--set", password},
		"set_no_path":         {"--set", "=" + password},
		"set_empty_name":      {"--set", "call..url=" + password},
		"set_no_header":       {"--set", "call.headers.=" + password},
		"set_bad_header":      {"--set", "call.headers.a b=" + password},
		"set_path_not_utf8":   {"--set", "a\xff=" + password},
		"set_value_not_utf8":  {"--set", "call.body=\xff" + password},
		"set_too_deep":        {"--set", strings.Repeat("a.", 40) + "a=" + password},
		"header_no_colon":     {"--set-header", "Authorization " + password},
		"header_two_lines":    {"--set-header", "X-A: 1\r\nX-B: " + password},
		"header_no_name":      {"--set-header", ": " + password},
		"header_not_utf8":     {"--set-header", "X-A: \xff" + password},
		"delete_with_value":   {"--delete-header", "X-A: " + password},
		"host_no_new":         {"--replace-host", "old.example"},
		"host_empty":          {"--replace-host", "=new.example"},
		"host_empty_new":      {"--replace-host", "old.example="},
		"host_with_path":      {"--replace-host", "old.example=new.example/" + password},
		"host_with_user":      {"--replace-host", "old.example=" + password + "@new.example"},
		"host_with_scheme":    {"--replace-host", "https://old.example=new.example"},
		"host_other_scheme":   {"--replace-host", "old.example=ftp://new.example"},
		"host_bad_port":       {"--replace-host", "old.example=new.example:99999"},
		"jq_not_jq":           {"--jq", `.a = "` + password + `" )`},
		"jq_unknown_function": {"--jq", `frobnicate("` + password + `")`},
		"jq_module":           {"--jq", `import "` + password + `" as a; .`},
		"jq_input":            {"--jq", `input | "` + password + `"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := addFlag(&edit.Edits{}, test.flag, test.argument)
			if err == nil {
				t.Fatal("no error")
			}
			if strings.Contains(err.Error(), password) {
				t.Errorf("%q quotes the value", err)
			}
		})
	}
}

// TestEditsRefuse checks that the error of an impossible edit names the flag and the member.
func TestEditsRefuse(t *testing.T) {
	const password = "hunter2"
	const useEditor = "the message is a Nexus message, of which --set changes only call.url, "
	nexus := nexusOf(callOut, "")
	tests := map[string]struct{ content, flag, argument, want string }{
		"nexus_method":      {nexus, "--set", "call.method=" + password, "--set call.method: " + useEditor},
		"nexus_retry":       {nexus, "--set", "retry=nexus", "--set retry: " + useEditor},
		"nexus_header":      {nexus, "--set", "call.headers.A=" + password, "--set call.headers.A: " + useEditor},
		"nexus_callback":    {nexus, "--set", "callback.url=" + password, "--set callback.url: " + useEditor},
		"nexus_marker":      {nexus, "--set", "asyncCaller=1", "--set asyncCaller: " + useEditor},
		"nexus_raw":         {nexus, "--set", "RawRequest.Title=" + password, "--set RawRequest.Title: " + useEditor},
		"nexus_deadline_at": {nexus, "--set", "DeadlineAt=" + password, "--set DeadlineAt: " + useEditor},
		"nexus_within":      {nexus, "--set", "call.json.a=1", "--set call.json.a: " + useEditor},
		"nexus_jq":          {nexus, "--jq", ".", "--jq: the message is a Nexus message"},
		"nexus_deadline":    {nexus, "--set", "deadline=" + password, `--set deadline: want a time`},
		"nexus_url": {
			nexus, "--set", "call.url=/" + password,
			"--set call.url: want an absolute http or https URL",
		},
		"nexus_url_null": {nexus, "--set", "call.url=null", "--set call.url: want a string"},
		"nexus_user": {
			nexus, "--set", "call.url=https://u:" + password + "@h/",
			"--set call.url: the Nexus format has no place for user information",
		},
		"nexus_base64": {nexus, "--set", "call.bodyBase64=" + password, "--set call.bodyBase64: not base64"},
		"nexus_no_host": {
			nexus, "--delete-header", "Host",
			"--delete-header Host: RawRequest.CallOut: header Host: missing",
		},
		"nexus_no_call": {
			`{"RawRequest":{}}`, "--set-header", "X-A: 1",
			"--set-header X-A: RawRequest.CallOut: missing",
		},
		"nexus_call_no_http": {
			nexusOf(password, ""), "--set-header", "X-A: 1",
			"--set-header X-A: RawRequest.CallOut: request line",
		},
		"nexus_call_no_text": {
			`{"RawRequest":{"CallOut":1}}`, "--set-header", "X-A: 1",
			"--set-header X-A: RawRequest.CallOut: want a string",
		},
		"headers_no_object": {
			`{"asyncCaller":1,"call":{"headers":["` + password + `"]}}`, "--set-header", "X-A: 1",
			"--set-header X-A: call.headers: " +
				"want an object",
		},
		"within_a_string": {
			`{"asyncCaller":1,"call":"` + password + `"}`, "--set", "call.url=http://h/",
			"--set call.url: call.url: is inside a " +
				"value that is neither",
		},
		"no_such_element": {
			`{"asyncCaller":1,"a":[1]}`, "--set", "a[2]=1",
			"--set a[2]: a.2: want the number of an element",
		},
		"within_an_element": {
			`{"asyncCaller":1,"a":["` + password + `"]}`, "--set", "a[0].b=1",
			"--set a[0].b: a.0.b: is inside a value that is neither",
		},
		"name_twice": {
			`{"asyncCaller":1,"call":{"url":"` + password + `","url":1}}`, "--set", "call.method=PUT",
			"--set call.method: call.url: " +
				"appears twice",
		},
		"body_of_no_object": {
			`{"asyncCaller":1,"call":{"json":1,"headers":["` + password + `"]}}`, "--set",
			"call.body=1", "--set call.body: " +
				"call.headers: want an object",
		},
		"host_of_no_object": {
			`{"asyncCaller":1,"call":{"headers":["` + password + `"]}}`, "--replace-host",
			"a=b", "--replace-host: call.headers.Host: " +
				"want the number of an element",
		},
		"nexus_bad_scheme": {
			`{"RawRequest":"` + password + `"}`, "--set", "call.url=https://h/",
			"--set call.url: RawRequest.CallOutUriScheme: is " +
				"inside a value that is neither",
		},
		"nexus_body_null": {nexus, "--set", "call.bodyBase64=null", "--set call.bodyBase64: want a string"},
		"no_number": {
			`{"asyncCaller":1,"a":[1]}`, "--set", "a.b=1",
			"--set a.b: a.b: want the number of an element",
		},
		"no_json":    {`{"asyncCaller":1,` + password + `}`, "--set", "a=1", "not JSON: line 1, column 18"},
		"no_object":  {`["` + password + `"]`, "--set", "a=1", "want an object"},
		"no_json_jq": {password, "--jq", ".", "fix it with --edit"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := flags(t, test.flag, test.argument).Apply(t.Context(), []byte(test.content))
			if err == nil {
				t.Fatalf("made %s", got)
			}
			if !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), password) {
				t.Errorf("got %q, want %q", err, test.want)
			}
		})
	}
}
