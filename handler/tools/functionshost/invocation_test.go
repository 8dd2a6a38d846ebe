package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/storage"
)

const testGUID = "24ad4c06-24ad-4e5b-8294-3da9714877e9"

var (
	testTime    = time.Date(2026, 11, 20, 22, 18, 5, 123456700, time.UTC)
	testMessage = storage.Message{
		ID:            "ac42afd5-35e5-4258-928c-16de063c24b1",
		PopReceipt:    "AgAAAAMAAAAAAAAAAgtnj8x+1QE=",
		DequeueCount:  1,
		InsertedAt:    time.Date(2026, 11, 20, 22, 18, 1, 0, time.UTC),
		ExpiresAt:     time.Date(2026, 11, 27, 22, 18, 1, 0, time.UTC),
		NextVisibleAt: time.Date(2026, 11, 20, 22, 28, 5, 999e6, time.UTC),
	}
)

func testInvocation(dataType functionapp.DataType, content string) invocation {
	fn := functionapp.Function{Name: "QueueFn", Binding: "msg", Queue: "work", DataType: dataType}
	return messageInvocation(fn, testMessage, []byte(content), testTime, testGUID)
}

// TestMessageInvocation compares bodies with the files from which the tests of ingress read invocations, apart from
// white space and the order of members.
func TestMessageInvocation(t *testing.T) {
	const object = `{"Id":"42","url":"https://t.example/hook","n":5,"ok":true,"when":"2026-01-02T03:04:05Z",` +
		`"tags":["a","b"],"sys":{"MethodName":"evil"},"popreceipt":"FORGED","none":null}`
	for name, inv := range map[string]invocation{
		"text_hello":    testInvocation(functionapp.DataString, "hello"),
		"text_array":    testInvocation(functionapp.DataString, `[1,"two"]`),
		"binary_object": testInvocation(functionapp.DataBinary, object),
	} {
		t.Run(name, func(t *testing.T) {
			golden, err := os.ReadFile(filepath.Join("../../internal/app/ingress/testdata/invocation", name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			var want, got any
			if err := errors.Join(json.Unmarshal(golden, &want), json.Unmarshal(inv.body, &got)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMessageInvocationContent(t *testing.T) {
	for name, test := range map[string]struct {
		dataType functionapp.DataType
		content  string
		want     string
	}{
		"text":         {functionapp.DataString, "a\"\n", `"a\"\n"`},
		"no_data_type": {"", "hello", `"hello"`},
		"empty_text":   {functionapp.DataString, "", `""`},
		"empty_binary": {functionapp.DataBinary, "", ``},
		"not_utf8":     {functionapp.DataBinary, "\xff\xfe", `//4=`},
	} {
		t.Run(name, func(t *testing.T) {
			var got struct{ Data map[string]string }
			if err := json.Unmarshal(testInvocation(test.dataType, test.content).body, &got); err != nil {
				t.Fatal(err)
			}
			if got.Data["msg"] != test.want {
				t.Errorf("Data is %s, want %s", got.Data["msg"], test.want)
			}
		})
	}
}

func TestTimerInvocation(t *testing.T) {
	const want = `{"Data":{"timer":{"IsPastDue":false,"Schedule":{"AdjustForDST":true},"ScheduleStatus":null}},` +
		`"Metadata":{"sys":{"MethodName":"TimerFn","RandGuid":"` + testGUID + `",` +
		`"UtcNow":"2026-11-20T22:18:05.1234567Z"}}}`
	timer := functionapp.Timer{Name: "TimerFn", Binding: "timer"}
	inv := timerInvocation(timer, testTime.In(time.FixedZone("", 2*60*60)), testGUID)
	if string(inv.body) != want {
		t.Errorf("body is %s, want %s", inv.body, want)
	}
}
