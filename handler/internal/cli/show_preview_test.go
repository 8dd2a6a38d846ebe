package cli

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/storage"
)

// TestPreviewRequeue checks that the preview agrees with requeue, and suggests the flags that help.
func TestPreviewRequeue(t *testing.T) {
	encode := func(content string) string { return storage.Base64.Encode([]byte(content)) }
	const start = `{"asyncCaller":1,"call":{"url":"https://t.example/"},`
	for name, test := range map[string]struct {
		queue, text string
		to, refused string
		flags       string
	}{
		"accepted":  {"async-caller-poison", encode(dead(1)[0]), "async-caller", "", ""},
		"parked":    {"parking", encode(dead(1)[0]), "", "--to", "--to QUEUE"},
		"malformed": {"async-caller-poison", encode("{}"), "async-caller", "asyncCaller: missing", "--edit"},
		"undecodable": {
			"async-caller-poison", dead(1)[0], "async-caller", "--fix-encoding takes it",
			"--fix-encoding",
		},
		"undecodable_parked": {"parking", dead(1)[0], "", "--to", "--to QUEUE --fix-encoding"},
		"undecodable_text": {
			"async-caller-poison", "hello, world", "async-caller",
			"alone does not help: the message is malformed", "--edit",
		},
		"undecodable_refused": {
			"async-caller-poison", start + `"retry":"drunk"}`, "async-caller", "--set retry=",
			"--edit",
		},
		"policy": {
			"async-caller-poison", encode(start + `"retry":"drunk"}`), "async-caller",
			"--set retry=", "--edit",
		},
		"not_due_for_now": {
			"async-caller-poison", encode(start + `"notBefore":"2126-01-01T00:00:00Z"}`),
			"async-caller", "", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestSession(t)
			found := account.Found{
				Message: message.Message{Queue: test.queue, Main: "evil", ID: "8a1b"},
				Text:    test.text,
			}
			got := d.previewRequeue(t.Context(), found)
			if got.To != test.to || (got.Refused == "") != (test.refused == "") ||
				!strings.Contains(got.Refused, test.refused) {
				t.Errorf("%+v", got)
			}
			if (got.Explanation == nil) != (test.refused != "") {
				t.Errorf("explained %v, refused %q", got.Explanation != nil, got.Refused)
			}
			target := "8a1b --queue " + test.queue
			requeue := strings.TrimSpace("poison requeue " + target + " " + test.flags)
			want := []string{requeue, "poison delete " + target}
			if got := nextForPoison(found.ID, found.Queue, got); !slices.Equal(got, want) {
				t.Errorf("next %q, want %q", got, want)
			}
		})
	}
}

// TestQueuesWarn checks the warnings about messages that expire and messages that are invisible.
func TestQueuesWarn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestSession(t, dead(1)...)
		if _, err := d.store.Put(t.Context(), "async-caller-poison",
			storage.Item{Text: "*", TTL: 50 * time.Hour}); err != nil {
			t.Fatal(err)
		}
		if _, err := d.store.Put(t.Context(), "async-caller-poison",
			storage.Item{Text: "*", Delay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		if err := d.queues(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := "storage will delete 1 message on async-caller-poison, the first in 2d:\n" +
			"  `async-caller poison keep --queue async-caller-poison` prevents that\n" +
			"async-caller-poison: 1 message invisible: scheduled, or received by another client\n"
		if got := d.err.String(); got != want {
			t.Errorf("\n%s\nwant\n%s", got, want)
		}
		if got := d.stdout.String(); !strings.Contains(got,
			"\nasync-caller-poison         3      0s      0s  in 2d    host_gave_up 1, undecodable 1\n") {
			t.Error(got)
		}
	})
}
