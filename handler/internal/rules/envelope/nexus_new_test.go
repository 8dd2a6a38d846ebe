package envelope_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/rules/envelope"
)

var (
	tenant       = envelope.Tenant{Organization: "acme", Environment: "prod"}
	nextDeadline = arrival.Add(7 * 24 * time.Hour)
)

// TestToNexus checks that the message is the one that the C# SDK would write.
func TestToNexus(t *testing.T) {
	native := accept(t, `{"asyncCaller":1,"requestId":"order-42","priority":3,"notBefore":"2026-01-31T13:00:00Z","context":{"k":1},
		"call":{"url":"https://target.example:8443/a%2Fb?x=1+2","headers":{"x-one":"å","Accept":["a","b"]},"json":{"a":1}},
		"callback":{"url":"http://sender.example/done?y","method":"PUT","headers":{"X-Own":"1"}}}`)
	got, err := native.ToNexus(tenant, nextDeadline)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"Organization":"acme","Environment":"prod","OriginalRequestId":"order-42","Attempts":0,` +
		`"CreatedAt":"2026-01-31T12:00:00+00:00",` +
		`"LatestAttemptAt":"0001-01-01T00:00:00+00:00","LatestResponse":null,` +
		`"DeadlineAt":"2026-02-07T12:00:00+00:00","NextAttemptAt":"2026-01-31T13:00:00+00:00",` +
		`"RawRequest":{"Id":"order-42","Title":"POST https://target.example:8443/a%2Fb?x=1+2 (order-42)","Context":"` +
		inBase64(`{"k":1}`) + `",` +
		`"CallOut":"` + inBase64("POST /a%2Fb?x=1+2 HTTP/1.1\r\nHost: target.example:8443\r\nAccept: a, b\r\n"+
		"x-one: å\r\nContent-Type: application/json\r\n\r\n"+`{"a":1}`) + `",` +
		`"CallOutUriScheme":"https","CallBack":"` +
		inBase64("PUT /done?y HTTP/1.1\r\nHost: sender.example\r\nX-Own: 1\r\n\r\n") +
		`","CallBackUriScheme":"http","Priority":3}}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}

func TestToNexusMinimal(t *testing.T) {
	got, err := accept(t, `{"asyncCaller":1,"call":{"url":"http://target.example"}}`).
		ToNexus(envelope.Tenant{}, nextDeadline)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"Organization":null,"Environment":null,"OriginalRequestId":"message-1","Attempts":0,` +
		`"CreatedAt":"2026-01-31T12:00:00+00:00",` +
		`"LatestAttemptAt":"0001-01-01T00:00:00+00:00","LatestResponse":null,` +
		`"DeadlineAt":"2026-02-07T12:00:00+00:00","NextAttemptAt":"0001-01-01T00:00:00+00:00",` +
		`"RawRequest":{"Id":"message-1","Title":"GET http://target.example (message-1)","Context":null,` +
		`"CallOut":"` + inBase64("GET / HTTP/1.1\r\nHost: target.example\r\n\r\n") + `",` +
		`"CallOutUriScheme":"http","CallBack":null,"CallBackUriScheme":null,"Priority":null}}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}

// TestToNexusIsTheSameCall checks that the message has the same call.
func TestToNexusIsTheSameCall(t *testing.T) {
	for name, call := range map[string]string{
		"get":            `{"url":"http://target.example/"}`,
		"no_path":        `{"url":"http://target.example?x"}`,
		"escapes":        `{"url":"HTTPS://target.example//a%2f%C3%A5/b;c?d=%2B+&e"}`,
		"port":           `{"url":"http://127.0.0.1:8080/"}`,
		"ipv6":           `{"url":"http://[::1]:8080/"}`,
		"own_host":       `{"url":"http://target.example/","headers":{"Host":"TARGET.example"}}`,
		"text":           `{"url":"http://target.example/","body":"två","headers":{"Content-Type":"text/plain"}}`,
		"text_no_type":   `{"url":"http://target.example/","body":"hello"}`,
		"empty_body":     `{"url":"http://target.example/","body":""}`,
		"bytes":          `{"url":"http://target.example/","bodyBase64":"AA0KDQr/"}`,
		"json":           `{"url":"http://target.example/","json":[ 1.0 ]}`,
		"custom_method":  `{"url":"http://target.example/","method":"ReIndex"}`,
		"header_no_body": `{"url":"http://target.example/","headers":{"Content-Language":"sv"}}`,
		"cookies":        `{"url":"http://target.example/","headers":{"Cookie":["a=1","b=2"]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			native := accept(t, `{"asyncCaller":1,"requestId":"r","call":`+call+
				`,"callback":{"url":"http://sender.example/"},"context":[1]}`)
			content, err := native.ToNexus(tenant, nextDeadline)
			if err != nil {
				t.Fatal(err)
			}
			again := accept(t, string(content))
			if again.Call.Method != native.Call.Method || string(again.Call.Body) != string(native.Call.Body) {
				t.Errorf("%s %q became %s %q", native.Call.Method, native.Call.Body, again.Call.Method, again.Call.Body)
			}
			if !sameURL(again.Call.URL, native.Call.URL) {
				t.Errorf("%s became %s", native.Call.URL, again.Call.URL)
			}
			for key, values := range native.Call.Header {
				if strings.Join(again.Call.Header[key], ", ") != strings.Join(values, ", ") {
					t.Errorf("%s: %v became %v", key, values, again.Call.Header[key])
				}
			}
			if again.RequestID != "r" || again.Callback == nil || string(again.Context) != "[1]" ||
				!again.Deadline.Equal(nextDeadline) || again.Tenant != tenant {
				t.Errorf("got %+v", again)
			}
		})
	}
}

// sameURL compares URLs without the letter case of the scheme, and treats an empty path as /.
func sameURL(a, b string) bool {
	normal := func(u string) string {
		u = strings.Replace(u, "HTTPS:", "https:", 1)
		return strings.Replace(u, "example?", "example/?", 1)
	}
	return normal(a) == normal(b)
}

func TestToNexusRefuses(t *testing.T) {
	message := func(call, more string) string { return `{"asyncCaller":1,"requestId":"r","call":` + call + more + `}` }
	const plain = `{"url":"http://target.example/"}`
	for name, c := range map[string]struct{ content, want string }{
		"retry":           {message(plain, `,"retry":"nexus"`), "retry: "},
		"giveup":          {message(plain, `,"giveUp":"drop"`), "giveUp: "},
		"tried_before":    {message(plain, `,"attempts":1`), "attempts: "},
		"unknown_member":  {message(plain, `,"mine":"C4nary"`), "mine: "},
		"timeout":         {message(`{"url":"http://target.example/","timeout":"30s"}`, ""), "call.timeout: "},
		"unknown_in_call": {message(`{"url":"http://target.example/","later":1}`, ""), "call.later: "},
		"unknown_in_callback": {
			message(plain, `,"callback":{"url":"http://sender.example/","later":1}`),
			"callback.later: ",
		},
		"other_host": {
			message(`{"url":"http://target.example/","headers":{"Host":"C4nary.example"}}`, ""),
			"call.headers.Host: ",
		},
		"user": {message(`{"url":"http://u:C4nary@target.example/"}`, ""), "call.url: "},
		"callback_other_host": {message(plain, `,"callback":{"url":"http://sender.example/",`+
			`"headers":{"Host":"C4nary.example"}}`), "callback.headers.Host: "},
		"callback_user": {
			message(plain, `,"callback":{"url":"http://u:C4nary@sender.example/"}`),
			"callback.url: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := accept(t, c.content).ToNexus(tenant, nextDeadline)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if strings.Contains(err.Error(), "C4nary") {
				t.Errorf("the error contains a secret: %v", err)
			}
		})
	}
	if _, err := accept(t, nexusMessage(plainCall, "")).ToNexus(tenant, nextDeadline); err == nil {
		t.Error("a Nexus envelope was converted again")
	}
}
