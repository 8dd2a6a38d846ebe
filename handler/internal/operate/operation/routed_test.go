package operation_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/message/edit"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

const (
	routedQueue  = "orders-in"
	routedPoison = "orders-in-poison"
)

// nexusLookalike is the text of a content that is a valid Nexus envelope with a dead letter.
var nexusLookalike = inBase64(`{"Organization":"acme","Environment":"prod","OriginalRequestId":"evil","Attempts":0,` +
	`"CreatedAt":"2026-01-01T00:00:00+00:00","RawRequest":{"Id":"evil","CallOut":"` +
	inBase64("PUT /evil HTTP/1.1\r\nHost: evil.example\r\n\r\n") + `","CallOutUriScheme":"https"},` +
	`"DeadLetter":{"At":"2026-01-02T00:00:00Z","Reason":"rejected","Queue":"async-caller"}}`)

func inBase64(content string) string { return storage.Base64.Encode([]byte(content)) }

// newRoutedQueues returns a store with contents on the poison queue of a route, and the account of its app.
func newRoutedQueues(t *testing.T, texts ...string) (*memory.Queues, *operation.Operations) {
	t.Helper()
	store := newQueues(t, 0)
	for _, name := range []string{routedQueue, routedPoison} {
		if err := store.Create(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range texts {
		put(t, store, routedPoison, text, week)
	}
	a := newAccount(t, store)
	a.Account.AppQueues = append(a.Account.AppQueues, routedQueue)
	a.Account.Rules.Routed = []string{routedQueue}
	return store, a
}

// TestRoutedContents checks that each operation leaves the contents of a route as they are and on the queues of the
// route, however much they look like envelopes.
func TestRoutedContents(t *testing.T) {
	originals := []string{
		hostCopy("native"), deadLetter("dead", mainQueue), nexusLookalike, inBase64("\x00\xff"), inBase64(" {} "), "",
	}
	for _, text := range originals[:3] {
		if _, err := envelope.Parse(must(storage.Base64.Decode(text))); err != nil {
			t.Fatalf("%s is no lookalike: %v", text, err)
		}
	}
	slices.Sort(originals)
	all := account.Source{Queues: []string{routedPoison}}
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		store, a := newRoutedQueues(t, originals...)
		remove := func() string {
			t.Helper()
			return execute(t, mustPlan(t)(a.PlanDeletePoison(t.Context(), all, operation.Delete{}))).Run
		}
		check := func(after string, onQueue, onPoison []string) {
			t.Helper()
			if contents(store) != "" || !slices.Equal(texts(store, routedQueue), onQueue) ||
				!slices.Equal(texts(store, routedPoison), onPoison) {
				t.Errorf("after %s: %q on the queue, %q on the poison queue, others: %s",
					after, texts(store, routedQueue), texts(store, routedPoison), contents(store))
			}
		}
		var file bytes.Buffer
		must(a.Account.List(ctx, all, func(f account.Found) {
			if f.Reason != message.Raw || !f.Raw || f.Format != "" || f.RequestID != "" || f.Main != routedQueue ||
				f.Attempts != 0 || f.Host != "" || f.Organization != "" {
				t.Errorf("%+v", f.Message)
			}
			if err := operation.WriteRecord(&file, f); err != nil {
				t.Error(err)
			}
		}))
		keep(t, operation.NewKeeper(a.Account, []string{routedPoison}), len(originals))
		check("the keeper", nil, originals)
		if n := expiring(store, routedPoison); n > 0 {
			t.Errorf("%d expire after the keeper", n)
		}
		id := execute(t, mustPlan(t)(a.PlanRetryPoison(ctx, all, operation.Retry{Dedupe: true}))).Run
		check("requeue", originals, nil)
		execute(t, mustPlan(t)(a.PlanUndo(ctx, id)))
		check("undo of requeue", nil, originals)
		execute(t, mustPlan(t)(a.PlanUndo(ctx, remove())))
		check("undo of delete", nil, originals)
		remove()
		execute(t, mustPlan(t)(a.PlanImport(ctx, &file, operation.Import{})))
		check("import", nil, originals)
	})
}

// TestRoutedRefusals checks that a content gets neither edits nor onto a queue where it would be an envelope, and an
// envelope onto no queue where it would be a content, unless the operator forces it.
func TestRoutedRefusals(t *testing.T) {
	lookalike := hostCopy("evil")
	raw, letters := account.Source{Queues: []string{routedPoison}}, account.Source{Queues: []string{poisonQueue}}
	forced := raw
	forced.Force = true
	set, err := edit.ParseSet("call.url=https://t.example/")
	if err != nil {
		t.Fatal(err)
	}
	requeue := func(s account.Source, r operation.Retry) planner {
		return func(ctx context.Context, a *operation.Operations) (*operation.Plan, error) {
			return a.PlanRetryPoison(ctx, s, r)
		}
	}
	move := func(s account.Source, to string) planner {
		return func(ctx context.Context, a *operation.Operations) (*operation.Plan, error) {
			return a.PlanMove(ctx, s, to)
		}
	}
	load := func(from string, in operation.Import) planner {
		return func(ctx context.Context, a *operation.Operations) (*operation.Plan, error) {
			var file bytes.Buffer
			must(a.Account.List(ctx, account.Source{Queues: []string{from}},
				func(f account.Found) { _ = operation.WriteRecord(&file, f) }))
			return a.PlanImport(ctx, &file, in)
		}
	}
	for name, test := range map[string]struct {
		plan    planner
		refused string // empty if the message is moved
	}{
		"edit":   {requeue(raw, operation.Retry{Edit: edit.Options{Edits: edit.Edits{set}}}), "is sent again as it is"},
		"editor": {requeue(raw, operation.Retry{Edit: edit.Options{Edited: []byte("{}")}}), "is sent again as it is"},
		// The outcome of a content would not be known, because it cannot carry the token of a run.
		"canary": {requeue(raw, operation.Retry{Pace: journal.Pace{Canary: 1}}), "omit --canary and --stop-at"},
		"to_envelopes": {
			requeue(raw, operation.Retry{To: mainQueue}), "on async-caller it would be read as an envelope",
		},
		"to_envelopes_forced":      {requeue(forced, operation.Retry{To: mainQueue}), "read as an envelope"},
		"envelope_to_route":        {requeue(letters, operation.Retry{To: routedQueue}), "orders-in has a route"},
		"move_to_poison":           {move(raw, poisonQueue), "read as an envelope"},
		"move_to_parking":          {move(raw, parking), "--force moves it nevertheless"},
		"move_to_parking_forced":   {move(forced, parking), ""},
		"move_envelope":            {move(letters, routedPoison), "orders-in-poison has a route"},
		"import":                   {load(routedPoison, operation.Import{To: poisonQueue}), "--force imports it nevertheless"},
		"import_forced":            {load(routedPoison, operation.Import{To: poisonQueue, Force: true}), ""},
		"import_envelope":          {load(poisonQueue, operation.Import{To: routedPoison}), "orders-in-poison has a route"},
		"requeue_to_another_route": {requeue(raw, operation.Retry{To: "other-in"}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, a := newRoutedQueues(t, lookalike)
				put(t, store, poisonQueue, deadLetter("letter", mainQueue), 0)
				a.Account.AppQueues = append(a.Account.AppQueues, "other-in")
				a.Account.Rules.Routed = append(a.Account.Rules.Routed, "other-in")
				if err := store.Create(t.Context(), "other-in"); err != nil {
					t.Fatal(err)
				}
				recorded(t, a)
				p, err := test.plan(t.Context(), a)
				why := ""
				switch {
				case err != nil:
					why = err.Error()
				case p.Refused > 0:
					why = p.Refusals[0].Why
				}
				if !strings.Contains(why, test.refused) || (why == "") != (test.refused == "") {
					t.Errorf("refused %q, want %q", why, test.refused)
				}
				if err == nil {
					p.Discard(t.Context())
				}
			})
		})
	}
}

// planner plans a run.
type planner func(context.Context, *operation.Operations) (*operation.Plan, error)

// TestRoutedNotBase64: a sender who writes plain text where host.json requires base64 can be helped.
func TestRoutedNotBase64(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := `{"asyncCaller":1,"call":{"url":"https://evil.example/"}}`
		store, a := newRoutedQueues(t, text)
		p := mustPlan(t)(a.PlanRetryPoison(t.Context(), account.Source{}, operation.Retry{}))
		if p.Refused != 1 || p.Refusals[0].Message.Reason != message.Undecodable ||
			!strings.Contains(p.Refusals[0].Why, "--fix-encoding") {
			t.Errorf("%+v", p.Refusals)
		}
		p.Discard(t.Context())
		advance(leasesEnd)
		fix := operation.Retry{Edit: edit.Options{FixEncoding: true}}
		execute(t, mustPlan(t)(a.PlanRetryPoison(t.Context(), account.Source{}, fix)))
		if got := texts(store, routedQueue); !slices.Equal(got, []string{inBase64(text)}) {
			t.Errorf("%q", got)
		}
	})
}
