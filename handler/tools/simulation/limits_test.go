package simulation

import (
	"fmt"
	"testing"
	"time"

	"asynccaller/handler/internal/storage"
)

// limitRow is what a number of instances are asked to do, and the worst that is allowed.
type limitRow struct {
	demand

	instances int
	worst     figures
}

// limitRows are the runs of docs/performance.md by name. In `make test` only a few of them run.
func limitRows() map[string]limitRow {
	rows := map[string]limitRow{}
	for _, instances := range []int{1, 5, 20} {
		add := func(name string, d demand, worst figures) {
			worst.peak, worst.window = d.concurrency, 1.1
			rows[fmt.Sprintf("%s_%d_instances", name, instances)] = limitRow{d, instances, worst}
		}
		for _, rate := range []int{1, 5, 50, 500} {
			use := 0.97
			if rate == 500 { // an instance makes 300 calls a second
				use = 0.9
			}
			if rate == 500 && instances == 1 {
				continue
			}
			add(fmt.Sprint(rate, "_a_second"), limitedRate(rate, 0.9, time.Minute),
				figures{use: use, excess: 0.0001, inversion: 30 * time.Second, reschedules: 1, operations: 7})
		}
		for _, perMinute := range []int{1, 6} {
			d := limitedPerMinute(perMinute, 0.9)
			d.deadline, d.length = 100*time.Hour, time.Duration(200/perMinute)*time.Minute
			add(fmt.Sprint(perMinute, "_a_minute"), d, figures{use: 0.92, reschedules: 10})
		}
		for _, rate := range []int{1, 50} {
			d := limitedRate(rate, 0.8, 24*time.Hour)
			d.backlog, d.length = 5000/divisor, max(d.length, 200*time.Second/divisor)
			add(fmt.Sprint(rate, "_a_second_of_5000"), d, figures{use: 0.92, reschedules: 13, operations: 9})
		}
		for _, limit := range []int{1, 2, 5, 20, 100} {
			for _, call := range []time.Duration{200 * time.Millisecond, 2 * time.Second, 30 * time.Second} {
				d, worst := limitedConcurrency(limit, call, 0.9), figures{use: 0.95, excess: 0.02, reschedules: 2}
				if call < time.Second { // the time between two calls with a permit counts
					worst.use = 0.86
				}
				if call > d.deadline/4 {
					d.deadline, worst.excess, worst.reschedules = time.Hour, 0.0001, 10
				}
				if float64(limit)/call.Seconds() <= 300 || instances > 1 { // an instance makes 300 calls a second
					add(fmt.Sprint(limit, "_of_", call), d, worst)
				}
			}
		}
		d := limitedConcurrency(20, 2*time.Second, 0.8)
		d.backlog, d.length, d.deadline = 5000/divisor, 900*time.Second/divisor, 24*time.Hour
		add("20_of_2s_of_5000", d, figures{use: 0.95, reschedules: 6})
		for _, both := range []struct {
			rate, concurrency int
			call              time.Duration
			use               float64
		}{
			{10, 10, 2 * time.Second, 0.95},
			{2, 2, 2 * time.Second, 0.95},
			{5, 20, 2 * time.Second, 0.95},
			{50, 20, 200 * time.Millisecond, 0.8},
		} {
			for _, load := range []float64{0.9, 2} {
				d := limitedBoth(both.rate, both.concurrency, both.call, load)
				add(fmt.Sprintf("%d_a_second_and_%d_of_%v_at_%g", both.rate, both.concurrency, both.call, load), d,
					figures{use: both.use, reschedules: 10})
			}
		}
	}
	return rows
}

// TestLimits: no more calls than the limits allow, and nearly as many, however many instances make them.
func TestLimits(t *testing.T) {
	rows := limitRows()
	for name, row := range rows {
		if isShort && !shortLimits[name] {
			continue
		}
		t.Run(name, func(t *testing.T) {
			row.run(t, row.instances).must(t, row.worst)
		})
	}
	for name := range shortLimits {
		if _, exists := rows[name]; !exists {
			t.Errorf("there is no run %s", name)
		}
	}
}

func limitedRate(rate int, part float64, deadline time.Duration) demand {
	return demand{
		limit: fmt.Sprintf(`{"rate":"%d/s"}`, rate), rate: float64(rate), burst: rate,
		call: 100 * time.Millisecond, load: part, deadline: deadline, skew: 500 * time.Millisecond,
		length: seconds(max(30, 2000/float64(rate)/divisor)),
	}
}

func limitedPerMinute(rate int, part float64) demand {
	d := limitedRate(1, part, time.Hour)
	d.limit, d.rate = fmt.Sprintf(`{"rate":"%d/m"}`, rate), float64(rate)/60
	return d
}

func limitedConcurrency(limit int, call time.Duration, part float64) demand {
	capacity := float64(limit) / call.Seconds()
	return demand{
		limit: fmt.Sprintf(`{"concurrency":%d}`, limit), concurrency: limit, call: call, load: part,
		length: seconds(max(30, 2000/capacity/divisor)), deadline: time.Minute, skew: 500 * time.Millisecond,
	}
}

// limitedBoth is a target with both limits, of which the tighter one is in use to a part.
func limitedBoth(rate, concurrency int, call time.Duration, part float64) demand {
	binding := min(float64(rate), float64(concurrency)/call.Seconds())
	return demand{
		limit: fmt.Sprintf(`{"rate":"%d/s","concurrency":%d}`, rate, concurrency), rate: float64(rate),
		burst: rate, concurrency: concurrency, call: call, load: part, deadline: time.Hour,
		skew: 500 * time.Millisecond, length: seconds(max(30, 2000/binding/divisor)),
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// must checks figures against the worst that is allowed.
func (f figures) must(t *testing.T, worst figures) {
	t.Helper()
	t.Log(f)
	if isShort { // a short run has few calls, of which chance decides more
		worst.use *= 0.95
		worst.inversion = worst.inversion * 5 / 4
		worst.reschedules *= 1.25
		worst.operations *= 1.25
	}
	if f.peak > worst.peak && worst.peak > 0 || f.window > worst.window && worst.window > 0 || f.use < worst.use ||
		f.excess > worst.excess || worst.inversion > 0 && f.inversion > worst.inversion ||
		worst.reschedules > 0 && f.reschedules > worst.reschedules ||
		worst.operations > 0 && f.operations > worst.operations ||
		f.missing > worst.missing || f.twice > worst.twice || worst.waited > 0 && f.waited > worst.waited {
		t.Errorf("%v\nwant no worse than %v", f, worst)
	}
}

// TestLimitedAttacks: what others send takes no more from a sender than that many calls of an honest one, and contents
// of routes without room for a ticket are all called.
func TestLimitedAttacks(t *testing.T) {
	largest := storage.Base64.MaxContentBytes()
	attacks := map[string]burst{
		"contents":         {interval: time.Second, count: 300, size: 40 << 10, isRouted: true},
		"few_contents":     {at: time.Minute, interval: time.Millisecond, count: 30, size: 40 << 10, isRouted: true},
		"ticket_1_at_once": {at: 10 * time.Second, count: 20, members: `,"reserved":1`},
		"large":            {interval: time.Second, count: 300, size: largest - 20},
	}
	for _, ticket := range []string{"0", "1", "9007199254740991", "140737488355328"} {
		attacks["ticket_"+ticket] = burst{interval: time.Second, count: 300, members: `,"reserved":` + ticket}
	}
	demands := []demand{
		limitedBoth(1, 2, time.Second, 0.5), limitedRate(1, 0.5, time.Hour), limitedConcurrency(2, 2*time.Second, 0.5),
	}
	if isShort {
		demands = demands[:1]
	}
	for name, attack := range attacks {
		for _, d := range demands {
			t.Run(name+d.limit, func(t *testing.T) {
				d.others, d.deadline, d.length = []burst{attack}, time.Hour, 5*time.Minute
				worst := figures{peak: d.concurrency, window: 1.1, use: 0.8, reschedules: 20}
				if name != "few_contents" {
					worst.missing, worst.twice = 300, 5
				}
				d.run(t, 5).must(t, worst)
			})
		}
	}
}

// TestLimitedCancelledLine: after all calls of a line were cancelled, the next ones of a slow target do not wait for
// the time of that line. One can come back while another call has the turn, some times in a row.
func TestLimitedCancelledLine(t *testing.T) {
	const most = 60 // turns or calls
	rows := []struct {
		demand
		unit time.Duration
	}{
		{limitedBoth(1, 2, 2*time.Second, 0), 2 * time.Second},
		{limitedPerMinute(1, 0), time.Minute},
		{limitedPerMinute(6, 0), 10 * time.Second},
		{limitedRate(1, 0, time.Hour), time.Second},
		{limitedConcurrency(1, 2*time.Second, 0), 2 * time.Second},
		{limitedConcurrency(1, 30*time.Second, 0), 30 * time.Second},
	}
	if isShort {
		rows = rows[:1]
	}
	for _, row := range rows {
		for _, backlog := range []int{100, 5000 / divisor} {
			for _, next := range []time.Duration{time.Second, 30 * time.Second} {
				t.Run(fmt.Sprint(row.limit, row.call, backlog, next), func(t *testing.T) {
					const cancelled = 10 * time.Minute
					d := row.demand
					d.backlog, d.deadline, d.cancelAt, d.length = backlog, 24*time.Hour, cancelled, time.Hour
					d.others = []burst{
						{at: cancelled + next, interval: 3 * row.unit, count: 3},
						{at: cancelled + time.Hour, interval: 3 * row.unit, count: 3},
					}
					d.run(t, 5).must(t, figures{
						peak: d.concurrency, window: 1.1, waited: 30*time.Second + most*row.unit,
					})
				})
			}
		}
	}
}
