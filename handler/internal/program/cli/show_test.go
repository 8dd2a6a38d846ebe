package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/operate/call"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// tracedEnvelope returns an envelope with the trace of a call of [newHistorySession].
func tracedEnvelope(id string, number int, more string) string {
	return fmt.Sprintf(`{"asyncCaller":1,"requestId":%q,"createdAt":"1999-12-31T23:00:00Z","attempts":1,`+
		`"trace":{"traceparent":"00-%032x-00f067aa0ba902b7-01"},"call":{"url":"https://t.example/orders/7"},`+
		`"trail":[{"at":"1999-12-31T23:00:01Z","status":503,"tookMs":12}]%s}`, id, number, more)
}

const asDeadLetter = `,"deadLetter":{"at":"2000-01-01T00:01:00Z","reason":"rejected","queue":"async-caller"}`

// placed is a message of a test: in the record, with the time until its next attempt, or on a queue.
type placed struct {
	id, content string
	queue       string
	due         time.Duration
}

func (d *testSession) place(t *testing.T, p placed) {
	t.Helper()
	if p.queue != "" {
		text := storage.Base64.Encode([]byte(p.content))
		if _, err := d.store.Put(t.Context(), p.queue, storage.Item{Text: text}); err != nil {
			t.Fatal(err)
		}
		return
	}
	e, err := envelope.Parse([]byte(p.content))
	if err == nil {
		row := rowAt(p.id, "t.example", p.due)
		row.RequestID, row.Content = e.RequestID, []byte(p.content)
		err = rows.Put(t.Context(), d.account.Table, row)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestShowPlaces: wherever a call is, it is one page with one state. Its callback is not another call, unless the trace
// says so.
func TestShowPlaces(t *testing.T) {
	const hour, minutes = time.Hour, 10 * time.Minute
	recorded := func(due time.Duration) placed {
		return placed{id: "aaaaaaaa-1", content: tracedEnvelope("order-1", 1, ""), due: due}
	}
	callback := func(number int) placed {
		return placed{id: "aaaaaaaa-1", content: tracedEnvelope("order-1.callback", number, ""), due: hour}
	}
	onQueue := func(more string) placed {
		return placed{queue: "async-caller", content: tracedEnvelope("order-1", 1, more)}
	}
	rejected := []endedNow{{"order-1", 1, decision.Rejected, nil}}
	for name, test := range map[string]struct {
		places []placed
		ended  []endedNow
		want   []string
		lacks  string
	}{
		"due":             {[]placed{recorded(-time.Minute)}, nil, []string{"state          due: "}, "gone"},
		"held_and_ended":  {[]placed{recorded(-minutes)}, rejected, []string{"state          ended 0s ago\n"}, "held"},
		"stale_and_ended": {[]placed{recorded(-hour)}, rejected, []string{"state          ended 0s ago\n"}, "stale"},
		"held_and_back": {
			[]placed{recorded(-minutes), onQueue("")}, nil, []string{"state          waits on its queue"}, "held",
		},
		"moved_back": {
			[]placed{onQueue(asDeadLetter)}, nil, []string{"state          waits on its queue"}, "reason ",
		},
		"held": {
			[]placed{recorded(-minutes)},
			nil,
			[]string{"state          unseen: not seen since", ", an attempt was due; not seen since its "},
			"gone",
		},
		"stale": {
			[]placed{recorded(-hour)},
			nil,
			[]string{"state          stale: the message is gone", "an attempt was due; the message is gone\n"},
			"held",
		},
		"scheduled_again": {
			[]placed{recorded(hour)},
			rejected,
			[]string{"state          scheduled\n", ", ended: rejected (callback), status 422\n"},
			"stale",
		},
		"callback_waits": {
			[]placed{callback(1)},
			rejected,
			[]string{"state          ended 0s", ", callback: next attempt: it waits because of tempo"},
			"stale",
		},
		"callback_of_other_call": {
			[]placed{callback(2)}, rejected, []string{"\nended      ", "\nscheduled  aaaaaaaa "}, "due",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, _ := newHistorySession(t, test.ended...)
				for _, p := range test.places {
					d.place(t, p)
				}
				err := d.show(t.Context(), "order-1", showOptions{})
				printed := d.stdout.String()
				isSeveral := name == "callback_of_other_call"
				if isSeveral != (codeOf(err) == exitFailed) || !isSeveral && err != nil || d.err.Len() > 0 {
					t.Errorf("exit code %d, %v, says %s", codeOf(err), err, &d.err)
				}
				for _, want := range test.want {
					if strings.Count(printed, want) != 1 {
						t.Errorf("%q is not in it once:\n%s", want, printed)
					}
				}
				if strings.Contains(printed, test.lacks) {
					t.Errorf("%q is in\n%s", test.lacks, printed)
				}
				d.stdout.Reset()
				d.json = true
				_ = d.show(t.Context(), "order-1", showOptions{})
				for line := range strings.Lines(d.stdout.String()) {
					var page map[string]any
					err := json.Unmarshal([]byte(line), &page)
					_, hasStatus := page["status"]
					isOfCall := strings.HasPrefix(fmt.Sprint(page["requestId"]), "order-1")
					if err != nil || !isOfCall || page["host"] != "t.example" || !hasStatus ||
						strings.Contains(line, `"0001-`) || strings.Contains(line, `"status":0`) {
						t.Errorf("%v: %s", err, line)
					}
				}
			})
		})
	}
}

// TestShowUnread: a call that is found is shown with what was not looked at.
func TestShowUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, tables := newHistorySession(t, endedNow{"order-9", 9, decision.Delivered, nil})
		d.place(t, placed{queue: "async-caller-poison", content: tracedEnvelope("order-1", 1, asDeadLetter)})
		tables.Open(history.TablePrefix + "200001").Fail(storage.ErrDenied)
		d.account.Table.(*memory.Table).Fail(storage.ErrRefused)
		d.json = true
		if err := d.show(t.Context(), "order-1", showOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"scheduled calls: list", "history: storage refused access"} {
			if !strings.Contains(d.err.String(), "warning: not looked at: "+part) ||
				!strings.Contains(d.stdout.String(), `"`+part) {
				t.Errorf("%q is not in %s%s", part, &d.err, &d.stdout)
			}
		}
	})
}

// TestShowInvisible: a poison message that another client has received is not called missing.
func TestShowInvisible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newHistorySession(t)
		d.place(t, placed{queue: "async-caller-poison", content: tracedEnvelope("order-1", 1, asDeadLetter)})
		if _, err := d.store.Receive(t.Context(), "async-caller-poison", 1, time.Hour); err != nil {
			t.Fatal(err)
		}
		err := d.show(t.Context(), "order-1", showOptions{})
		const want = "queue async-caller-poison: 1 of about 1 are invisible: received by another command, or delayed"
		if codeOf(err) != exitPartly || !strings.Contains(err.Error(), want) {
			t.Errorf("exit code %d, %v", codeOf(err), err)
		}
	})
}

// TestShowTenant: the call of a tenant is found with its history, without a question, and the flags select by tenant.
func TestShowTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newHistorySession(t)
		row := rowAt("aaaaaaaa-1", "t.example", time.Hour)
		row.RequestID, row.Organization, row.Environment = "order-1", "acme", "prd"
		row.Content = []byte(tracedEnvelope("order-1", 1, ""))
		if err := rows.Put(t.Context(), d.account.Table, row); err != nil {
			t.Fatal(err)
		}
		acme := envelope.Tenant{Organization: "acme", Environment: "prd"}
		for _, tenant := range []envelope.Tenant{{}, acme, {Organization: "other"}} {
			err := d.show(t.Context(), "order-1", showOptions{Options: call.Options{Tenant: tenant}})
			isOther := tenant.Organization == "other"
			if (codeOf(err) == exitNothing) != isOther || !isOther && err != nil {
				t.Errorf("%+v: %v", tenant, err)
			}
		}
		if !strings.Contains(d.stdout.String(), "tenant         acme/prd\n") {
			t.Errorf("shows %s", &d.stdout)
		}
	})
}
