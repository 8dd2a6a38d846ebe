// Package credential has the tokens with which calls are authorized. It fetches each for the call that needs it, and
// keeps it in memory until its end. A gate stops calls for which there is no token.
package credential

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/logs"
	"asynccaller/handler/internal/deliver/outbound"
	"asynccaller/handler/internal/plain/secret"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/targets"
)

// Timeout limits a token request, and so how long a call waits for a token.
const Timeout = 10 * time.Second

const (
	// maxRenewal is how long before its end a token is renewed, and renewalShare the part of its life if that is less.
	maxRenewal   = 5 * time.Minute
	renewalShare = 5
	// minDelay and maxDelay bound the time between two requests to a token server that fails, and the delay of a
	// message for which there is no token.
	minDelay = 5 * time.Second
	maxDelay = 15 * time.Minute
	// remindEvery is the shortest time between two lines of the log about a credential, and between two requests in
	// place of its tokens that targets refuse.
	remindEvery = time.Minute
)

// Token authorizes calls until its end.
type Token struct {
	Value secret.Text
	End   time.Time
}

// Config is what a store needs.
type Config struct {
	Fetch Fetch
	// Now is the clock. Random returns random numbers from 0 up to, not including, 1.
	Now    func() time.Time
	Random func() float64
	Log    zerolog.Logger
}

// tooEarly is why a refused token is not replaced.
const tooEarly = "the target refuses the token, and another one was requested less than a minute ago"

// maxWaiting is how many calls wait for one request. Others would occupy the slots of other targets.
const maxWaiting = 8

// Store has the tokens of an instance. It is safe for concurrent use.
type Store struct {
	Config

	mu      sync.Mutex
	sources map[targets.Credential]*source
	// requests are those in flight. They end when life ends.
	requests sync.WaitGroup
	life     context.Context //nolint:containedctx // the life of the store, not of a call
	end      context.CancelFunc
}

// New returns a store without tokens.
func New(c Config) *Store {
	s := &Store{Config: c, sources: map[targets.Credential]*source{}}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// Run waits for the end of ctx. Then it ends the requests in flight, and none begins any more.
func (s *Store) Run(ctx context.Context) {
	<-ctx.Done()
	s.mu.Lock()
	s.end()
	s.mu.Unlock()
	s.requests.Wait()
}

// source is the state of a credential.
type source struct {
	token   Token
	renewAt time.Time
	// fetching is closed when the request in flight ends; nil if none is. Waiting counts the calls that wait for it.
	fetching chan struct{}
	waiting  int
	// problem is why the latest request failed; nil if it did not. No request is made before retryAt.
	problem *outbound.NoTokenError
	retryAt time.Time
	// loggedAt is when the log last had a line about a problem, and refusedAt when another token was last requested in
	// place of one that a target had refused.
	loggedAt, refusedAt time.Time
}

// Token returns a token of a credential, and waits for it if there is none. While its requests fail, only one call at
// a time waits: the others would occupy the slots of other targets. It implements [outbound.Tokens].
func (s *Store) Token(ctx context.Context, c targets.Credential) (secret.Text, error) {
	return s.other(ctx, c, "")
}

// Replace returns another token of a credential in place of one that a target has refused. The refused one stays for
// other calls until another one comes, which is requested at most once a minute. The token is empty if the server gives
// the same one again. It implements [outbound.Tokens].
func (s *Store) Replace(ctx context.Context, c targets.Credential, refused secret.Text) (secret.Text, error) {
	token, err := s.other(ctx, c, refused)
	if token == refused {
		token = ""
	}
	return token, err
}

// other returns a token other than the refused one, or the one that has come last.
func (s *Store) other(ctx context.Context, c targets.Credential, refused secret.Text) (secret.Text, error) {
	for hasWaited := false; ; hasWaited = true {
		token, fetching, err := s.look(c, refused, hasWaited)
		if fetching == nil {
			return token, err
		}
		select {
		case <-fetching:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// look returns the token for a call, the request to wait for, or why there is none. It begins the request that is due.
// A call that has waited for a request takes the token that came.
func (s *Store) look(c targets.Credential, refused secret.Text, hasWaited bool) (secret.Text, chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, src := s.Now(), s.source(c)
	isValid := now.Before(src.token.End)
	isRefused := isValid && src.token.Value == refused
	if isRefused && hasWaited && src.problem == nil {
		isRefused = false
	}
	isDue := !isValid || !now.Before(src.renewAt) || isRefused && !isRecent(src.refusedAt, now)
	begins := isDue && src.fetching == nil && !now.Before(src.retryAt) && s.life.Err() == nil
	if begins {
		src.fetching, src.waiting = make(chan struct{}), 0
		s.requests.Go(func() { s.fetch(c, src) })
		if isRefused {
			src.refusedAt = now
		}
	}
	switch {
	case isValid && !isRefused:
		return src.token.Value, nil, nil
	case s.life.Err() != nil:
		return "", nil, s.life.Err()
	case !begins && src.problem != nil:
		return "", nil, src.problem
	case src.fetching == nil:
		return "", nil, &outbound.NoTokenError{Cause: tooEarly}
	case src.waiting == maxWaiting:
		return "", nil, &outbound.NoTokenError{
			Cause: fmt.Sprintf("no token yet: %d calls wait for it (%s)", maxWaiting, server(c)),
		}
	}
	src.waiting++
	return "", src.fetching, nil
}

func (s *Store) source(c targets.Credential) *source {
	src := s.sources[c]
	if src == nil {
		src = &source{}
		s.sources[c] = src
	}
	return src
}

// fetch makes a request, and keeps its result.
func (s *Store) fetch(c targets.Credential, src *source) {
	token, err := s.Fetch(s.life, c)
	s.mu.Lock()
	defer s.mu.Unlock()
	close(src.fetching)
	src.fetching = nil
	if s.life.Err() != nil {
		return
	}
	now := s.Now()
	if err == nil && !token.End.After(now) {
		err = &ProblemError{Text: "the token has ended already"}
	}
	if err != nil {
		s.failed(c, src, err, now)
		return
	}
	src.token, src.problem, src.retryAt = token, nil, time.Time{}
	src.renewAt = token.End.Add(-min(maxRenewal, token.End.Sub(now)/renewalShare))
}

// isRecent reports whether a time is set and less than a minute ago.
func isRecent(latest, now time.Time) bool { return !latest.IsZero() && now.Sub(latest) < remindEvery }

func (s *Store) failed(c targets.Credential, src *source, err error, now time.Time) {
	failures := 1
	if src.problem != nil {
		failures += src.problem.Failures
	}
	src.problem = &outbound.NoTokenError{Cause: Cause(c, err), Failures: failures}
	src.retryAt = now.Add(delay(failures, s.Random()))
	if isRecent(src.loggedAt, now) {
		return
	}
	src.loggedAt = now
	level := zerolog.WarnLevel
	if known, ok := errors.AsType[*ProblemError](err); ok && known.ByOperator {
		level = zerolog.ErrorLevel
	}
	s.Log.WithLevel(level).Str(logs.Credential, c.Name).Str(logs.Detail, src.problem.Cause).
		Msg("no token: the calls that need it wait")
}

// delay returns the time until the next request, or until a message comes back, after a number of failures in a row.
func delay(failures int, random float64) time.Duration {
	longest := min(minDelay<<min(failures, 10), maxDelay)
	return time.Duration((1 + random) / 2 * float64(longest))
}

// Enter lets a call pass when there is a token for it, or when it needs none. It implements [delivery.Gate].
func (s *Store) Enter(ctx context.Context, due *decision.Due) (decision.Pass, *decision.Verdict) {
	profile, call := due.Intake.Profile, due.Intake.Call()
	needed := profile.CredentialOf(call)
	switch {
	case needed == nil:
		return nil, nil
	case profile.IsPlain(call):
		return nil, &decision.Verdict{
			Outcome: &decision.Outcome{Failure: decision.FailureTargetRefused, Detail: targets.PlainRefusal},
		}
	}
	_, err := s.Token(ctx, *needed)
	if err == nil {
		return nil, nil
	}
	problem, ok := errors.AsType[*outbound.NoTokenError](err)
	if !ok { // the handler stops
		return nil, &decision.Verdict{Outcome: &decision.Outcome{Failure: decision.FailureInterrupted}}
	}
	return nil, &decision.Verdict{Refusal: &decision.Refusal{
		Reason: decision.Auth, Detail: problem.Cause, Delay: delay(problem.Failures, due.Jitter),
	}}
}
