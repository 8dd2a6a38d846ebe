package credential_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"asynccaller/handler/internal/deliver/outbound"
	"asynccaller/handler/internal/gates/credential"
	"asynccaller/handler/internal/plain/secret"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/targets"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// orders is a credential of OAuth 2.
var orders = targets.Credential{
	Kind: targets.OAuth2, ClientID: "client", TokenURL: "https://login.example/token", Secret: "C4nary", Name: "orders",
}

// server is a token server. Its tokens are named t1, t2 and so on, and live for life.
type server struct {
	took, life time.Duration
	problem    error
	// values replaces the names of the tokens.
	values []string

	mu sync.Mutex
	// requests has the time of each request, since the first one.
	requests []time.Duration
	begin    time.Time
	// inFlight is the number of requests now, and most the largest number.
	inFlight, most int
}

func (s *server) fetch(ctx context.Context, _ targets.Credential) (credential.Token, error) {
	s.mu.Lock()
	if s.begin.IsZero() {
		s.begin = time.Now()
	}
	s.requests = append(s.requests, time.Since(s.begin))
	n, problem := len(s.requests), s.problem
	s.inFlight++
	s.most = max(s.most, s.inFlight)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.inFlight--
		s.mu.Unlock()
	}()
	select {
	case <-time.After(s.took):
	case <-ctx.Done():
		return credential.Token{}, ctx.Err()
	}
	value := fmt.Sprintf("t%d", n)
	if n <= len(s.values) {
		value = s.values[n-1]
	}
	return credential.Token{Value: secret.Text(value), End: time.Now().Add(s.life)}, problem
}

func (s *server) set(problem error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problem = problem
}

func (s *server) store(log *bytes.Buffer) *credential.Store {
	return credential.New(credential.Config{
		Fetch: s.fetch, Now: time.Now, Random: func() float64 { return 0.5 }, Log: zerolog.New(log),
	})
}

func wait(d time.Duration) { <-time.After(d) }

// due returns a call that needs the credential.
func due(rawURL string) *decision.Due {
	target, err := url.Parse(rawURL)
	if err != nil {
		panic(err)
	}
	e := &envelope.Envelope{Call: envelope.Call{Method: "POST", Target: target}}
	return &decision.Due{
		Intake: &decision.Intake{Envelope: e, Profile: targets.Profile{Auth: &targets.Auth{Credential: orders}}},
		Jitter: 0.5,
	}
}

// TestOneRequest: however many calls need a token, there is one request for it, also for the renewal. At most eight
// calls wait for it: the others come back after some seconds, so that a slow token server takes no other slots.
func TestOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{took: 9 * time.Second, life: time.Hour}
		store := s.store(&bytes.Buffer{})
		began := time.Now()
		enter := func(n int) (putOff int32) {
			var calls sync.WaitGroup
			var refused atomic.Int32
			for range n {
				calls.Go(func() {
					_, verdict := store.Enter(t.Context(), due("https://a.example"))
					if verdict == nil {
						return
					}
					refused.Add(1)
					want := decision.Refusal{
						Reason: decision.Auth, Detail: "no token yet: 8 calls wait for it (login.example)",
						Delay: 3750 * time.Millisecond,
					}
					if *verdict.Refusal != want || time.Since(began) > 0 {
						t.Errorf("after %v: refused: %+v", time.Since(began), verdict.Refusal)
					}
				})
			}
			calls.Wait()
			return refused.Load()
		}
		if putOff := enter(512); putOff != 504 {
			t.Errorf("%d of 512 calls are put off", putOff)
		}
		if took := time.Since(began); took != 9*time.Second {
			t.Errorf("the calls waited %v", took)
		}
		wait(54 * time.Minute)
		if putOff := enter(512); putOff != 0 {
			t.Errorf("with a token, %d calls are put off", putOff)
		}
		if len(s.requests) != 1 {
			t.Errorf("requests at %v, want one", s.requests)
		}
		wait(time.Minute) // 5 minutes before its end
		began = time.Now()
		if putOff := enter(512); putOff != 0 || time.Since(began) > 0 {
			t.Errorf("during a renewal, %d calls are put off, the others waited %v", putOff, time.Since(began))
		}
		if token, _ := store.Token(t.Context(), orders); token != "t1" {
			t.Errorf("during the renewal the token is %q", string(token))
		}
		wait(10 * time.Second)
		if token, _ := store.Token(t.Context(), orders); token != "t2" || len(s.requests) != 2 {
			t.Errorf("after the renewal the token is %q, with requests at %v", string(token), s.requests)
		}
	})
}

// TestRenewal: a token is renewed a fifth of its life before its end, and used until then if that fails.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{life: 5 * time.Minute}
		store := s.store(&bytes.Buffer{})
		for _, step := range []struct {
			wait     time.Duration
			problem  error
			token    string
			requests int
		}{
			{0, nil, "t1", 1},
			{239 * time.Second, nil, "t1", 1},
			{time.Second, errors.New("down"), "t1", 2},
			{59 * time.Second, errors.New("down"), "t1", 3},
			{time.Second, errors.New("down"), "", 3},
			{time.Minute, nil, "t4", 4},
		} {
			wait(step.wait)
			s.set(step.problem)
			token, err := store.Token(t.Context(), orders)
			synctest.Wait()
			if string(token) != step.token || (err != nil) != (step.token == "") || len(s.requests) != step.requests {
				t.Errorf("after %v: token %q, %v, %d requests; want %q and %d", step.wait, string(token), err,
					len(s.requests), step.token, step.requests)
			}
		}
	})
}

// TestTokenServerDown: while requests fail, one call at a time waits. Requests and calls come at growing intervals.
func TestTokenServerDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := &server{took: 10 * time.Second, problem: &credential.ProblemError{Text: "status 500"}}
		store := s.store(&log)
		var delays []time.Duration
		for began := time.Now(); time.Since(began) < time.Hour; wait(time.Second) {
			_, verdict := store.Enter(t.Context(), due("https://a.example"))
			r := verdict.Refusal
			if r == nil || r.Reason != decision.Auth || r.Detail != "no token: status 500 (login.example)" {
				t.Fatalf("verdict %+v", verdict)
			}
			delays = append(delays, r.Delay)
		}
		if !slices.IsSorted(delays) || delays[0] != 7500*time.Millisecond || delays[len(delays)-1] != 675*time.Second {
			t.Errorf("delays from %v to %v", delays[0], delays[len(delays)-1])
		}
		if n := len(s.requests); n < 8 || n > 14 {
			t.Errorf("%d requests in an hour: %v", n, s.requests)
		}
		if lines := strings.Count(log.String(), "\n"); lines < 2 || lines > 13 {
			t.Errorf("%d lines:\n%s", lines, &log)
		}
		s.set(nil)
		s.life = time.Hour
		wait(15 * time.Minute)
		blocked := make(chan *decision.Verdict)
		go func() {
			_, verdict := store.Enter(t.Context(), due("https://a.example"))
			blocked <- verdict
		}()
		synctest.Wait()
		began := time.Now()
		if _, verdict := store.Enter(t.Context(), due("https://a.example")); verdict == nil || time.Since(began) > 0 {
			t.Errorf("a second call waits: %+v", verdict)
		}
		if verdict := <-blocked; verdict != nil {
			t.Errorf("after the return: %+v", verdict)
		}
	})
}

// TestOperatorsFault: what the operator has to correct is an error, once a minute. No line has a secret.
func TestOperatorsFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := &server{problem: &credential.ProblemError{Text: "invalid_client, status 401", ByOperator: true}}
		store := s.store(&log)
		for range 60 {
			_, _ = store.Token(t.Context(), orders)
			wait(time.Second)
		}
		const want = `{"level":"error","credential":"orders",` +
			`"detail":"no token: invalid_client, status 401 (login.example)",` +
			`"message":"no token: the calls that need it wait"}` + "\n"
		if log.String() != want {
			t.Errorf("got %s\nwant %s", &log, want)
		}
	})
}

// TestReplace: in place of a token that a target refuses, another one is asked for at most once a minute. Until then
// there is none yet.
func TestReplace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{took: time.Second, life: time.Hour, values: []string{"a", "b", "c", "c"}}
		store := s.store(&bytes.Buffer{})
		_, _ = store.Token(t.Context(), orders)
		for _, step := range []struct {
			wait          time.Duration
			refused, want string
			requests      int
		}{
			{0, "a", "b", 2},
			{0, "a", "b", 2}, // another call, with the same token
			{58 * time.Second, "b", "too early", 2},
			{time.Second, "b", "c", 3},
			{time.Minute, "c", "", 4}, // the server gives the same one
			{time.Second, "c", "too early", 4},
			{time.Hour / 2, "c", "t5", 5},
			{time.Hour, "t5", "t6", 6}, // it has ended
			{time.Second, "t5", "t6", 6},
		} {
			wait(step.wait)
			token, err := store.Replace(t.Context(), orders, secret.Text(step.refused))
			if problem, ok := errors.AsType[*outbound.NoTokenError](err); ok && problem.Failures == 0 {
				token, err = "too early", nil
			}
			if string(token) != step.want || err != nil || len(s.requests) != step.requests {
				t.Errorf("%s: got %q, %v, %d requests; want %q and %d", step.refused, string(token), err,
					len(s.requests), step.want, step.requests)
			}
		}
		if s.most > 1 {
			t.Errorf("%d requests at once", s.most)
		}
	})
}

// TestRefusedTokenStays: while the token server is down, a token that one target refuses stays for the calls to others
// until its end, and another one is asked for at most once a minute, until one comes.
func TestRefusedTokenStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{took: time.Second, life: time.Hour}
		store := s.store(&bytes.Buffer{})
		_, _ = store.Token(t.Context(), orders)
		s.set(errors.New("down"))
		for range 100 {
			token, err := store.Replace(t.Context(), orders, "t1")
			if problem, ok := errors.AsType[*outbound.NoTokenError](err); !ok || problem.Failures == 0 {
				t.Fatalf("in place of it: %q, %v", string(token), err)
			}
			if token, err := store.Token(t.Context(), orders); token != "t1" || err != nil {
				t.Fatalf("for other calls: %q, %v", string(token), err)
			}
			wait(10 * time.Second)
		}
		if !slices.IsSortedFunc(s.requests[1:], func(a, b time.Duration) int { return int(a + time.Minute - b) }) {
			t.Errorf("requests at %v", s.requests)
		}
		s.set(nil)
		wait(15 * time.Minute)
		token, err := store.Replace(t.Context(), orders, "t1")
		if err != nil || token == "" || token == "t1" {
			t.Errorf("after the return of the server: %q, %v", string(token), err)
		}
		s.set(errors.New("down"))
		wait(time.Hour)
		if token, err := store.Token(t.Context(), orders); err == nil {
			t.Errorf("after its end: %q", string(token))
		}
	})
}

// TestRevocation: when the token of many calls in flight is revoked, at most eight wait for the new one.
func TestRevocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{took: 9 * time.Second, life: time.Hour}
		store := s.store(&bytes.Buffer{})
		_, _ = store.Token(t.Context(), orders)
		var calls sync.WaitGroup
		var renewed, later atomic.Int32
		for range 100 {
			calls.Go(func() {
				token, err := store.Replace(t.Context(), orders, "t1")
				problem, ok := errors.AsType[*outbound.NoTokenError](err)
				switch {
				case token == "t2" && err == nil:
					renewed.Add(1)
				case ok && problem.Failures == 0:
					later.Add(1)
				default:
					t.Errorf("got %q, %v", string(token), err)
				}
			})
		}
		calls.Wait()
		if renewed.Load() != 8 || later.Load() != 92 || len(s.requests) != 2 {
			t.Errorf("%d calls got the new token, %d not yet, %d requests",
				renewed.Load(), later.Load(), len(s.requests))
		}
	})
}

// TestStop: a stop ends the request in flight, and none begins after it. No line blames the token server.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := &server{took: 9 * time.Second, life: time.Hour}
		store := s.store(&log)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			store.Run(ctx)
			close(ended)
		}()
		verdicts := make(chan *decision.Verdict)
		go func() {
			_, verdict := store.Enter(context.WithoutCancel(ctx), due("https://a.example"))
			verdicts <- verdict
		}()
		wait(time.Second)
		began := time.Now()
		stop()
		<-ended
		_, late := store.Enter(t.Context(), due("https://a.example"))
		for _, verdict := range []*decision.Verdict{<-verdicts, late} {
			if verdict == nil || verdict.Outcome == nil || verdict.Outcome.Failure != decision.FailureInterrupted {
				t.Errorf("verdict %+v", verdict)
			}
		}
		if time.Since(began) > 0 || s.inFlight > 0 || len(s.requests) != 1 || log.Len() > 0 {
			t.Errorf("after %v, %d of %d requests in flight, log %s",
				time.Since(began), s.inFlight, len(s.requests), &log)
		}
	})
}

// TestGate: what the gate says about calls that need no token, must not be made, or are interrupted.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{took: 5 * time.Second, life: time.Hour}
		store := s.store(&bytes.Buffer{})
		other := due("https://a.example")
		other.Intake.Profile.Auth = nil
		if _, verdict := store.Enter(t.Context(), other); verdict != nil || len(s.requests) > 0 {
			t.Errorf("without a credential: %+v", verdict)
		}
		_, verdict := store.Enter(t.Context(), due("http://a.example"))
		o := verdict.Outcome
		if o == nil || o.Failure != decision.FailureTargetRefused || o.Detail != targets.PlainRefusal {
			t.Errorf("by http: %+v", verdict)
		}
		stopping, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, verdict = store.Enter(stopping, due("https://a.example"))
		if o := verdict.Outcome; o == nil || o.Failure != decision.FailureInterrupted {
			t.Errorf("interrupted: %+v", verdict)
		}
		if _, verdict := store.Enter(t.Context(), due("https://a.example")); verdict != nil || len(s.requests) != 1 {
			t.Errorf("the request went on: %+v, %d requests", verdict, len(s.requests))
		}
	})
}

var _ outbound.Tokens = (*credential.Store)(nil)
