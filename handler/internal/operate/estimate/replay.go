package estimate

import (
	"math"
	"time"

	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/rules/retry"
)

// amounts are calls by the number of their attempts. A part of a call can be in each of several places.
type amounts [maxAttempts + 1]float64

func (a *amounts) sum() (all float64) {
	for _, n := range a {
		all += n
	}
	return all
}

// crowd are calls that became due in the same cell: some of those that wait now, and others that came.
type crowd struct {
	own    amounts
	others float64
}

// serve makes calls of a crowd, as many as there is room for, and adds the own ones to those that were made. It reports
// whether that were all.
func (c *crowd) serve(room *float64, made *amounts) (all bool) {
	size := c.own.sum() + c.others
	share := 1.0
	if size > *room {
		share = *room / size
	}
	*room -= size * share
	for attempts, n := range c.own {
		made[attempts] += n * share
		c.own[attempts] -= n * share
	}
	c.others -= c.others * share
	return share == 1
}

const (
	// left is what is left of the calls when the last one is done: half of it. LikelyLeft is what may be left so that
	// none is in nine of ten cases.
	left       = 0.5
	likelyLeft = 0.05
)

// replay returns after which times nine of ten calls and the last one are done, if in a second so many calls can be
// made and come, and a share of them fails. Those that failed come back as the policy says.
func (w *Waiting) replay(policy retry.Policy, pace, come, failedShare float64) (nineOfTen, last time.Duration) {
	var due [cells + 1]amounts
	var inLine [cells]amounts
	for p, n := range w.calls {
		if p.kind == InLine {
			inLine[p.cell][p.attempts] += float64(n)
		} else {
			due[p.cell][p.attempts] += float64(n)
		}
	}
	rest, want := float64(w.total), left
	if failedShare > 0 {
		want = likelyLeft
	}
	const lifetime = 7 * 24 * time.Hour // those that do not expire by then have begun later
	atLatest := max(lifetime, w.latest)
	nineOfTen, last = atLatest, atLatest
	var line crowd
	var queue []crowd
	for cell := 0; cell < cells && rest > want; cell++ {
		begin, width := beginOf(cell), beginOf(cell+1)-beginOf(cell)
		for attempts, n := range inLine[cell] {
			line.own[attempts] += n
		}
		queue = append(queue, crowd{due[cell], come * width / (1 - failedShare)}) // they are made again, too
		room := pace * width
		var made amounts
		isServed := line.serve(&room, &made)
		for isServed && len(queue) > 0 {
			isServed = queue[0].serve(&room, &made)
			if isServed {
				queue = queue[1:]
			}
		}
		for attempts, n := range made {
			spread(due[:], policy, n*failedShare, attempts, cell)
		}
		used := width
		if !math.IsInf(pace, 1) {
			used = width * (1 - room/(pace*width))
		}
		done := made.sum() * (1 - failedShare)
		at := func(rests float64) time.Duration { return bounds.Seconds(begin + used*min((rest-rests)/done, 1)) }
		if tenth := float64(w.total) / 10; rest > tenth && rest-done <= tenth {
			nineOfTen = at(tenth)
		}
		if rest-done <= want {
			last = at(want)
		}
		rest -= done
	}
	return min(nineOfTen, atLatest), min(last, atLatest)
}

// spread adds calls that failed in a cell to those that are due later. The delay varies, so they are in several places.
func spread(due []amounts, policy retry.Policy, n float64, attempts, cell int) {
	const places = 5
	if n == 0 {
		return
	}
	middle := bounds.Seconds((beginOf(cell) + beginOf(cell+1)) / 2)
	for place := range places {
		delay := policy.Delay(attempts+1, (float64(place)+0.5)/places)
		later := max(cellOf(middle+delay), cell+1)
		due[later][min(attempts+1, maxAttempts)] += n / places
	}
}
