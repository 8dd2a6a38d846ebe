package sight_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/storage/memory"
)

// TestSimulation: whatever four instances call, and however long they are idle, start again or are killed, two minutes
// later a target fails if and only if the latest call to it has failed, since the first failure after the last success.
func TestSimulation(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &simulated{T: t, random: rand.New(rand.NewPCG(seed, 0)), since: map[string]time.Time{}}
				for n := range s.instances {
					s.start(n)
				}
				for range 40 {
					s.step()
					if t.Failed() {
						break
					}
				}
				for _, i := range s.instances {
					i.stop()
				}
			})
		})
	}
}

// simulated is an app at random.
type simulated struct {
	*testing.T
	random    *rand.Rand
	table     memory.Table
	instances [4]*instance
	started   int
	// since is when each target that fails began to, and done what has happened.
	since map[string]time.Time
	done  []string
}

func (s *simulated) start(n int) {
	s.started++
	s.instances[n] = start(s.T, &s.table, fmt.Sprint(s.started))
}

func (s *simulated) note(what string, n int) {
	s.done = append(s.done, fmt.Sprintf("%s %d %s", time.Now().UTC().Format(time.TimeOnly), n, what))
}

// step makes some calls, lets something else happen, and checks what is known two minutes later.
func (s *simulated) step() {
	const settled = 130 * time.Second
	for range s.random.IntN(6) {
		n, host := s.random.IntN(4), []string{"a.example", "b.example", "c.example"}[s.random.IntN(3)]
		_, fails := s.since[host]
		if s.random.IntN(2) == 0 {
			s.instances[n].deliver(host)
			delete(s.since, host)
			s.note("delivers "+host, n)
		} else {
			s.instances[n].fail(host, decision.FailureTimeout)
			if !fails {
				s.since[host] = time.Now()
			}
			s.note("fails "+host, n)
		}
		<-time.After(time.Duration(1+s.random.IntN(40)) * time.Second)
	}
	n := s.random.IntN(4)
	switch s.random.IntN(5) {
	case 0:
		s.instances[n].stop()
		s.start(n)
		s.note("starts again", n)
	case 1:
		<-time.After(settled)
		s.instances[n].kill()
		s.start(n)
		s.note("is killed", n)
	case 2:
		<-time.After(time.Duration(s.random.IntN(40)) * time.Minute)
	case 3:
		for range s.random.IntN(30) {
			s.instances[n].deliver("other.example")
			<-time.After(time.Minute)
		}
		s.note("was busy", n)
	}
	<-time.After(settled)
	s.check()
}

func (s *simulated) check() {
	failing, err := sight.NewReader(&s.table).Failing(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	var got []string
	for _, f := range failing {
		got = append(got, f.Host)
		if since := s.since[f.Host]; f.Since.Sub(since).Abs() > time.Minute {
			s.Errorf("%s fails since %s, want %s", f.Host, f.Since.Format(time.TimeOnly), since.Format(time.TimeOnly))
		}
	}
	if want := slices.Sorted(maps.Keys(s.since)); !slices.Equal(got, want) {
		s.Errorf("%v fail, want %v", got, want)
	}
	if s.Failed() {
		s.Logf("what has happened:\n%s", strings.Join(s.done, "\n"))
	}
}
