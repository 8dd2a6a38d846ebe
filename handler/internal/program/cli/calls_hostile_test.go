package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/observers/sight/sighttest"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/call"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/program/terminal"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// hostile is text that manipulates a terminal: it clears it, writes backwards and begins a new line.
const hostile = `\u001b[2J\u202e\r\nx\u0007\u009b`

// hostileMessages contain hostile text wherever a sender can put text, and secrets in the usual places.
func hostileMessages() []string {
	return []string{
		`{"asyncCaller":1,"requestId":"r1","call":{"url":"https://u:CANARY@t.example/` + "%1b" + `?key=CANARY",` +
			`"headers":{"Authorization":"CANARY","X":"a\tb"},` +
			`"body":"` + hostile + `"},"context":{"` + hostile + `":"` + hostile + `"},` +
			`"trail":[{"at":"2026-01-01T00:00:00Z","error":"` + hostile + `","tookMs":1}],` +
			`"attempts":1,"deadLetter":{"at":"2026-01-01T00:00:00Z","reason":"` + hostile + `","detail":"` + hostile +
			`",` +
			`"queue":"` + hostile + `","attempts":1}}`,
		`{"asyncCaller":1,"requestId":"` + hostile + `","password":"CANARY"}`,
		"\x1b[2J\r\n\x00\xff\u202e",
		`{"RawRequest":{"Id":"` + hostile + `","CallOut":"*"},"Organization":"` + hostile + `","Environment":"` +
			hostile + `"}`,
		`{"asyncCaller":1,"requestId":"r2","call":{"url":"https://t.example/"},"retry":"` + hostile + `"}`,
	}
}

// showAll shows each poison message.
func (d *testSession) showAll(ctx context.Context) error {
	var shown []error
	_, err := d.account.List(ctx, account.Source{}, func(f account.Found) {
		shown = append(shown, d.show(ctx, f.ID, showOptions{}))
	})
	return errors.Join(append(shown, err)...)
}

// mustBeHarmless checks that a text can be printed on any terminal, and that it has no secrets.
func mustBeHarmless(t *testing.T, printed string, width int) {
	t.Helper()
	if printed == "" {
		t.Error("nothing was printed")
	}
	if strings.Contains(printed, "CANARY") {
		t.Errorf("shows a secret:\n%s", printed)
	}
	for line := range strings.Lines(printed) {
		line = strings.TrimSuffix(line, "\n")
		isPrintable := func(r rune) bool { return r == '\t' || unicode.IsPrint(r) }
		if strings.ContainsFunc(line, func(r rune) bool { return !isPrintable(r) }) || !utf8.ValidString(line) {
			t.Errorf("not printable: %q", line)
		}
		if n := utf8.RuneCountInString(line); n > width {
			t.Errorf("%d columns: %.300s", n, line)
		}
	}
}

// TestHostileMessages: the output for any message is printable and has no secrets, and a table fits a terminal.
func TestHostileMessages(t *testing.T) {
	const any = 1 << 20
	poison := ofPoison(account.Source{})
	for name, test := range map[string]struct {
		width int
		show  func(context.Context, *testSession) error
	}{
		"list": {
			terminal.DefaultWidth, func(ctx context.Context, d *testSession) error { return d.listCalls(ctx, poison) },
		},
		"groups": {any, func(ctx context.Context, d *testSession) error {
			return errors.Join(d.groupCalls(ctx, poison, message.ByReason), d.groupCalls(ctx, poison, message.ByError))
		}},
		"show": {any, func(ctx context.Context, d *testSession) error { return d.showAll(ctx) }},
		"show_json": {any, func(ctx context.Context, d *testSession) error {
			d.json = true
			return d.showAll(ctx)
		}},
		"dry_run": {any, func(ctx context.Context, d *testSession) error {
			return d.dryRun(ctx, account.Source{}, operation.Retry{}, false)
		}},
		"refusals": {any, func(ctx context.Context, d *testSession) error {
			plan, err := d.operations.PlanRetryPoison(ctx, account.Source{}, operation.Retry{})
			if err == nil {
				d.yes = false
				_ = d.execute(ctx, plan, nil)
			}
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newTestSession(t, hostileMessages()...)
				if err := test.show(t.Context(), d); err != nil {
					t.Fatal(err)
				}
				mustBeHarmless(t, d.stdout.String()+d.err.String(), test.width)
			})
		})
	}
}

// TestHostileRows: a writer to the tables controls neither the terminal nor the width of the output.
func TestHostileRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := strings.Repeat("x\x1b[2J\u202e\n", 100)
		d := newRowsSession(t)
		known := &memory.Table{}
		d.account.Sight = sight.NewReader(known)
		row := storage.Entity{Key: storage.Key{Partition: text, ID: text}, Values: map[string]any{
			"requestId": "r", "targetHost": text, "route": text, "reason": text, "organization": text,
			"environment": text, "status": int32(math.MinInt32), "attempts": int32(math.MaxInt32),
			"content": []byte(text), "cause": text, "answer": text,
		}}
		sighttest.Fail(t, known, sight.Target{
			App: text, Host: targets.HostOf(text), Cause: text, Answer: text, Since: time.Now(), Latest: time.Now(),
		})
		if err := d.account.Table.Put(t.Context(), []storage.Entity{row}); err != nil {
			t.Fatal(err)
		}
		scheduled := ofScheduled(account.Source{})
		for name, print := range map[string]func() error{
			"list":   func() error { return d.listCalls(t.Context(), scheduled) },
			"group":  func() error { return d.groupCalls(t.Context(), scheduled, message.ByPath) },
			"hosts":  func() error { return d.groupCalls(t.Context(), scheduled, message.ByHost) },
			"cause":  func() error { return d.groupCalls(t.Context(), scheduled, message.ByCause) },
			"status": func() error { return d.showStatus(t.Context(), false, false, nil) },
			"show":   func() error { return d.show(t.Context(), "r", showOptions{}) },
		} {
			d.stdout.Reset()
			if err := print(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			width := terminal.DefaultWidth
			if name == "show" {
				width = 1 << 20 // commands are not cut
			}
			mustBeHarmless(t, d.stdout.String(), width)
		}
	})
}

// TestHostileHistory: whatever is in a row of the history, the output is printable and short.
func TestHostileHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, tables := newHistorySession(t, endedNow{"order-1", 1, decision.Delivered, nil})
		found, _, err := history.Find(t.Context(), tables, envelope.Tenant{}, "order-1")
		if err != nil || len(found) != 1 {
			t.Fatalf("%d entries, %v", len(found), err)
		}
		const hostile = "\x1b[2J\u202e\n\r\x00\xff"
		long := hostile + strings.Repeat("a\u0301\u0301\u0301", 20_000)
		trail := []history.Attempt{{Error: long, Status: -1, TookMs: -1 << 60, At: time.Time{}}}
		details, err := json.Marshal(map[string]any{"queue": long, "messageId": long, "original": long, "trail": trail})
		if err != nil {
			t.Fatal(err)
		}
		for i, content := range [][]byte{details, []byte(hostile), nil} {
			row := storage.Entity{
				Key: storage.Key{Partition: found[0].Partition, ID: found[0].Row + fmt.Sprint(i)},
				Values: map[string]any{
					"requestId": long, "targetHost": long, "route": long, "reason": long, "action": long,
					"organization": long, "environment": long, "status": int32(-1), "attempts": int32(1 << 30),
					"content": content,
				},
			}
			if err := tables.Table(found[0].Table).Put(t.Context(), []storage.Entity{row}); err != nil {
				t.Fatal(err)
			}
		}
		for _, isJSON := range []bool{false, true} {
			d.json = isJSON
			d.stdout.Reset()
			for _, o := range []showOptions{{}, {Options: call.Options{Message: messageOf(1)}}} {
				if err := d.show(t.Context(), "order-1", o); err != nil && codeOf(err) != exitFailed {
					t.Fatal(err)
				}
			}
			mustBeHarmless(t, d.stdout.String(), 1<<20)
			if n := d.stdout.Len(); !isJSON && n > 20_000 {
				t.Errorf("%d bytes", n)
			}
		}
	})
}
