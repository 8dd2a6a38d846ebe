package cli

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/storage"
)

// badIDs are not ids of messages. As words of a command they would do something else.
func badIDs() []string {
	return []string{
		"$(touch x)", "`touch x`", "x;reboot", "a b", "a'b", `a"b`, "a\nb", "--all", "-", "a|b", "a&b", "a>b", "~root",
		"*", "a\\", "å", "a$IFS", "{a,b}", strings.Repeat("a", 65),
	}
}

// TestShownCommandsOfRows checks that a writer to the table cannot choose what an operator copies to a shell.
func TestShownCommandsOfRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheduled := []record.Row{rowAt("aaaaaaaa-1", "t.example", time.Hour)}
		for _, id := range badIDs() {
			row := rowAt(id, "t.example", time.Hour)
			row.RequestID = "r"
			scheduled = append(scheduled, row)
		}
		queueRow := rowAt("aaaaaaaa-2", "t.example", time.Hour)
		queueRow.Partition = "q$(touch x)"
		for _, row := range append(scheduled, queueRow) {
			d := newRowsSession(t, row)
			if err := d.show(t.Context(), row.RequestID, showOptions{}); err != nil {
				t.Fatalf("%q: %v", row.ID, err)
			}
			printed := d.stdout.String()
			d.err.Reset()
			isValid := row.ID == "aaaaaaaa-1"
			hasCommands := strings.Contains(printed, "async-caller calls ")
			isWarned := strings.Contains(printed, "warning")
			if hasCommands != isValid || isWarned == isValid {
				t.Errorf("%q on %q shows\n%s", row.ID, row.Partition, printed)
			}
			d.stdout.Reset()
			if err := d.listCalls(t.Context(), ofScheduled(account.Source{})); err != nil {
				t.Fatal(err)
			}
			listed := strings.Fields(d.stdout.String())
			isID := strings.HasPrefix(row.ID, "aaaaaaaa-")
			if slices.Contains(listed, "invalid") == isID || d.err.String() != "1 message\n" {
				t.Errorf("%q is listed as\n%s%s", row.ID, d.stdout.String(), d.err.String())
			}
		}
	})
}

// renaming is storage that gives each message an id.
type renaming struct {
	storage.Queues
	id string
}

func (r renaming) Peek(ctx context.Context, queue string, limit int) ([]storage.Message, error) {
	messages, err := r.Queues.Peek(ctx, queue, limit)
	for i := range messages {
		messages[i].ID = r.id
	}
	return messages, err
}

// TestShownCommandsOfMessages is the same for what storage says, because the account may be somebody else's.
func TestShownCommandsOfMessages(t *testing.T) {
	for _, id := range append(badIDs(), "8a1b") {
		d := newTestSession(t, dead(1)[0])
		d.account.Store = renaming{d.store, id}
		if err := d.show(t.Context(), "r0", showOptions{}); err != nil {
			t.Fatal(err)
		}
		printed := d.stdout.String()
		isValid := id == "8a1b"
		hasCommands := strings.Contains(printed, "  async-caller calls ")
		isWarned := strings.Contains(printed, "warning ")
		if hasCommands != isValid || isWarned == isValid {
			t.Errorf("%q shows\n%s", id, printed)
		}
		m := message.Recorded{Message: message.Message{Queue: "async-caller-poison", ID: id}}
		if line := poisonLine(poisonTable(d.out), m, ""); strings.HasPrefix(line, "invalid ") == isValid {
			t.Errorf("%q is listed as %s", id, line)
		}
	}
}

// TestShowRowThatDiffers checks that show says which properties of a row its content contradicts.
func TestShowRowThatDiffers(t *testing.T) {
	const host = "t.example"
	const calls, id = "the message calls t.example", "the request id of the message is r-1"
	long := strings.Repeat("a.", 100) + "example"
	change := func(host, requestID string) func(*record.Row) {
		return func(r *record.Row) { r.TargetHost, r.RequestID = host, requestID }
	}
	longHost := func(rowHost string) func(*record.Row) {
		return func(r *record.Row) { r.Content, r.TargetHost = contentFor(long), rowHost }
	}
	content := func(content string) func(*record.Row) {
		return func(r *record.Row) { r.Content = []byte(content) }
	}
	for test, change := range map[string]struct {
		row  func(*record.Row)
		want []string
	}{
		"same":              {func(*record.Row) {}, nil},
		"upper_case":        {change("T.EXAMPLE", "r-1"), nil},
		"other_spelling":    {change("t.example.:0443", "r-1"), nil},
		"port_of_http":      {change("t.example:80", "r-1"), []string{calls}},
		"host":              {change("crm.example", "r-1"), []string{calls}},
		"port":              {change("t.example:8443", "r-1"), []string{calls}},
		"no_host":           {change("", "r-1"), []string{calls}},
		"beginning":         {change("t.exam", "r-1"), []string{calls}},
		"request_id":        {change(host, "r-2"), []string{id}},
		"request_id_case":   {change(host, "R-1"), []string{id}},
		"host_and_id":       {change("x", "r-2"), []string{calls, id}},
		"no_request_id":     {content(`{"asyncCaller":1,"call":{"url":"https://t.example/"}}`), []string{"no request"}},
		"not_an_envelope":   {content("\x1b[2J"), []string{"not an envelope"}},
		"long_host":         {longHost(long[:128]), nil},
		"other_long_host":   {longHost("b" + long[:127]), []string{"the message calls a.a."}},
		"beginning_of_long": {longHost(long[:120] + "b"), []string{"the message calls a.a."}},
	} {
		t.Run(test, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				row := rowAt("aaaaaaaa-1", host, time.Hour)
				row.RequestID, row.Content = "r-1", contentFor(host)
				change.row(&row)
				d := newRowsSession(t, row)
				err := d.show(t.Context(), row.ID, showOptions{})
				printed := d.stdout.String()
				d.json = true
				err = errors.Join(err, d.show(t.Context(), row.ID, showOptions{}))
				if err != nil {
					t.Fatal(err)
				}
				var got struct{ Warnings []string }
				if err := json.Unmarshal(d.stdout.Bytes()[len(printed):], &got); err != nil {
					t.Fatal(err)
				}
				if len(got.Warnings) != len(change.want) || strings.Count(printed, "\nwarning ") != len(change.want) {
					t.Errorf("warnings %q, want %q:\n%s", got.Warnings, change.want, printed)
				}
				for i, want := range change.want {
					if i < len(got.Warnings) && !strings.Contains(got.Warnings[i], want) {
						t.Errorf("warning %q, want %q", got.Warnings[i], want)
					}
				}
			})
		})
	}
}

func contentFor(host string) []byte {
	return []byte(`{"asyncCaller":1,"requestId":"r-1","attempts":1,"call":{"url":"https://` + host + `/orders/7"}}`)
}
