package target_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"asynccaller/handler/tools/faults/schedule"
	"asynccaller/handler/tools/faults/target"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// partner answers every call with one word, and notes what it is asked.
type partner struct {
	mu                 sync.Mutex
	word               schedule.Word
	cutEarly, cutLater bool
	answered           []target.Call
}

func (p *partner) Arrived(target.Call) bool                 { return !p.cutEarly }
func (p *partner) Answer(target.Call) (schedule.Word, bool) { return p.word, !p.cutLater }
func (p *partner) Answered(c target.Call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answered = append(p.answered, c)
}

func mustTarget(t *testing.T, p *partner) *target.Target {
	t.Helper()
	s, err := target.Open(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// call returns the status, 0 for none, and how many bytes of a body came before its end or an error.
func call(ctx context.Context, t *testing.T, url, body string) (status int, length int64, whole bool) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Async-Caller-Attempt", "2")
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, 0, false
	}
	defer response.Body.Close()
	length, err = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20))
	return response.StatusCode, length, err == nil
}

// TestWords: every way to answer does what it is called.
func TestWords(t *testing.T) {
	for _, test := range []struct {
		word   schedule.Word
		length int64
		whole  bool
		slow   bool
	}{
		{word: "200", length: 13, whole: true},
		{word: "503", length: 13, whole: true},
		{word: schedule.Reset},
		{word: schedule.Close},
		{word: schedule.HalfHead},
		{word: schedule.Garbage},
		{word: schedule.HalfBody503, length: 7},
		{word: schedule.HalfBody200, length: 7},
		{word: schedule.Huge200, length: 1 << 20, whole: true},
		{word: schedule.Hang, slow: true},
		{word: schedule.DripHead, slow: true},
		{word: schedule.DripBody200, slow: true, length: 1},
	} {
		t.Run(string(test.word), func(t *testing.T) {
			s := mustTarget(t, &partner{word: test.word})
			ctx := t.Context()
			if test.slow {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 500*time.Millisecond)
				defer cancel()
			}
			status, length, whole := call(ctx, t, s.CallURL("m"), "")
			if status != test.word.Status() || length != test.length || whole != test.whole {
				t.Errorf("status %d, %d bytes, whole %v; want %d, %d, %v", status, length, whole, test.word.Status(), test.length, test.whole)
			}
		})
	}
}

func TestCuts(t *testing.T) {
	for name, p := range map[string]*partner{"early": {word: "200", cutEarly: true}, "later": {word: "200", cutLater: true}} {
		t.Run(name, func(t *testing.T) {
			s := mustTarget(t, p)
			if status, _, _ := call(t.Context(), t, s.CallURL("m"), ""); status != 0 || len(p.answered) != 0 {
				t.Errorf("status %d, answered %v; want the connection cut", status, p.answered)
			}
		})
	}
}

func TestCallback(t *testing.T) {
	p := &partner{word: "204"}
	s := mustTarget(t, p)
	call(t.Context(), t, s.CallbackURL("m"), `{"StatusCode":400}`)
	if err := s.Close(); err != nil { // waits until the call is answered
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	want := target.Call{ID: "m" + schedule.CallbackSuffix, Attempt: 2, Told: 400}
	if len(p.answered) != 1 || p.answered[0] != want {
		t.Errorf("calls %+v, want %+v", p.answered, want)
	}
	if id := target.IDOf(s.CallbackURL("m")); id != want.ID {
		t.Errorf("id %q of the callback's URL", id)
	}
	if id := target.IDOf(s.CallURL("m")); id != "m" {
		t.Errorf("id %q of the call's URL", id)
	}
}
