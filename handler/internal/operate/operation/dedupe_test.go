package operation_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/storage"
)

// TestDedupe checks that requeue sends the latest message of each request id, and leaves the others where they are.
func TestDedupe(t *testing.T) {
	for _, calls := range []int{4, 40} { // a queue that is only peeked at, and a longer one
		t.Run(fmt.Sprintf("%d_calls", calls), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newQueues(t, 0)
				latest := map[string]string{}
				for copies := range 3 {
					for i := range calls {
						id := fmt.Sprintf("r%d", i)
						text := strings.Replace(string(mustDecode(t, deadLetter(id, mainQueue))), `"call":{`,
							fmt.Sprintf(`"context":%d,"call":{`, copies), 1)
						put(t, store, poisonQueue, storage.Base64.Encode([]byte(text)), 0)
						latest[id] = fmt.Sprintf(`"context":%d`, copies)
					}
					advance(2 * time.Second)
				}
				const withoutID = `{"asyncCaller":1,"call":{"url":"https://t.example/"}}`
				const unsendable = `{"asyncCaller":1,"requestId":"r0","call":{}}`
				for _, content := range []string{withoutID, withoutID, unsendable} {
					put(t, store, poisonQueue, inBase64(content), 0)
				}
				a := newAccount(t, store)
				r := operation.Retry{Dedupe: true}
				would := 0
				_, _, err := a.Preview(t.Context(), account.Source{}, r,
					func(_ account.Found, _ string, _ []byte, why error) {
						if why == nil {
							would++
						}
					})
				if err != nil || would != calls+2 {
					t.Errorf("a dry run would send %d, %v", would, err)
				}
				result := execute(t, mustPlan(t)(a.PlanRetryPoison(t.Context(), account.Source{}, r)))
				if result.Done != calls+2 || result.Refused != 2*calls+1 || len(store.All(poisonQueue)) != 2*calls+1 {
					t.Fatalf("%+v, %d are left", result, len(store.All(poisonQueue)))
				}
				for _, m := range store.All(mainQueue) {
					content := string(mustDecode(t, m.Text))
					if id := requestID(m.Text); latest[id] != "" && !strings.Contains(content, latest[id]) {
						t.Errorf("%s was sent as %s, want %s", id, content, latest[id])
					}
				}
				if !strings.Contains(result.Refusals[0].Why, "--dedupe") || result.Refusals[0].Message.RequestID == "" {
					t.Errorf("%+v", result.Refusals[0])
				}
			})
		})
	}
}

// TestDedupeLimit: a limit does not make an older message of a call the one that is sent.
func TestDedupeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueues(t, 1)
		advance(2 * time.Second)
		put(t, store, poisonQueue, deadLetter("r0", mainQueue), 0)
		p := mustPlan(t)(newAccount(t, store).
			PlanRetryPoison(t.Context(), account.Source{Limit: 1}, operation.Retry{Dedupe: true}))
		defer p.Discard(t.Context())
		if p.Total != 0 || p.Refused != 1 {
			t.Errorf("%+v", p.Result)
		}
	})
}

// TestDedupeOfNew: of messages that come while the others are read, one of each call is sent, too.
func TestDedupeOfNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueues(t, 1)
		a := newAccount(t, store)
		hasRead := false
		a.Account.Store = &tap{Queues: store, queue: poisonQueue, before: func(operation string) error {
			if operation == "receive" && !hasRead {
				hasRead = true
				put(t, store, poisonQueue, deadLetter("new", mainQueue), 0)
				put(t, store, poisonQueue, deadLetter("new", mainQueue), 0)
			}
			return nil
		}}
		r := execute(t, mustPlan(t)(a.PlanRetryPoison(t.Context(), account.Source{}, operation.Retry{Dedupe: true})))
		sent := calls(store, mainQueue)
		if r.Done != 2 || r.Refused != 1 || sent["r0"] != 1 || sent["new"] != 1 {
			t.Errorf("%+v, sent %v", r, sent)
		}
	})
}

// TestDedupeTenants: a request id belongs to its sender.
func TestDedupeTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueues(t, 0)
		for _, organization := range []string{`"o"`, `"other"`} {
			text := strings.Replace(nexusOf(0, 0, later), `"o"`, organization, 1)
			put(t, store, poisonQueue, storage.Base64.Encode([]byte(text)), 0)
		}
		r := execute(t, mustPlan(t)(newAccount(t, store).
			PlanRetryPoison(t.Context(), account.Source{}, operation.Retry{Dedupe: true})))
		if r.Done != 2 {
			t.Errorf("%+v", r)
		}
	})
}

// TestTwiceIsNamed: a result names the messages that may have been written twice, at most 20 of them.
func TestTwiceIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueues(t, 60)
		a := newAccount(t, store)
		lost := map[string]bool{}
		a.Account.Store = &tap{Queues: store, queue: mainQueue, after: func(operation string) error {
			key := fmt.Sprint(operation, len(store.All(mainQueue)))
			if operation != "put" || len(lost) == 30 || len(store.All(mainQueue))%2 == 0 {
				return nil
			}
			lost[key] = true
			return errNoAnswer
		}}
		r := execute(t, mustPlan(t)(a.PlanRetryPoison(t.Context(), account.Source{}, operation.Retry{})))
		sent := calls(store, mainQueue)
		if r.PossibleDuplicates != 30 || len(r.DuplicateMessages) != 20 {
			t.Fatalf("%d twice, %d are named", r.PossibleDuplicates, len(r.DuplicateMessages))
		}
		for _, m := range r.DuplicateMessages {
			if m.Queue != mainQueue || sent[m.RequestID] != 2 {
				t.Errorf("%+v is %d times on the queue", m, sent[m.RequestID])
			}
		}
	})
}

func mustDecode(t *testing.T, text string) []byte {
	t.Helper()
	content, err := storage.Base64.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
