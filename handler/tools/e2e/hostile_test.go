package e2e_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/storage"
)

// hostileContents returns messages of an attacker. Those of letters become dead letters, byte for byte. Those of
// calls are called once each, at the path of their name and nowhere else.
func hostileContents(host string) (letters, calls map[string]string) {
	room := storage.Base64.MaxContentBytes()
	native := func(name, members string) string {
		return fmt.Sprintf(`{"asyncCaller":1,"requestId":%q,"call":{"url":"http://u:p@%s/%s"%s}}`, name, host,
			name, members)
	}
	nexus := func(name, lines, body string) string {
		callOut := fmt.Sprintf("POST /%s HTTP/1.1\r\nHost: %s\r\n%s\r\n%s", name, host, lines, body)
		const tenant = `"Organization":"\u001b[2J\u2028\u009b31m\u202e","Environment":"\u0085\u2066\u200f\u061c"`
		return fmt.Sprintf(`{`+tenant+`,"RawRequest":{"Id":%q,"CallOut":%q,"Priority":1099511627776}}`,
			name, base64.StdEncoding.EncodeToString([]byte(callOut)))
	}
	numbered := func(text string, size int) string {
		var f strings.Builder
		for f.Len() < size {
			fmt.Fprintf(&f, text, f.Len())
		}
		return f.String()
	}
	smuggled := fmt.Sprintf("GET /smuggled HTTP/1.1\r\nHost: %s\r\n\r\n", host)
	letters = map[string]string{
		"empty":         "",
		"null":          "null",
		"arrays":        strings.Repeat("[", room),
		"objects":       strings.Repeat(`{"":`, room/4),
		"invalid UTF-8": native("x", `,"body":"`+"\xff\xc0\xaf"+`"`),
		"control":       "\x00\x01\x1b[2J\x07",
		"members":       "{" + numbered(`"%x":0,`, room-100) + `"z":0}`,
		"duplicate":     native("x", `,"method":"GET","\u006dethod":"POST"`),
		"number":        `{"asyncCaller":1,"attempts":1e999999,"call":{"url":"http://t.example/"}}`,
		"header":        native("x", `,"headers":{"X-A":"a\r\n\r\nGET /smuggled HTTP/1.1"}`),
		"half pair":     native("x", `,"body":"\ud800"`),
		"host":          `{"asyncCaller":1,"call":{"url":"http://` + strings.Repeat("a.", 20000) + `/"}}`,
		"nested":        strings.Repeat(`{"RawRequest":`, 3000) + "{}" + strings.Repeat("}", 3000),
		"nexus header":  nexus("x", "X-A: a\nX-B: b\r\n", ""),
		"bidi name":     native("x", `,"\u202e\u009b2J":1,"\u202e\u009b2J":2`),
		"bidi method":   native("x", `,"method":"\u202e\u009b2J"`),
		"nexus garbage": `{"RawRequest":{"CallOut":"####"}}`,
	}
	calls = map[string]string{
		"marked":     "\ufeff" + native("marked", ""),
		"deep":       native("deep", `,"json":`+strings.Repeat("[", 9998)+strings.Repeat("]", 9998)),
		"commas":     native("commas", `,"headers":{"Connection":"`+strings.Repeat(",", 40000)+`"}`),
		"headers":    native("headers", `,"headers":{`+numbered(`"h%x":"",`, room-3000)+`"z":""}`),
		"long":       native("long", `,"headers":{"X-A":"`+strings.Repeat("v", room-3000)+`"}`),
		"separators": native("separators", `,"headers":{"X-A":"a\u2028b\u0085c"}`),
		"times":      strings.Replace(native("times", ""), "{", `{"createdAt":"9999-12-31T23:59:59Z",`, 1),
		"trap": strings.Replace(native("trap", ""), "{",
			`{"DequeueCount":{},"Id":[],"PopReceipt":1e999,"sys":null,"trigger":{},`, 1),
		"length":        nexus("length", "Content-Length: 0\r\n", smuggled),
		"chunked":       nexus("chunked", "Transfer-Encoding: chunked\r\nContent-Type: a/b\r\n", "0\r\n\r\n"+smuggled),
		"correlation":   native("correlation", `,"headers":{"X-Correlation-ID":"a\u009b31m\u202eb"}`),
		"fold":          nexus("fold", "X-A: a\r\n b\r\n", smuggled),
		"nexus_headers": nexus("nexus_headers", strings.Repeat("a:\r\n", 8000), ""),
	}
	return letters, calls
}

// TestHostileMessages checks that no message makes the handler exit: each is called as it says, or becomes a dead
// letter with unchanged bytes, and the same process delivers the next good message.
func TestHostileMessages(t *testing.T) {
	t.Parallel()
	for _, dataType := range []string{"binary", "string"} {
		t.Run(dataType, func(t *testing.T) {
			t.Parallel()
			deliverHostile(t, dataType)
		})
	}
}

func deliverHostile(t *testing.T, dataType string) {
	t.Helper()
	f := newFixture(t, options{dataType: dataType})
	var mu sync.Mutex
	called := map[string]int{}
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		called[strings.TrimPrefix(r.URL.Path, "/")]++
	}))
	t.Cleanup(target.Close)
	letters, calls := hostileContents(target.Listener.Addr().String())
	f.start(nil)
	f.put("first", "200", "")
	f.await("the first good message", func() bool { return len(f.target.Calls("first")) == 1 })
	f.await("the host's line", func() bool { return f.host.HandlerPID() != 0 })
	handler := f.host.HandlerPID()

	var want []string
	for _, content := range letters {
		if dataType == "string" && !utf8.ValidString(content) {
			continue // the host does not invoke the handler for it
		}
		want = append(want, content)
		f.putContent([]byte(content))
	}
	wantCalls := map[string]int{}
	for name, content := range calls {
		wantCalls[name] = 1
		f.putContent([]byte(content))
	}
	f.awaitEmpty()
	f.put("last", "200", "")
	f.await("the last good message", func() bool { return len(f.target.Calls("last")) == 1 })
	f.awaitEmpty()

	if now := f.host.HandlerPID(); now != handler || len(f.host.Lines("handler ready")) > 1 {
		t.Errorf("handler %d became %d", handler, now)
	}
	if panics := f.host.Lines("panic"); len(panics) > 0 {
		t.Errorf("%d panics: %v", len(panics), panics[0])
	}
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(wantCalls, called); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	var got []string
	for _, content := range f.drain(poisonQueue) {
		got = append(got, string(content))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d dead letters, want %d with unchanged bytes", len(got), len(want))
		for _, content := range got {
			if !slices.Contains(want, content) {
				t.Errorf("changed: %.200q", content)
			}
		}
	}
	printed := f.host.Output()
	if underFunc { // it prints lines of its own
		printed = ""
	}
	for line := range bytes.Lines([]byte(printed)) {
		unprintable := func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }
		if len(line) > 4<<10 || !utf8.Valid(line) || bytes.ContainsFunc(line, unprintable) {
			t.Errorf("printed %.300q (%d bytes)", line, len(line))
		}
	}
	f.mustDeliverOnce()
}
