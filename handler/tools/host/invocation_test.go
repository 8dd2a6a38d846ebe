package host

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/queue"
)

const forgery = `{"Id":"42","url":"https://t.example/hook","n":5,"ok":true,"when":"2026-01-02T03:04:05Z",` +
	`"tags":["a","b"],"sys":{"MethodName":"evil"},"popreceipt":"FORGED","none":null}`

func testInvocation(dataType functionapp.DataType, content string) invocation {
	inserted := time.Date(2026, 11, 20, 22, 18, 1, 0, time.UTC)
	return invocation{
		function: functionapp.Function{Name: "QueueFn", Binding: "msg", Queue: "work", DataType: dataType},
		message: queue.Message{
			ID:            "ac42afd5-35e5-4258-928c-16de063c24b1",
			PopReceipt:    "AgAAAAMAAAAAAAAAAgtnj8x+1QE=",
			DequeueCount:  1,
			InsertedAt:    inserted,
			ExpiresAt:     inserted.Add(7 * 24 * time.Hour),
			NextVisibleAt: time.Date(2026, 11, 20, 22, 28, 5, 999e6, time.UTC),
		},
		content:  []byte(content),
		now:      time.Date(2026, 11, 20, 22, 18, 5, 123456700, time.UTC),
		randGUID: "24ad4c06-24ad-4e5b-8294-3da9714877e9",
	}
}

// The golden files are the worked bodies of the Functions host contract.
func TestInvocation_body(t *testing.T) {
	for name, inv := range map[string]invocation{
		"text_plain":    testInvocation(functionapp.DataString, "hello"),
		"text_object":   testInvocation(functionapp.DataString, forgery),
		"text_array":    testInvocation(functionapp.DataString, `[1,"two"]`),
		"binary_object": testInvocation(functionapp.DataBinary, forgery),
	} {
		t.Run(name, func(t *testing.T) {
			golden, err := os.ReadFile(filepath.Join("testdata", "invocation", name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			var want bytes.Buffer
			if err := json.Compact(&want, golden); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.String(), string(inv.body())); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInvocation_body_edges(t *testing.T) {
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
			if err := json.Unmarshal(testInvocation(test.dataType, test.content).body(), &got); err != nil {
				t.Fatal(err)
			}
			if string(got.Data["msg"]) != test.want {
				t.Errorf("Data is %s, want %s", got.Data["msg"], test.want)
			}
		})
	}
}

func TestInvocation_never_expires(t *testing.T) {
	inv := testInvocation(functionapp.DataBinary, "hello")
	inv.message.ExpiresAt = time.Time{}
	if !bytes.Contains(inv.body(), []byte(`"ExpirationTime":"9999-12-31T23:59:59+00:00"`)) {
		t.Errorf("body is %s, want .NET's last moment", inv.body())
	}
}

func TestAppendString(t *testing.T) {
	for in, want := range map[string]string{
		"":                     `""`,
		`a"b\c/d`:              `"a\"b\\c/d"`,
		"\b\t\n\f\r\x00\x1f":   `"\b\t\n\f\r\u0000\u001f"`,
		"\u0085\u2028\u2029":   `"\u0085\u2028\u2029"`,
		"<é>&\U0001F600\u007f": "\"<é>&\U0001F600\u007f\"",
	} {
		if got := string(appendString(nil, in)); got != want {
			t.Errorf("appendString(%q) = %s, want %s", in, got, want)
		}
	}
}

func FuzzInvocation_body(f *testing.F) {
	for _, seed := range []string{"", "hello", forgery, "[1]", "\xff", `{"sys":{"a":[1e400]},"A":"1","a":2}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		for _, dataType := range []functionapp.DataType{functionapp.DataBinary, functionapp.DataString} {
			var got struct {
				Data     map[string]string
				Metadata map[string]json.RawMessage
			}
			if err := json.Unmarshal(testInvocation(dataType, content).body(), &got); err != nil {
				t.Fatalf("%s: %v", dataType, err)
			}
			if len(got.Data) != 1 || len(got.Metadata) < 7 {
				t.Errorf("%s: %d members in Data and %d in Metadata", dataType, len(got.Data), len(got.Metadata))
			}
		}
	})
}
