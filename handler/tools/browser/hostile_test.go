package browser_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/observers/sight"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
	"asynccaller/handler/tools/browser"
)

// hostileTexts run a script or spoil the page, wherever they are not text.
var hostileTexts = []string{
	`<script>alert(1)</script>`, `<img src=x onerror=alert(1)>`, `"><svg onload=alert(1)>`,
	`' autofocus onfocus=alert(1) x='`, `</title><script>alert(1)</script>`, `</pre></main><h1>broken`,
	`javascript:alert(1)`, "{{.Account}}${alert(1)}", `<style>*{display:none}</style>`,
	`<base href=http://127.0.0.1:1/>`, `<iframe src=//127.0.0.1:1>`, `--><!--`,
	"`touch written`$(touch written);touch written", "'; touch written; '", "\u202eright to left\u2066",
	strings.Repeat("a\u0300\u0301\u0302\u0303", 40), "\x1b[2Jterminal",
	`<link rel=stylesheet href=//127.0.0.1:1>`, `<meta http-equiv=refresh content="0;url=//127.0.0.1:1">`,
	"&lt;b&gt; &#0;", strings.Repeat("W", 480), "line\r\nbreak\u2028\u2029", "--help",
}

// hostileContents are the contents of 31 messages.
func hostileContents() (contents []string) {
	for n, text := range hostileTexts {
		encoded := must(json.Marshal(map[string]any{
			"asyncCaller": 1, "requestId": fmt.Sprintf("r%d", n) + text, "attempts": 1,
			"context": map[string]any{text: text},
			"call": map[string]any{
				"url":     "https://crm.example.com/" + url.PathEscape(text) + "?q=" + url.QueryEscape(text),
				"method":  "POST",
				"headers": map[string]any{"X-Hostile": strings.Map(printable, text)},
				"json":    map[string]any{"text": text},
			},
			"trail": []any{map[string]any{"at": "2026-01-01T00:00:00Z", "error": text, "tookMs": 1}},
			"deadLetter": map[string]any{
				"at": "2026-01-01T00:00:00Z", "reason": text, "detail": text, "queue": text, "attempts": 1,
				"answer": map[string]any{"status": 500, "mediaType": "text/html", "text": text},
			},
		}))
		contents = append(contents, string(encoded))
	}
	return append(contents,
		"\xff\xfe\x00\x80 no UTF-8 \xc3\x28", "", "<script>alert(1)</script>", strings.Repeat("W", 48<<10),
		`{"asyncCaller":1,"requestId":"<b>","call":{}}`, `{"asyncCaller":1,"call":{"url":"javascript:alert(1)"}}`,
		`{"asyncCaller":1,"call":{"url":"https://<script>alert(1)</script>/"}}`,
		`{"RawRequest":{"Id":"<script>alert(1)</script>","CallOut":"*"},"Organization":"<b>"}`,
	)
}

// printable leaves out the characters that a header must not have.
func printable(r rune) rune {
	if r < ' ' {
		return -1
	}
	return r
}

// hostile fills the account with texts of an attacker who can write to every queue and table.
func (s *sample) hostile() {
	s.t.Helper()
	ctx := s.t.Context()
	for _, content := range hostileContents() {
		_, err := s.store.Put(ctx, poisonQueue, storage.Item{Text: storage.Base64.Encode([]byte(content))})
		s.must(err)
	}
	s.poison(0, storage.MaxBatch) // so that rows are needed
	var deadLetters []record.Row
	for n, text := range hostileTexts {
		text = strings.ToValidUTF8(text, "")
		deadLetters = append(deadLetters, record.Row{
			Key: storage.Key{Partition: poisonQueue, ID: id(4, n)}, RequestID: text, Method: text, TargetHost: text,
			PathPattern: text, Reason: text, Cause: text, Answer: text, Organization: text, Environment: text,
			Main: text, Format: text, Error: text, Since: s.now, InsertedAt: s.now, Content: []byte(text),
		})
		host := fmt.Sprint(n) + text
		s.target(sight.Target{
			Host: host, Reason: text, Cause: text, Answer: text, Since: s.now, Latest: s.now,
		})
		s.must(rows.Put(ctx, s.table(storage.ScheduledTable), record.Row{
			Key: storage.Key{Partition: mainQueue, ID: id(2, n)}, RequestID: text, Method: text, TargetHost: text,
			PathPattern: text, Reason: text, Cause: text, Answer: text, Organization: text, Environment: text,
			NextAttemptAt: s.now.Add(time.Hour), Deadline: s.now.Add(2 * time.Hour), CreatedAt: s.now,
			Content: []byte(text),
		}))
		s.publish(n, run.Summary{Command: text, State: text, Of: text}, text)
	}
	s.recorded(deadLetters)
}

// hostilePages are the pages that show these texts.
func (f *fixture) hostilePages() []string {
	pages := []string{"", "runs"}
	for _, by := range message.PoisonCriteria() {
		pages = append(pages, "poison?by="+string(by))
	}
	for _, by := range message.ScheduledCriteria() {
		pages = append(pages, "scheduled?by="+string(by))
	}
	for n, text := range hostileTexts { // the lists have each text in both states
		pages = append(pages, "target?host="+url.QueryEscape(fmt.Sprint(n)+text))
		if n%2 == 0 {
			pages = append(pages, "call?id="+id(2, n), "scheduled?by=host&key="+url.QueryEscape(text))
		} else {
			pages = append(pages, "call?id="+id(4, n), "poison?by=reason&key="+url.QueryEscape(text))
		}
	}
	for _, m := range must(f.store.Peek(f.t.Context(), poisonQueue, storage.MaxBatch)) {
		pages = append(pages, "call?id="+m.ID)
	}
	return pages
}

// TestHostile: whatever messages and rows contain is text on the page.
func TestHostile(t *testing.T) {
	f := start(t)
	f.hostile()
	for _, path := range f.hostilePages() {
		p := f.browser.Open(t, f.address+path, browser.Options{Width: 390, Height: 844})
		if i := p.Incidents(); len(i.CSP)+len(i.Dialogs)+len(i.Foreign) > 0 {
			t.Errorf("%s: %+v", path, i)
		}
		if p.Overflows() {
			t.Errorf("%s is wider than the screen", path)
		}
		if brand := browser.Run(p, text("header .name")); brand != "Async Caller" {
			t.Errorf("%s: the header is %q", path, brand)
		}
	}
}
