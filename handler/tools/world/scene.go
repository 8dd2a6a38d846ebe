package world

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// scenes are what chance alone would bring about too seldom. A new one comes last, so that the others stay the same.
var scenes = []func(*generator, *Schedule){
	(*generator).redirect, (*generator).pauseWithoutTable, (*generator).resumeLate, (*generator).look,
	(*generator).pace, (*generator).crowd, (*generator).takeLong, (*generator).ask,
}

// stage adds scenes to a schedule. Each has random values of its own.
func (s *Schedule) stage() {
	for n, add := range scenes {
		add(&generator{rand.New(rand.NewPCG(s.Seed, 100+uint64(n)))}, s) //nolint:gosec // keeps no secret
	}
	slices.SortStableFunc(s.acts, func(x, y act) int { return cmp.Compare(x.at, y.at) })
}

// redirect lets a target redirect its calls for a time, which its troubles seldom do.
func (g *generator) redirect(s *Schedule) {
	if !g.chance(0.4) {
		return
	}
	t := trouble{host: pick(g, secured, moving, "a.example"), mode: pick(g, redirects, redirects, moves)}
	t.from = g.between(0, s.Calm-2*time.Minute)
	t.to = t.from + g.between(20*time.Second, 2*time.Minute)
	s.troubles = append(s.troubles, t)
}

// pauseWithoutTable takes the tables away while a target is paused and gets calls.
func (g *generator) pauseWithoutTable(s *Schedule) {
	for _, a := range s.acts {
		if a.command != pauseTarget || !g.chance(0.5) {
			continue
		}
		from := a.at + 25*time.Second
		s.outages = append(s.outages, outage{tables: true, what: fails, from: from, to: from + 70*time.Second})
		for _, m := range s.messages {
			if g.chance(0.2) {
				m.host, m.at = pausing, from+g.between(16*time.Second, time.Minute)
			}
		}
	}
}

// resumeLate lets an operator resume a run whose claims have ended, after another one has been there.
func (g *generator) resumeLate(s *Schedule) {
	if s.operators == 0 || s.Calm < 7*time.Minute || !g.chance(0.7) {
		return
	}
	first := act{by: s.operators, command: pick(g, deleteLetters, retryLetters), all: true, rate: 1}
	first.at, first.away = s.Calm-g.between(325*time.Second, 340*time.Second), 6*time.Minute
	first.killAfter = g.between(2*time.Second, 5*time.Second)
	second := act{by: s.operators + 1, command: pick(g, deleteLetters, retryLetters), all: true, away: time.Second}
	second.at = first.at + 310*time.Second
	s.operators += 2
	s.acts = append(s.acts, first, second)
}

// look lets operators list dead letters.
func (g *generator) look(s *Schedule) {
	for range 3 * s.operators {
		a := act{by: g.IntN(s.operators), at: g.between(time.Minute, s.Calm), command: lookAtLetters}
		a.host = pick(g, "", "", "a.example", probed, secured)
		s.acts = append(s.acts, a)
	}
}

// pace lets an operator send dead letters one a second, or one first.
func (g *generator) pace(s *Schedule) {
	if s.operators == 0 || !g.chance(0.6) {
		return
	}
	a := act{by: g.IntN(s.operators), command: retryLetters, all: true, away: time.Second}
	a.at = g.between(s.Calm/2, s.Calm-30*time.Second)
	a.rate = pick(g, 0.0, 1.0)
	if a.rate == 0 {
		a.canary = 1
	}
	s.acts = append(s.acts, a)
}

// crowd lets many calls go to a target with a rate at the same time, from instances whose clocks differ.
func (g *generator) crowd(s *Schedule) {
	if !g.chance(0.15) {
		return
	}
	at := s.Calm/2 + g.between(0, time.Minute)
	for n := range s.instances {
		s.instances[n].ahead = pick(g, -20*time.Second, 0, 20*time.Second)
	}
	for _, m := range s.messages {
		if g.chance(0.5) {
			m.host, m.at = metered, at+g.between(0, 20*time.Second)
		}
	}
}

// takeLong lets calls to a target with a concurrency last longer than a permit.
func (g *generator) takeLong(s *Schedule) {
	if !g.chance(0.2) {
		return
	}
	s.settings.callTimeout = 2 * time.Minute
	for _, m := range s.messages {
		if m.host == narrow || g.chance(0.25) {
			m.host, m.took = narrow, g.between(65*time.Second, longest)
		}
	}
}

// exponentialFactor is how much longer each delay of an exponential policy is.
const exponentialFactor = 3

// ask changes what messages ask for.
func (g *generator) ask(s *Schedule) {
	for _, m := range s.messages {
		if m.hasReply && g.chance(0.2) {
			m.unusedGiveUp = pick(g, "drop", "fault")
		}
		if g.chance(0.15) {
			m.isExponential = true
			m.delays = nil
			for d := pick(g, time.Second, 4*time.Second); len(m.delays) < 4; d *= exponentialFactor {
				m.delays = append(m.delays, d)
			}
		}
	}
}
