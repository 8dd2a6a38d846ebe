package cli

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"unicode"
	"unicode/utf8"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/program/terminal"
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

// TestHostileMessagesAreShownHarmless checks that the output for any message is printable and has no secrets,
// and that tables fit a terminal.
func TestHostileMessagesAreShownHarmless(t *testing.T) {
	for name, show := range map[string]func(*testSession, context.Context) error{
		"list": func(d *testSession, ctx context.Context) error { return d.listCalls(ctx, ofPoison(account.Source{})) },
		"groups": func(d *testSession, ctx context.Context) error {
			return d.groupCalls(ctx, ofPoison(account.Source{}), message.ByReason)
		},
		"errors": func(d *testSession, ctx context.Context) error {
			return d.groupCalls(ctx, ofPoison(account.Source{}), message.ByError)
		},
		"show": func(d *testSession, ctx context.Context) error { return d.showAll(ctx) },
		"show_json": func(d *testSession, ctx context.Context) error {
			d.json = true
			return d.showAll(ctx)
		},
		"dry_run": func(d *testSession, ctx context.Context) error {
			return d.dryRun(ctx, account.Source{}, operation.Retry{}, false)
		},
		"refusals": func(d *testSession, ctx context.Context) error {
			plan, err := d.operations.PlanRetryPoison(ctx, account.Source{}, operation.Retry{})
			if err != nil {
				return err
			}
			d.yes = false
			_ = d.execute(ctx, plan, nil)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newTestSession(t, hostileMessages()...)
				if err := show(d, t.Context()); err != nil {
					t.Fatal(err)
				}
				printed := d.stdout.String() + d.err.String()
				if printed == "" {
					t.Fatal("nothing was printed")
				}
				if strings.Contains(printed, "CANARY") {
					t.Errorf("shows a secret:\n%s", printed)
				}
				for line := range strings.Lines(printed) {
					line = strings.TrimSuffix(line, "\n")
					if at := strings.IndexFunc(line, func(r rune) bool {
						return r != '\t' &&
							!unicode.IsPrint(r)
					}); at >= 0 || !utf8.ValidString(line) {
						t.Errorf("not printable: %q", line)
					}
					if width := utf8.RuneCountInString(line); width > terminal.DefaultWidth && name == "list" {
						t.Errorf("%d columns: %s", width, line)
					}
				}
			})
		})
	}
}
