package account_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// places describes where a lookup has found something.
func places(l account.Lookup) (found []string) {
	for _, m := range l.Scheduled {
		found = append(found, "scheduled "+m.RequestID+fmt.Sprintf(" with %d bytes", len(m.Row.Content)))
	}
	for _, f := range l.Poison {
		found = append(found, "poison "+f.RequestID+" on "+f.Queue+": "+f.Reason)
	}
	for _, f := range l.Waiting {
		found = append(found, "waiting "+f.RequestID+" on "+f.Queue+": "+f.Reason)
	}
	for _, u := range l.Unread {
		found = append(found, "unread "+u.Part)
	}
	if l.Others > 0 {
		found = append(found, fmt.Sprint("others ", l.Others))
	}
	return found
}

// TestLookUp: an ID is found wherever it is, nothing that the app reads is received, and nothing on its queues is said
// to have failed.
func TestLookUp(t *testing.T) {
	for name, test := range map[string]struct {
		queues []string
		id     string
		want   []string
	}{
		"dead":           {nil, "r1", []string{"poison r1 on async-caller-poison: rejected"}},
		"moved_by_host":  {nil, "host", []string{"poison host on async-caller-poison: host_gave_up"}},
		"of_app":         {nil, "live", []string{"waiting live on async-caller: waiting"}},
		"moved_back":     {nil, "back", []string{"waiting back on async-caller: waiting"}},
		"parked":         {nil, "parked", []string{"poison parked on parking: rejected"}},
		"not_dead":       {nil, "elsewhere", []string{"waiting elsewhere on parking: waiting"}},
		"scheduled":      {nil, "sleeps", []string{"scheduled sleeps with 7 bytes"}},
		"nowhere":        {nil, "nobody", nil},
		"other_queue":    {[]string{mainQueue}, "r1", nil},
		"queue_of_app":   {[]string{mainQueue}, "live", []string{"waiting live on async-caller: waiting"}},
		"queue_of_row":   {[]string{mainQueue}, "sleeps", []string{"scheduled sleeps with 7 bytes"}},
		"beside_a_row":   {[]string{poisonQueue}, "sleeps", nil},
		"behind_the_32":  {nil, "last", []string{"poison last on async-caller-poison: rejected"}},
		"selected_whole": {[]string{parking}, "parked", []string{"poison parked on parking: rejected"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := mixed(t)
				put(t, store, mainQueue, deadLetter("back", mainQueue), 0)
				put(t, store, parking, hostCopy("elsewhere"), 0)
				for range 40 {
					put(t, store, poisonQueue, deadLetter("many", mainQueue), 0)
				}
				put(t, store, poisonQueue, deadLetter("last", mainQueue), 0)
				a := newAccount(store)
				a.Table = &memory.Table{}
				must(0, rows.Put(t.Context(), a.Table, record.Row{
					Key:       storage.Key{Partition: mainQueue, ID: "m1"},
					RequestID: "sleeps", NextAttemptAt: time.Now().Add(time.Hour), Content: []byte("content"),
				}))
				before := store.All(mainQueue)
				l := must(a.LookUp(t.Context(), account.LookupQuery{Queues: test.queues, IDs: []string{test.id}}))
				if diff := cmp.Diff(test.want, places(l)); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
				if diff := cmp.Diff(before, store.All(mainQueue)); diff != "" {
					t.Errorf("the queue of the app has changed:\n%s", diff)
				}
				if len(test.queues) == 0 && (len(l.Fronts) != 1 || l.Fronts[0].Visible != 2) {
					t.Errorf("fronts %+v", l.Fronts)
				}
			})
		})
	}
}

// TestLookUpManyMessages: the messages that are kept are bounded, and the others are counted.
func TestLookUpManyMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueues(t, 0)
		for range 50 {
			put(t, store, poisonQueue, deadLetter("many", mainQueue), 0)
		}
		a := newAccount(store)
		a.Table = &memory.Table{}
		l := must(a.LookUp(t.Context(), account.LookupQuery{IDs: []string{"many"}}))
		if len(l.Poison) != account.MaxMatches || l.Others != 50-account.MaxMatches {
			t.Errorf("%d messages and %d others", len(l.Poison), l.Others)
		}
	})
}

// TestLookUpUnread: what cannot be read is named, and the rest is looked at.
func TestLookUpUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mixed(t)
		a := newAccount(unreadable{Queues: store, err: storage.ErrDenied, is: func(name string) bool {
			return strings.HasPrefix(name, "other") || name == mainQueue
		}})
		l := must(a.LookUp(t.Context(), account.LookupQuery{IDs: []string{"r1"}}))
		want := []string{
			"poison r1 on async-caller-poison: rejected", "unread scheduled calls", "unread queue async-caller",
			"unread queue other", "unread queue other-poison",
		}
		if diff := cmp.Diff(want, places(l)); diff != "" || !errors.Is(l.Unread[1], storage.ErrDenied) {
			t.Errorf("-want +got:\n%s", diff)
		}
		must(store.Receive(t.Context(), poisonQueue, 2, time.Hour))
		a.Store = store
		l = must(a.LookUp(t.Context(), account.LookupQuery{IDs: []string{"r1"}}))
		want = []string{"unread scheduled calls", "unread queue async-caller-poison"}
		if diff := cmp.Diff(want, places(l)); diff != "" {
			t.Errorf("of hidden messages it says, -want +got:\n%s", diff)
		}
		for _, queues := range [][]string{{"nope"}, {mainQueue, "nope"}} {
			_, err := a.LookUp(t.Context(), account.LookupQuery{Queues: queues, IDs: []string{"r1"}})
			if !errors.Is(err, storage.ErrNoQueue) {
				t.Errorf("%q: %v", queues, err)
			}
		}
	})
}

// TestLookUpByPeeking: no dequeue count changes, and messages behind the first ones are said not to be looked at.
func TestLookUpByPeeking(t *testing.T) {
	const found, behind = "poison %s on async-caller-poison: rejected", "unread queue async-caller-poison"
	for name, test := range map[string]struct {
		messages int
		queues   []string
		id       string
		want     []string
	}{
		"all_are_peeked": {32, nil, "r31", []string{fmt.Sprintf(found, "r31")}},
		"the_33rd":       {33, nil, "r32", []string{behind}},
		"before_others":  {40, nil, "r1", []string{fmt.Sprintf(found, "r1"), behind}},
		"selected":       {40, []string{parking}, "moved", []string{"poison moved on parking: rejected"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newQueues(t, test.messages)
				must(0, store.Create(t.Context(), parking))
				put(t, store, parking, deadLetter("moved", mainQueue), 0)
				a := newAccount(store)
				a.Table = &memory.Table{}
				before := store.All(poisonQueue)
				query := account.LookupQuery{Queues: test.queues, IDs: []string{test.id}, PeekOnly: true}
				l := must(a.LookUp(t.Context(), query))
				if diff := cmp.Diff(test.want, places(l)); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
				if diff := cmp.Diff(before, store.All(poisonQueue)); diff != "" {
					t.Errorf("the poison queue has changed:\n%s", diff)
				}
				for _, u := range l.Unread {
					want := fmt.Sprintf("queue async-caller-poison: only the first 32 of about %d were looked at: the "+
						"timer function AC-monitor has not compared it with the record yet", test.messages)
					if u.Error() != want {
						t.Errorf("%q, want %q", u.Error(), want)
					}
				}
				query.PeekOnly = false
				l = must(a.LookUp(t.Context(), query))
				isReceived := cmp.Diff(before, store.All(poisonQueue)) != ""
				isLong := test.messages > storage.MaxBatch && len(test.queues) == 0
				if isReceived != isLong || len(l.Poison) != 1 {
					t.Errorf("of whole queues %d messages are found, received %t", len(l.Poison), isReceived)
				}
			})
		})
	}
}
