package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/storage"
)

const forgery = `{"Id":"42","url":"https://t.example/hook","n":5,"ok":true,"when":"2026-01-02T03:04:05Z",` +
	`"tags":["a","b"],"sys":{"MethodName":"evil"},"popreceipt":"FORGED","none":null}`

var (
	testFunction = functionapp.Function{Name: "QueueFn", Binding: "msg", Queue: "work"}
	testMessage  = storage.Message{
		ID:            "ac42afd5-35e5-4258-928c-16de063c24b1",
		PopReceipt:    "AgAAAAMAAAAAAAAAAgtnj8x+1QE=",
		DequeueCount:  1,
		InsertedAt:    time.Date(2026, 11, 20, 22, 18, 1, 0, time.UTC),
		ExpiresAt:     time.Date(2026, 11, 27, 22, 18, 1, 0, time.UTC),
		NextVisibleAt: time.Date(2026, 11, 20, 22, 28, 5, 999e6, time.UTC),
	}
)

const testGUID = "24ad4c06-24ad-4e5b-8294-3da9714877e9"

func testInvocation(dataType functionapp.DataType, content string) invocation {
	fn := testFunction
	fn.DataType = dataType
	return messageInvocation(fn, testMessage, []byte(content), time.Date(2026, 11, 20, 22, 18, 5, 123456700, time.UTC), testGUID)
}

// mustBeGolden compares a body with a golden file, apart from white space and the order of members.
func mustBeGolden(t *testing.T, name string, body []byte) {
	t.Helper()
	golden, err := os.ReadFile(filepath.Join("testdata", "invocation", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var want, got any
	if err := errors.Join(json.Unmarshal(golden, &want), json.Unmarshal(body, &got)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

// The golden files are the worked bodies of the Functions host contract.
func TestMessageInvocation(t *testing.T) {
	for name, inv := range map[string]invocation{
		"text_plain":    testInvocation(functionapp.DataString, "hello"),
		"text_object":   testInvocation(functionapp.DataString, forgery),
		"text_array":    testInvocation(functionapp.DataString, `[1,"two"]`),
		"binary_object": testInvocation(functionapp.DataBinary, forgery),
	} {
		t.Run(name, func(t *testing.T) { mustBeGolden(t, name, inv.body) })
	}
}

func TestMessageInvocationEdges(t *testing.T) {
	for name, test := range map[string]struct {
		dataType functionapp.DataType
		content  string
		want     string // of Data
	}{
		"empty_text":   {functionapp.DataString, "", `"\"\""`},
		"empty_binary": {functionapp.DataBinary, "", `""`},
		"not_utf8":     {functionapp.DataBinary, "\xff\xfe", `"//4="`},
		"no_data_type": {"", "hello", `"\"hello\""`},
	} {
		t.Run(name, func(t *testing.T) {
			var got struct {
				Data map[string]json.RawMessage
			}
			if err := json.Unmarshal(testInvocation(test.dataType, test.content).body, &got); err != nil {
				t.Fatal(err)
			}
			if string(got.Data["msg"]) != test.want {
				t.Errorf("Data is %s, want %s", got.Data["msg"], test.want)
			}
		})
	}
}

func TestMessageInvocationWithoutExpiry(t *testing.T) {
	msg := testMessage
	msg.ExpiresAt = time.Time{}
	inv := messageInvocation(testFunction, msg, nil, time.Now(), testGUID)
	if !bytes.Contains(inv.body, []byte(`"ExpirationTime":"9999-12-31T23:59:59+00:00"`)) {
		t.Errorf("body is %s, want .NET's last moment", inv.body)
	}
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{
		"":                     `""`,
		`a"b\c/d`:              `"a\"b\\c/d"`,
		"\b\t\n\f\r\x00\x1f":   `"\b\t\n\f\r\u0000\u001f"`,
		"\u0085\u2028\u2029":   `"\u0085\u2028\u2029"`,
		"<é>&\U0001F600\u007f": "\"<é>&\U0001F600\u007f\"",
	} {
		if got := string(quote(in)); got != want {
			t.Errorf("quote(%q) = %s, want %s", in, got, want)
		}
	}
}

func FuzzMessageInvocation(f *testing.F) {
	for _, seed := range []string{"", "hello", forgery, "[1]", "\xff", `{"sys":{"a":[1e400]},"A":"1","a":2}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		for _, dataType := range []functionapp.DataType{functionapp.DataBinary, functionapp.DataString} {
			var got struct {
				Data     map[string]string
				Metadata map[string]json.RawMessage
			}
			inv := testInvocation(dataType, content)
			if inv.err != nil && dataType == functionapp.DataString && !utf8.ValidString(content) {
				continue
			}
			if err := errors.Join(inv.err, json.Unmarshal(inv.body, &got)); err != nil {
				t.Fatalf("%s: %v", dataType, err)
			}
			if len(got.Data) != 1 || len(got.Metadata) < 7 {
				t.Errorf("%s: %d members in Data and %d in Metadata", dataType, len(got.Data), len(got.Metadata))
			}
		}
	})
}

func TestMerge(t *testing.T) {
	const untouched = `"Id":"\"1\"","sys":{}`
	for name, test := range map[string]struct{ content, want string }{
		"plain_text":         {`hello`, untouched},
		"empty":              {``, untouched},
		"array":              {`[{"Id":2}]`, untouched},
		"quoted_object":      {`"{}"`, untouched},
		"malformed":          {`{"Id":2`, untouched},
		"trailing":           {`{"Id":2} x`, untouched},
		"white_space":        {" \r\n{\"Id\":\"2\"}\t", `"Id":"\"2\"","sys":{}`},
		"other_case":         {`{"iD":"2"}`, `"Id":"\"2\"","sys":{}`},
		"new_name":           {`{"Url":"u"}`, untouched + `,"Url":"\"u\""`},
		"object":             {`{"SYS": {"a" : [1, null]} }`, `"Id":"\"1\"","sys":{"a":[1,null]}`},
		"twice_in_an_object": {`{"sys":{"a":1,"a":1e999}}`, `"Id":"\"1\"","sys":{"a":1e999}`},
		"half_a_pair":        {`{"sys":{"a":"\ud800"}}`, `"Id":"\"1\"","sys":{"a":"�"}`},
		"object_over_string": {`{"id":{"b":2}}`, `"Id":{"b":2},"sys":{}`},
		"string_over_object": {`{"sys":"s"}`, `"Id":"\"1\"","sys":"\"s\""`},
		"null_and_array":     {`{"id":null,"sys":[1],"x":null}`, untouched},
		"bools":              {`{"a":true,"b":false}`, untouched + `,"a":"\"True\"","b":"\"False\""`},
		"trigger":            {`{"queueTrigger":"x","MYTRIGGER":"y","triggers":"z"}`, untouched + `,"triggers":"\"z\""`},
		"escaped":            {`{"a":"\"\\\n"}`, untouched + `,"a":"\"\\\"\\\\\\n\""`},
		"twice":              {`{"id":"2","id":"3"}`, `"Id":"\"3\"","sys":{}`},
		"twice_ends_in_null": {`{"id":"2","id":null}`, untouched},
		"as_deep_as_it_goes": {nested(maxParseDepth), `"Id":"\"1\"","sys":{},"a":` + strings.TrimSuffix(strings.TrimPrefix(nested(maxParseDepth), `{"a":`), "}")},
		"too_deep":           {nested(maxParseDepth + 1), untouched},
		"brackets_in_string": {`{"a":"[{\"[{"}`, untouched + `,"a":"\"[{\\\"[{\""`},
	} {
		t.Run(name, func(t *testing.T) {
			metadata := object{"Id": json.RawMessage(`"\"1\""`), "sys": json.RawMessage(`{}`)}
			metadata.merge([]byte(test.content))
			var want object
			if err := json.Unmarshal([]byte("{"+test.want+"}"), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(encode(want)), string(encode(metadata))); diff != "" {
				t.Errorf("metadata (-want +got):\n%s", diff)
			}
		})
	}
}

func nested(levels int) string {
	return strings.Repeat(`{"a":`, levels-1) + "{}" + strings.Repeat("}", levels-1)
}

func TestMetadataDates(t *testing.T) {
	for in, want := range map[string]string{
		"":                             "",
		"hello":                        "hello",
		"2026-01-02T03:04:05Z":         "01/02/2026 03:04:05",
		"2026-01-02T03:04:05":          "01/02/2026 03:04:05",
		"2026-01-02T03:04:05.9876543Z": "01/02/2026 03:04:05",
		"2026-01-02T03:04:05+02:00":    "01/02/2026 01:04:05",
		"2026-01-02":                   "2026-01-02",
		"2026-01-02 03:04:05Z":         "2026-01-02 03:04:05Z",
		"2026-13-02T03:04:05Z":         "2026-13-02T03:04:05Z",
		"at 2026-01-02T03:04:05Z":      "at 2026-01-02T03:04:05Z",
	} {
		if got := convertDate(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}
