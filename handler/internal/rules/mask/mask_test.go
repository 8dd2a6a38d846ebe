package mask_test

import (
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/mask"
)

func TestSchemes(t *testing.T) {
	for value, want := range map[string]string{
		"Bearer abc": "Bearer ***", "basic abc": "basic ***", "SharedKey a:b": "SharedKey ***",
		"AWS4-HMAC-SHA256 Credential=a": "AWS4-HMAC-SHA256 ***",
		"abc def":                       "***", "Bearer": "***", "Bearer ": "***", "": "",
	} {
		content := fmt.Sprintf(`{"Authorization":%q}`, value)
		if got := string(mask.ShowContent([]byte(content),
			mask.Hidden)); got != fmt.Sprintf("{\n  \"Authorization\": %q\n}\n", want) {
			t.Errorf("%q is shown as %s", value, got)
		}
	}
}

func TestURLs(t *testing.T) {
	for url, want := range map[string]string{
		"https://h.example/a":                 "https://h.example/a",
		"https://u@h.example/":                "https://***@h.example/",
		"https://u:p@ss@h.example/":           "https://***@h.example/",
		"https://u:p/w@h.example/":            "***", // no port
		"https://h.example/%zz?code=x":        "***",
		"https://h example/?code=x":           "https://h ***",
		"//u:p@h.example/?a=1":                "//***@h.example/?a=***",
		"/a/token=x/b":                        "/a/token=***",
		"https://h.example:80/a@b":            "https://h.example:80/a@b",
		"http://[::1]:80/a@b":                 "http://[::1]:80/a@b",
		"https://h.example/?a=1&b&c=&d=x=y":   "https://h.example/?a=***&***&c=&d=***",
		"https://h.example/?a=1?b=2#t=3":      "https://h.example/?a=***#***",
		"amqps://u:p@h/v?x=y":                 "amqps://***@h/v?x=***",
		"https://h.example/?q=a b&code=x":     "https://h.example/?q=*** ***",
		"https://h.example/a;session=x/b?c=d": "https://h.example/a;session=***?c=***",
	} {
		content, _ := json.Marshal(map[string]string{"u": url})
		wanted := "{\n  \"u\": \"" + want + "\"\n}\n"
		if got := string(mask.ShowContent(content, mask.Hidden)); got != wanted {
			t.Errorf("%s is shown as %s", url, got)
		}
	}
}

// TestCredentialsInTexts masks a credential after its scheme in whatever holds the text.
func TestCredentialsInTexts(t *testing.T) {
	answer := func(mediaType, text string) string {
		return `{"asyncCaller":1,"call":{"url":"http://t.example"},"deadLetter":{"at":"2026-11-01T00:00:00Z",` +
			`"reason":"rejected","queue":"async-caller","attempts":1,"answer":{"status":401,"mediaType":"` + mediaType +
			`","text":` + quoted(text) + `}}}`
	}
	call := func(members string) string {
		return `{"asyncCaller":1,"call":{"url":"http://t.example",` + members + `}}`
	}
	for name, content := range map[string]string{
		"json_body":     call(`"json":{"error":"sent Bearer CANARY-1"}`),
		"json_name":     call(`"json":{"sent Bearer CANARY-1":1}`),
		"json_in_json":  call(`"json":{"e":"{\"error\":\"sent Bearer CANARY-1\"}"}`),
		"json_text":     call(`"json":"sent Bearer CANARY-1"`),
		"xml":           call(`"body":"<a b=\"Bearer CANARY-1\">sent Basic CANARY-1<!-- Bearer CANARY-1 --></a>"`),
		"html":          call(`"headers":{"Content-Type":"text/html"},"body":"<p>Bearer CANARY-1"`),
		"form":          call(`"headers":{"Content-Type":"application/x-www-form-urlencoded"},"body":"a=Bearer+CANARY-1"`),
		"header":        call(`"headers":{"X-Forwarded":"Bearer CANARY-1"}`),
		"header_list":   call(`"headers":{"X-Forwarded":["a","Basic CANARY-1"]}`),
		"context":       `{"asyncCaller":1,"call":{"url":"http://t.example"},"context":["Bearer CANARY-1"]}`,
		"answer_json":   answer("application/json", `{"error":"Bearer CANARY-1"}`),
		"answer_html":   answer("text/html", "<html><body>Bearer CANARY-1</body></html>"),
		"answer_text":   answer("text/plain", "sent Bearer CANARY-1"),
		"nexus_context": `{"RawRequest":{"Context":"` + inBase64(`{"a":"Bearer CANARY-1"}`) + `"}}`,
		"nexus_header": `{"RawRequest":{"CallOut":"` +
			inBase64("GET / HTTP/1.1\r\nHost: t.example\r\nX-A: Bearer CANARY-1\r\n\r\n") + `"}}`,
		"nexus_status": `{"LatestResponse":"` + inBase64("HTTP/1.1 401 sent Bearer CANARY-1\r\n\r\n") + `"}`,
	} {
		shown := string(mask.ShowContent([]byte(content), mask.Hidden))
		if e, err := envelope.Parse([]byte(content)); err == nil {
			shown += fmt.Sprintf("%+v %+v", mask.ShowCall(e, mask.Hidden), mask.ShowAnswer(e, mask.Hidden))
		}
		if strings.Contains(shown, "CANARY") {
			t.Errorf("%s is shown as %s", name, shown)
		}
	}
}

// TestBrokenMessages cuts messages at each byte. None may show a secret.
func TestBrokenMessages(t *testing.T) {
	for name, content := range map[string]string{"native": nativeSecrets, "nexus": nexusSecrets} {
		for n := range len(content) {
			got := string(mask.ShowContent([]byte(content[:n]), mask.Hidden))
			if strings.Contains(got, "CANARY") ||
				strings.Contains(strings.Join(strings.Fields(got), ""),
					base64.StdEncoding.EncodeToString([]byte("PUT /orders?code="))[:20]) {
				t.Fatalf("%s of %d bytes is shown as %s", name, n, got)
			}
			mustBePrintable(t, got)
		}
	}
}

// FuzzSecrets checks that secrets are masked among any other text.
func FuzzSecrets(f *testing.F) {
	for _, seed := range []string{
		"", "a", "\x1b[2J\u202e", `"`, `\"`, "<key>", "http://x", `{"a":`, "a=b&c", ": ", "\r\n\r\n", "%", "'",
		"Bearer ", "\xff\x00",
	} {
		f.Add(seed, "x"+seed)
	}
	f.Add("<key", "\xff\xff>")
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, content := range planted(a, b) {
			outputs := []string{
				string(mask.ShowContent([]byte(content), mask.Hidden)),
				string(mask.Diff([]byte(content), []byte(nativeSecrets), mask.Hidden)),
				string(mask.Diff([]byte(nexusSecrets), []byte(content), mask.Hidden)),
				string(mask.ShowContent([]byte(content+a), mask.Hidden)),
			}
			if e, err := envelope.Parse([]byte(content)); err == nil {
				outputs = append(outputs, fmt.Sprint(mask.ShowCall(e, mask.Hidden)))
				mustBePrintable(t, fmt.Sprint(mask.ShowCall(e, mask.Revealed)))
			}
			for _, output := range outputs {
				if strings.Contains(output, "CANARY") {
					t.Errorf("%s\nis shown as\n%s", content, output)
				}
				mustBePrintable(t, output)
			}
			mustBePrintable(t, string(mask.ShowContent([]byte(content), mask.Revealed)))
		}
	})
}

func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text))
	return b.String()
}

// planted returns messages with secrets beside two texts that are not secret.
func planted(a, b string) []string {
	a, b = strings.ReplaceAll(a, "CANARY", ""), strings.ReplaceAll(b, "CANARY", "")
	inner := `{"x":` + quoted(a) + `,"password":"CANARY","y":[{"apiKey":{"z":"CANARY"}},` + quoted(b) + `]}`
	text := a + "\npassword=CANARY\n" + b +
		"\nAuthorization: Bearer CANARY\nhttps://u:CANARY@h.example/?a=CANARY\n<o:Token>CANARY</o:Token>"
	call := func(members string) string {
		return `{"asyncCaller":1,"call":{"url":"https://u:CANARY@t.example/p?code=CANARY",` + members + `},"context":` +
			inner + `}`
	}
	return []string{
		call(`"headers":{"Authorization":"Bearer CANARY","X-Key":["CANARY"]},"json":` + inner),
		call(`"body":` + quoted(inner)),
		call(`"body":` + quoted(text)),
		call(`"json":{"text":` + quoted(text) + `,"link":` + quoted("https://u:CANARY@"+a+"/?x=CANARY") + `}`),
		call(`"body":` + quoted("<a>"+escaped(text)+"<password>"+escaped(a)+"CANARY</password><b c='"+escaped(text)+
			"' key='CANARY'/></a>")),
		call(`"headers":{"Content-Type":"application/x-www-form-urlencoded"},"body":` +
			quoted("a="+url.QueryEscape(text)+"&password"+url.QueryEscape(a)+"=CANARY")),
		call(`"body":` + quoted(`{"s":`+quoted(inner)+`}`)),
		call(`"bodyBase64":"` + inBase64(text) + `"`),
		`{"RawRequest":{"Title":"PUT https://t.example/?x=CANARY","CallOut":"` +
			inBase64("PUT /?x=CANARY HTTP/1.1\r\nHost: t.example\r\nX-Token: CANARY\r\nContent-Type: "+
				"text/plain\r\n\r\n"+text) + `","Context":"` + inBase64(inner) + `"}}`,
		text,
	}
}
