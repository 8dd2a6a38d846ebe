package call

import (
	"slices"
	"strings"
	"testing"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// TestPreviewRequeue checks that the preview agrees with requeue, and suggests the flags that help.
func TestPreviewRequeue(t *testing.T) {
	encode := func(content string) string { return storage.Base64.Encode([]byte(content)) }
	const dead = `{"asyncCaller":1,"requestId":"r0","call":{"url":"https://t.example/0"}}`
	const start = `{"asyncCaller":1,"call":{"url":"https://t.example/"},`
	for name, test := range map[string]struct {
		queue, text string
		to, refused string
		flags       string
	}{
		"accepted":  {"async-caller-poison", encode(dead), "async-caller", "", ""},
		"parked":    {"parking", encode(dead), "", "--to", "--to QUEUE"},
		"malformed": {"async-caller-poison", encode("{}"), "async-caller", "asyncCaller: missing", "--edit"},
		"undecodable": {
			"async-caller-poison", dead, "async-caller", "--fix-encoding takes it",
			"--fix-encoding",
		},
		"undecodable_parked": {"parking", dead, "", "--to", "--to QUEUE --fix-encoding"},
		"undecodable_text": {
			"async-caller-poison", "hello, world", "async-caller",
			"alone does not help: the message is malformed", "--edit",
		},
		"undecodable_refused": {
			"async-caller-poison", start + `"retry":"drunk"}`, "async-caller", "--set retry=",
			"--edit",
		},
		"policy": {"async-caller-poison", encode(start + `"retry":"drunk"}`), "async-caller", "--set retry=", "--edit"},
		"not_due_for_now": {
			"async-caller-poison", encode(start + `"notBefore":"2126-01-01T00:00:00Z"}`),
			"async-caller", "", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAccount(t, memory.New())
			found := account.Found{
				Message: message.Message{Queue: test.queue, Main: "evil", ID: "8a1b"},
				Text:    test.text,
			}
			got, err := previewRetry(t.Context(), a, found)
			if err != nil {
				t.Error(err)
			}
			if got.To != test.to || (got.Refused == "") != (test.refused == "") ||
				!strings.Contains(got.Refused, test.refused) {
				t.Errorf("%+v", got)
			}
			if (got.Explanation == nil) != (test.refused != "") {
				t.Errorf("explained %v, refused %q", got.Explanation != nil, got.Refused)
			}
			target := "8a1b --queue " + test.queue
			requeue := strings.TrimSpace("calls retry " + target + " " + test.flags)
			want := []string{requeue, "calls delete " + target}
			if got := nextForPoison(found.ID, found.Queue, got); !slices.Equal(got, want) {
				t.Errorf("next %q, want %q", got, want)
			}
		})
	}
}
