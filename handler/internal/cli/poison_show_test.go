package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/poison"
	"asynccaller/handler/internal/poison/inspect"
	"asynccaller/handler/internal/queue"
)

// TestProspect: what is told is what requeue would do.
func TestProspect(t *testing.T) {
	encode := func(content string) string { return queue.Base64.Encode([]byte(content)) }
	for name, test := range map[string]struct {
		queue, main, text string
		to, refused       string
	}{
		"accepted":        {"async-caller-poison", "async-caller", encode(dead(1)[0]), "async-caller", ""},
		"parked":          {"parking", "async-caller-3", encode(dead(1)[0]), "async-caller-3", ""},
		"malformed":       {"async-caller-poison", "async-caller", encode("{}"), "async-caller", "asyncCaller: missing"},
		"undecodable":     {"async-caller-poison", "async-caller", dead(1)[0], "async-caller", "--fix-encoding"},
		"policy":          {"async-caller-poison", "async-caller", encode(`{"asyncCaller":1,"call":{"url":"https://t.example/"},"retry":"drunk"}`), "async-caller", "--set retry="},
		"not_due_for_now": {"async-caller-poison", "async-caller", encode(`{"asyncCaller":1,"call":{"url":"https://t.example/"},"notBefore":"2126-01-01T00:00:00Z"}`), "async-caller", ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestDesk(t)
			found := poison.Found{Message: inspect.Message{Queue: test.queue, Main: test.main, ID: "8a1b"}, Text: test.text}
			got := d.prospect(t.Context(), found)
			if got.To != test.to || (got.Refused == "") != (test.refused == "") || !strings.Contains(got.Refused, test.refused) {
				t.Errorf("%+v", got)
			}
			if (got.Explanation == nil) != (test.refused != "") {
				t.Errorf("explained %v, refused %q", got.Explanation != nil, got.Refused)
			}
		})
	}
}

// TestNext: what is suggested helps with what is wrong.
func TestNext(t *testing.T) {
	for name, test := range map[string]struct {
		exhibit exhibit
		want    string
	}{
		"good":        {exhibit{}, "requeue 1 --queue q"},
		"refused":     {exhibit{Requeue: prospect{Refused: "why"}}, "requeue 1 --queue q --edit"},
		"undecodable": {exhibit{Message: inspect.Message{Reason: inspect.Undecodable, Format: envelope.FormatNative}, Requeue: prospect{Refused: "why"}}, "requeue 1 --queue q --fix-encoding"},
		"no_text":     {exhibit{Message: inspect.Message{Reason: inspect.Undecodable}, Requeue: prospect{Refused: "why"}}, "requeue 1 --queue q --edit"},
	} {
		t.Run(name, func(t *testing.T) {
			test.exhibit.Message.ID, test.exhibit.Message.Queue = "1", "q"
			if got, want := test.exhibit.next(), []string{test.want, "delete 1 --queue q"}; !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

func TestCame(t *testing.T) {
	for want, a := range map[string]attempt{
		"answered 503": {Status: 503}, "dns": {Error: "dns"}, "answered 200, body_cut": {Status: 200, Error: "body_cut"}, "no answer": {},
	} {
		if got := came(a); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestExhibitOfMessages: each kind of message says why it is there, and what it is.
func TestExhibitOfMessages(t *testing.T) {
	for name, test := range map[string]struct {
		message inspect.Message
		want    []string
	}{
		"dead_letter": {
			inspect.Message{
				ID: "1", Queue: "a-poison", Main: "a", Reason: "expired", Detail: "answered 503", Since: atNoon.Add(-time.Hour), InsertedAt: atNoon,
				Format: envelope.FormatNexus, Bytes: 7, RequestID: "r1", Organization: "acme", Environment: "prd", Attempts: 3, Status: 503, Error: "dns",
			},
			[]string{
				"message        1 on a-poison", "why            expired: answered 503", "since          2026-11-21T11:00:00Z, 1h ago",
				"came here      2026-11-21T12:00:00Z", "expires        never", "belongs to     a", "envelope       yes, nexus, 7 bytes",
				"request id     r1", "tenant         acme/prd", "attempts       3, the latest answer is 503, the latest ended as dns",
			},
		},
		"host_moved": {
			inspect.Message{ID: "1", Queue: "a-poison", Main: "a", Reason: "undecodable", Since: atNoon, InsertedAt: atNoon, ExpiresAt: atNoon.Add(72 * time.Hour)},
			[]string{
				"message        1 on a-poison", "why            undecodable", "since          2026-11-21T12:00:00Z, 0s ago",
				"expires        2026-11-24T12:00:00Z, in 3d: storage deletes it then; `async-caller poison keep`", "               keeps it",
				"belongs to     a", "envelope       no, 0 bytes", "attempts       0",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			page{&out}.message(test.message, atNoon)
			if got, want := strings.TrimSpace(out.String()), strings.Join(test.want, "\n"); got != want {
				t.Errorf("\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// TestQueuesWarn: what storage will delete, and what could not be seen, is said.
func TestQueuesWarn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDesk(t, dead(1)...)
		if _, err := d.store.Put(t.Context(), "async-caller-poison", queue.Item{Text: "*", TTL: 50 * time.Hour}); err != nil {
			t.Fatal(err)
		}
		if _, err := d.store.Put(t.Context(), "async-caller-poison", queue.Item{Text: "*", Delay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		if err := d.queues(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := "1 message on async-caller-poison will be deleted by storage, the first in 2d:\n" +
			"  `async-caller poison keep --queue async-caller-poison` keeps them\n" +
			"on async-caller-poison 1 message cannot be seen now: somebody has taken them, or they wait\n"
		if got := d.err.String(); got != want {
			t.Errorf("\n%s\nwant\n%s", got, want)
		}
		if got := d.out.String(); !strings.Contains(got, "\nasync-caller-poison         3      0s      0s  in 2d    host_gave_up 1, undecodable 1\n") {
			t.Error(got)
		}
	})
}
