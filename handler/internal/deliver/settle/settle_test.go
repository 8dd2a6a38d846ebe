package settle_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
)

// now is when messages are settled.
var now = time.Date(2026, time.March, 1, 12, 0, 0, 123_000_000, time.UTC)

// state is that of a call that failed twice.
func state() envelope.State {
	return envelope.State{
		Attempts:        2,
		CreatedAt:       now.Add(-time.Hour),
		LatestAttemptAt: now.Add(-time.Second),
		NextAttemptAt:   now.Add(10 * time.Second),
		Trail: []envelope.Attempt{
			{At: now.Add(-time.Minute), Error: "connect: connection refused", Took: 3 * time.Millisecond},
			{At: now.Add(-time.Second), Status: 503, Took: 40 * time.Millisecond},
		},
	}
}

const (
	// call and rest are the parts of the envelope that are never touched.
	call = `"call":{"url":"https://user:` + canary + `@target.example/?code=` + canary +
		`","headers":{"Authorization":"` + canary + `"},"json":{ ` +
		`"b":1.50, "a":"` + canary + `" }}`
	rest = `"x-own":[ 1 ],"context":{ "order": 7 },"callback":{"url":"https://sender.example/done?code=` +
		canary + `","method":"PUT","headers":{"X-` +
		`Key":"` + canary + `"}}`
	// stateText is the state above.
	stateText = `"createdAt":"2026-03-01T11:00:00.123Z","attempts":2,"latestAttemptAt":"2026-03-01T11:59:59.123Z",` +
		`"nextAttemptAt":"2026-03-01T12:00:10.123Z",` +
		`"trail":[{"at":"2026-03-01T11:59:00.123Z","error":"connect: connection ` +
		`refused","tookMs":3},{"at":"2026-03-01T11:59:59.123Z","status":503,"tookMs":40}]`
)

// Each action writes the expected message to the expected queue, and nothing else.
func TestActions(t *testing.T) {
	answered := state()
	answered.Latest = &envelope.Answer{
		Status: 503, Body: []byte(`{"busy":true}`),
		Header: http.Header{"Content-Type": {"application/json"}}, Truncated: true,
	}
	tests := map[string]struct {
		decision decision.Decision
		queue    string
		want     string
		visible  time.Duration // from when it is settled
	}{
		"reschedule": {
			decision: decision.Decision{
				Action: decision.Reschedule, Reason: decision.Status, Delay: 10 * time.Second,
				Status: 503, State: state(),
			},
			queue:   main,
			want:    `{"asyncCaller":1,"requestId":"request-1",` + call + `,` + rest + `,` + stateText + `}`,
			visible: 10 * time.Second,
		},
		"reschedule_at_once": {
			decision: decision.Decision{
				Action: decision.Reschedule, Reason: decision.Interrupted,
				State: envelope.State{CreatedAt: now},
			},
			queue: main,
			want: `{"asyncCaller":1,"requestId":"request-1",` + call + `,` + rest +
				`,"createdAt":"2026-03-01T12:00:00.123Z"}`,
		},
		"callback": {
			decision: decision.Decision{
				Action: decision.Callback, Reason: decision.Rejected, Status: 503,
				State: answered, Delay: time.Hour,
			},
			queue: main,
			want: `{"asyncCaller":1,"requestId":"request-1.callback","createdAt":"2026-03-01T12:00:00.123Z","call":{` +
				`"url":"https://sender.example/done?code=` + canary + `","method":"PUT","headers":{"X-Key":"` + canary +
				`"},"json":{` +
				`"Id":"request-1","Context":{ "order": 7 ` +
				`},"StatusCode":503,"Payload":"{\"busy\":true}","PayloadMediaType":"application/json",` +
				`"Attempts":2,"Reason":"rejected","PayloadTruncated":true}}}`,
		},
		"dead_letter": {
			decision: decision.Decision{
				Action: decision.DeadLetter, Reason: decision.Expired,
				Detail: "the deadline has passed", State: state(), Delay: time.Hour,
			},
			queue: poison,
			want: `{"asyncCaller":1,"requestId":"request-1",` + call + `,` + rest + `,` + stateText +
				`,"deadLetter":{"at":"2026-03-01T12:00:00.123Z","reason":"expired","detail":"the deadline has ` +
				`passed","queue":"async-caller","attempts":2}}`,
		},
	}
	for name, test := range tests {
		for _, encoding := range bothEncodings {
			t.Run(name+"_"+string(encoding), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := newStore(t)
					settled, err := settle.New(store, encoding).
						Settle(t.Context(), write(t, content, encoding, test.decision), settle.Lease{})
					if err != nil || settled.Reschedule != "" {
						t.Fatalf("mode %q, error %v", settled.Reschedule, err)
					}
					got, m := store.only(t, test.queue, encoding)
					if diff := cmp.Diff(generic(t, test.want), generic(t, got)); diff != "" {
						t.Errorf("content (-want +got):\n%s", diff)
					}
					if visible := m.NextVisibleAt.Sub(m.InsertedAt); visible != test.visible {
						t.Errorf("it becomes visible after %v, want %v", visible, test.visible)
					}
					if m.ExpiresAt.Year() != 9999 {
						t.Errorf("it expires at %v, want never", m.ExpiresAt)
					}
				})
			})
		}
	}
}

// What a sender wrote is handed on byte for byte: white space, the spelling of numbers, order.
func TestCallByteForByte(t *testing.T) {
	for action, name := range map[decision.Action]string{decision.Reschedule: main, decision.DeadLetter: poison} {
		store := newStore(t)
		nothing := write(t, content, storage.Base64, decision.Decision{Action: action, State: state()})
		if _, err := settle.New(store, storage.Base64).Settle(t.Context(), nothing, settle.Lease{}); err != nil {
			t.Fatal(err)
		}
		got, _ := store.only(t, name, storage.Base64)
		if !strings.Contains(got, call) || !strings.Contains(got, `"x-own":[ 1 ],"context":{ "order": 7 }`) {
			t.Errorf("%s: the call or another member was changed:\n%s", action, got)
		}
	}
}

func TestCallIsNoEnd(t *testing.T) {
	for _, action := range []decision.Action{decision.Call, "", "nonsense"} {
		store := newStore(t)
		_, err := settle.New(store, storage.Base64).
			Settle(t.Context(), write(t, content, storage.Base64, decision.Decision{Action: action}), settle.Lease{})
		if err == nil || len(store.tries) != 0 {
			t.Errorf("%q: got %v after %d tries: the host would delete a message that nothing became of", action,
				err, len(store.tries))
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	const messages = 50
	store := newStore(t)
	settler := settle.New(store, storage.Base64)
	in := open(t, content, storage.Base64)
	var done sync.WaitGroup
	for n := range messages {
		done.Go(func() {
			d := decision.Decision{Action: decision.Reschedule, State: envelope.State{Attempts: n + 1, CreatedAt: now}}
			if n%2 == 0 {
				d.Action = decision.DeadLetter
			}
			if _, err := settler.Settle(t.Context(), decision.Rules{}.Compose(in, d, main, now),
				settle.Lease{}); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	contents := store.all(t, storage.Base64)
	if len(contents[main]) != messages/2 || len(contents[poison]) != messages/2 {
		t.Errorf("%d reschedule and %d dead letters, want %d each", len(contents[main]), len(contents[poison]),
			messages/2)
	}
}
