package envelope_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/rules/envelope"
)

func TestUnknownMembers(t *testing.T) {
	for name, test := range map[string]struct {
		content string
		want    []string
	}{
		"none": {
			`{"asyncCaller":1,"requestId":"r","call":{"url":"http://a","headers":{"X-Hedaer":"1"},` +
				`"json":{"dedline":1}},"context":{"cal":1},` +
				`"trail":[{"att":1}],"deadLetter":{"resaon":"x"},"retry":{"maxAttempts":1}}`,
			nil,
		},
		"top_level": {`{"asyncCaller":1,"deadlin":"x","call":{"url":"http://a"}}`, []string{"deadlin -> deadline"}},
		"letter_case": {
			`{"asyncCaller":1,"Deadline":"x","RequestID":"r","call":{"URL":"http://a"}}`,
			[]string{"Deadline -> deadline", "RequestID -> requestId", "call.URL -> call.url"},
		},
		"call": {
			`{"asyncCaller":1,"call":{"url":"http://a","tiemout":"5s","header":{}}}`,
			[]string{"call.tiemout -> call.timeout", "call.header -> call.headers"},
		},
		"callback": {`{"asyncCaller":1,"call":{"url":"http://a"},"callback":{"url":"http://b","metod":"PUT",` +
			`"body":"x"}}`, []string{"callback.metod -> callback.method", "callback.body -> call.body"}},
		"wrong_object": {
			`{"asyncCaller":1,"timeout":"5s","call":{"url":"http://a","deadline":"x"}}`,
			[]string{"timeout -> call.timeout", "call.deadline -> deadline"},
		},
		"null":       {`{"asyncCaller":1,"deadlin":null,"call":{"url":"http://a"}}`, []string{"deadlin -> deadline"}},
		"no_similar": {`{"asyncCaller":1,"x-note":"n","call":{"url":"http://a"}}`, []string{"x-note -> "}},
		"malformed":  {`{"asyncCaller":1,"cal":{"url":"http://a"}}`, []string{"cal -> call"}},
		"call_is_no_object": {
			`{"asyncCaller":1,"call":[{"uri":1}],"callback":null,"prioritet":1}`,
			[]string{"prioritet -> priority"},
		},
		"no_marker": {
			`{"asynccaler":1,"call":{"url":"http://a","C4nary":1},"C4nary":1}`,
			[]string{"asynccaler -> asyncCaller"},
		},
		"logic_apps": {`{"$content-type":"a/b","$content":{"asyncCaller":1}}`, nil},
		"content":    {`{"$content":{"asyncCaller":1}}`, []string{"$content -> context"}},
		"nexus": {
			`{"organization":"o","DeadlinAt":"x","RawRequest":{"ID":"1","CallOut":"","Prioriti":1},"Trail":[]}`,
			[]string{"DeadlinAt -> DeadlineAt", "RawRequest.Prioriti -> RawRequest.Priority"},
		},
		"both_formats":  {`{"asyncCaller":1,"RawRequest":{"x":1}}`, []string{"RawRequest -> "}},
		"not_an_object": {`["deadlin"]`, nil},
		"not_json":      {`deadlin`, nil},
		"hostile_name": {`{"asyncCaller":1,"Authorization: Bearer C4nary":1,"\u001b[2J":1,"` + strings.Repeat("n",
			1000) + `":1}`, []string{"Authorization… -> ", "… -> ", strings.Repeat("n", 40) + "… -> "}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, u := range envelope.UnknownMembers([]byte(test.content)) {
				got = append(got, u.Path+" -> "+u.Nearest)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("unknown members (-want +got):\n%s", diff)
			}
		})
	}
}

// TestVitalMembers: a sender must learn that an envelope has no callback or no deadline, although one was meant.
func TestVitalMembers(t *testing.T) {
	for content, want := range map[string]bool{
		`{"asyncCaller":1,"callbak":{}}`:                                              true,
		`{"asyncCaller":1,"callbackUrl":"http://b"}`:                                  true,
		`{"asyncCaller":1,"DEADLINE":"x"}`:                                            true,
		`{"asyncCaller":1,"deadlineUtc":"x"}`:                                         true,
		`{"asyncCaller":1,"callback":null,"CallBack":{}}`:                             true,
		`{"asyncCaller":1,"call":{"url":"http://a","callback":{}}}`:                   true,
		`{"asyncCaller":1,"callback":{"url":"http://b"},"callbackNote":1}`:            false,
		`{"asyncCaller":1,"callback":{"metod":"PUT"}}`:                                false,
		`{"asyncCaller":1,"prioritet":1,"retri":"io","giveup":"drop","notBefor":"x"}`: false,
		`{"asyncCaller":1,"context":{"callbak":1}}`:                                   false,
		`{"RawRequest":{"CallBak":"x"}}`:                                              true,
		`{"RawRequest":{},"callback":{}}`:                                             true,
		`{"RawRequest":{},"DeadlinAt":"x"}`:                                           true,
		`{"RawRequest":{},"DeadlinAt":"x","deadlineat":"y"}`:                          false,
		`{"RawRequest":{"CallBakUriScheme":"https","Titel":"x"}}`:                     false,
	} {
		isVital := func(u envelope.Unknown) bool { return u.Vital }
		if got := slices.ContainsFunc(envelope.UnknownMembers([]byte(content)), isVital); got != want {
			t.Errorf("%s: %v, want %v", content, got, want)
		}
	}
}

// TestManyUnknownMembers: a message may consist of nothing else.
func TestManyUnknownMembers(t *testing.T) {
	content := `{"asyncCaller":1`
	for n := range 1000 {
		content += fmt.Sprintf(`,"m%d":0`, n)
	}
	if got := len(envelope.UnknownMembers([]byte(content + "}"))); got != 100 {
		t.Errorf("%d members, want 100", got)
	}
}
