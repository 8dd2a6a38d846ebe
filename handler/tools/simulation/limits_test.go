package simulation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/storage"
)

// TestLimitedRate: calls at the rate of the limit, however many instances make them.
func TestLimitedRate(t *testing.T) {
	for _, rate := range []int{1, 5, 50, 500} {
		for _, part := range parts {
			for _, instances := range instanceCounts {
				use := 0.97
				if rate == 500 { // an instance makes 300 calls a second
					use = 0.9
				}
				if rate == 500 && instances == 1 {
					continue
				}
				t.Run(fmt.Sprintf("%d_a_second_%g_%d_instances", rate, part, instances), func(t *testing.T) {
					limitedRate(rate, part, time.Minute).run(t, instances).must(t, figures{
						window: 1.1, use: use, excess: 0.0001, inversion: 30 * time.Second, reschedules: 1,
						operations: 7,
					})
				})
			}
		}
	}
}

// TestLimitedLowRate: a few calls a minute, by messages of which many more wait.
func TestLimitedLowRate(t *testing.T) {
	for _, perMinute := range []int{1, 6} {
		for _, load := range []float64{0.9, 1.5} {
			for _, instances := range instanceCounts {
				t.Run(fmt.Sprintf("%d_a_minute_%g_%d_instances", perMinute, load, instances), func(t *testing.T) {
					d := limitedPerMinute(perMinute, load)
					d.deadline, d.length = 100*time.Hour, time.Duration(200/perMinute)*time.Minute
					d.run(t, instances).must(t, figures{window: 1.1, use: 0.92, reschedules: 10})
				})
			}
		}
	}
}

// TestLimitedRateBurst: 5,000 messages at once.
func TestLimitedRateBurst(t *testing.T) {
	for _, rate := range []int{1, 50} {
		for _, instances := range instanceCounts {
			t.Run(fmt.Sprintf("%d_a_second_%d_instances", rate, instances), func(t *testing.T) {
				d := limitedRate(rate, 0.8, 24*time.Hour)
				d.backlog, d.length = 5000/divisor, max(d.length, 200*time.Second/divisor)
				d.run(t, instances).must(t, figures{
					window: 1.1, use: 0.92, reschedules: 13, operations: 9,
				})
			})
		}
	}
	t.Run("20000_waiting", func(t *testing.T) {
		d := limitedRate(1, 0.2, 24*time.Hour)
		d.backlog, d.length = 20_000/divisor, 20_000*time.Second/divisor
		d.run(t, 5).must(t, figures{window: 1.1, use: 0.97, reschedules: 15})
	})
}

// TestLimitedRateOverload: 50,000 messages at once, of which five instances receive 1,500 a second.
func TestLimitedRateOverload(t *testing.T) {
	for _, instances := range []int{5, 20} {
		t.Run(fmt.Sprintf("%d_instances", instances), func(t *testing.T) {
			d := limitedRate(500, 0.8, 24*time.Hour)
			d.backlog, d.length = 50_000/divisor, 300*time.Second/divisor
			d.run(t, instances).must(t, figures{window: 1.1, use: 0.8, reschedules: 8, operations: 1})
		})
	}
}

// TestLimitedConcurrencyBurst: 5,000 messages at once, of which a message waits for up to 40 minutes.
func TestLimitedConcurrencyBurst(t *testing.T) {
	for _, instances := range instanceCounts {
		t.Run(fmt.Sprintf("%d_instances", instances), func(t *testing.T) {
			d := limitedConcurrency(20, 2*time.Second, 0.8)
			d.backlog, d.length, d.deadline = 5000/divisor, 900*time.Second/divisor, 24*time.Hour
			d.run(t, instances).must(t, figures{peak: 20, use: 0.95, reschedules: 6})
		})
	}
}

func limitedRate(rate int, part float64, deadline time.Duration) demand {
	return demand{
		limit: fmt.Sprintf(`{"rate":"%d/s"}`, rate), rate: float64(rate), burst: rate,
		call: 100 * time.Millisecond, load: part, deadline: deadline, skew: 500 * time.Millisecond,
		length: seconds(max(30, 2000/float64(rate)/divisor)),
	}
}

// TestLimitedConcurrency: never more calls in flight than the limit, and the permits are in use.
func TestLimitedConcurrency(t *testing.T) {
	for _, limit := range []int{1, 2, 5, 20, 100} {
		for _, call := range []time.Duration{200 * time.Millisecond, 2 * time.Second, 30 * time.Second} {
			for _, part := range parts {
				for _, instances := range instanceCounts {
					capacity := float64(limit) / call.Seconds()
					if capacity > 300 && instances == 1 { // an instance makes 300 calls a second
						continue
					}
					t.Run(fmt.Sprintf("%d_of_%v_%g_%d_instances", limit, call, part, instances), func(t *testing.T) {
						d := limitedConcurrency(limit, call, part)
						want := figures{peak: limit, use: 0.95, excess: 0.02, reschedules: 2}
						if call < time.Second { // the time between two calls with a permit counts
							want.use = 0.86
						}
						if call > d.deadline/4 {
							d.deadline, want.excess, want.reschedules = time.Hour, 0.0001, 10
						}
						d.run(t, instances).must(t, want)
					})
				}
			}
		}
	}
}

func limitedConcurrency(limit int, call time.Duration, part float64) demand {
	capacity := float64(limit) / call.Seconds()
	return demand{
		limit: fmt.Sprintf(`{"concurrency":%d}`, limit), concurrency: limit, call: call, load: part,
		length: seconds(max(30, 2000/capacity/divisor)), deadline: time.Minute, skew: 500 * time.Millisecond,
	}
}

// TestLimitedTrouble: instances that die, start and stop, and a table that is away or slow, while calls wait.
func TestLimitedTrouble(t *testing.T) {
	die := func(w *limited) {
		for _, i := range w.instances {
			if !i.isDead() {
				i.kill()
				return
			}
		}
	}
	start := func(w *limited) { w.start() }
	stop := func(w *limited) { w.instances[0].stop() }
	ten := func(w *limited) {
		for range 10 {
			w.start()
		}
	}
	away := func(is bool) func(*limited) { return func(w *limited) { w.table.away = is } }
	slow := func(d time.Duration) func(*limited) { return func(w *limited) { w.table.slow = d } }
	churn := map[time.Duration]func(*limited){}
	for at := time.Minute; at < 10*time.Minute; at += time.Minute {
		churn[at], churn[at+time.Second] = start, die
	}
	type events = map[time.Duration]func(*limited)
	for name, row := range map[string]struct {
		events events
		skew   time.Duration
		// twice is how many calls are interrupted, and made again; used is the use, if permits of instances that died
		// are not used for a minute.
		twice int
		used  float64
	}{
		"two_die":      {events: events{2 * time.Minute: die, 121 * time.Second: die}},
		"one_stops":    {events: events{2 * time.Minute: stop}, twice: 10},
		"ten_start":    {events: events{2 * time.Minute: ten}},
		"churn":        {events: churn, used: 0.8},
		"away_60s":     {events: events{2 * time.Minute: away(true), 3 * time.Minute: away(false)}},
		"away_3min":    {events: events{2 * time.Minute: away(true), 5 * time.Minute: away(false)}},
		"slow_table":   {events: events{2 * time.Minute: slow(10 * time.Second), 4 * time.Minute: slow(0)}},
		"clocks_of_5s": {skew: 5 * time.Second},
		"clocks_of_5min": {
			events: events{2 * time.Minute: ten, 4 * time.Minute: stop}, skew: 5 * time.Minute, twice: 10,
		},
	} {
		for _, demand := range []demand{
			limitedRate(5, 0.5, time.Hour),
			limitedConcurrency(2, 2*time.Second, 0.5),
			limitedConcurrency(20, 2*time.Second, 0.5),
			limitedBoth(5, 5, 2*time.Second, 0.5),
		} {
			t.Run(name+demand.limit, func(t *testing.T) {
				d := demand
				d.events, d.length, d.deadline = row.events, 10*time.Minute, time.Hour
				d.skew = max(d.skew, row.skew)
				d.run(t, 5).must(t, figures{
					peak: d.concurrency, window: 1.1, use: cmp.Or(row.used, 0.95), excess: 0.0001, reschedules: 5,
					twice: row.twice,
				})
			})
		}
	}
}

// must checks figures against the worst that is allowed.
func (f figures) must(t *testing.T, worst figures) {
	t.Helper()
	t.Log(f)
	if divisor > 1 { // a short run has few calls, of which chance decides more
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

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// limitedBoth is a target with both limits, of which the tighter one is in use to a part.
func limitedBoth(rate, concurrency int, call time.Duration, part float64) demand {
	binding := min(float64(rate), float64(concurrency)/call.Seconds())
	return demand{
		limit: fmt.Sprintf(`{"rate":"%d/s","concurrency":%d}`, rate, concurrency), rate: float64(rate),
		burst: rate, concurrency: concurrency, call: call, load: part, deadline: time.Hour,
		skew: 500 * time.Millisecond, length: seconds(max(30, 2000/binding/divisor)),
	}
}

// TestLimitedBoth: a target with both limits gets as many calls as the tighter one allows.
func TestLimitedBoth(t *testing.T) {
	for _, row := range []struct {
		rate, concurrency int
		call              time.Duration
		use               float64
	}{
		{10, 10, 2 * time.Second, 0.95},
		{2, 2, 2 * time.Second, 0.95},
		{5, 20, 2 * time.Second, 0.95},
		{50, 20, 200 * time.Millisecond, 0.8},
	} {
		for _, instances := range instanceCounts {
			for _, load := range []float64{0.9, 2} {
				d := limitedBoth(row.rate, row.concurrency, row.call, load)
				t.Run(fmt.Sprintf("%s_%v_%g_%d_instances", d.limit, d.call, load, instances), func(t *testing.T) {
					d.run(t, instances).must(t, figures{
						peak: row.concurrency, window: 1.1, use: row.use, reschedules: 10,
					})
				})
			}
		}
	}
}

// TestLimitedLostAnswers: writes of the table that get no answer, and are made nevertheless, or later, or not at all.
func TestLimitedLostAnswers(t *testing.T) {
	for _, lost := range []float64{0.02, 0.1} {
		for _, d := range []demand{
			limitedRate(5, 0.8, time.Hour),
			limitedConcurrency(5, 2*time.Second, 0.8),
			limitedBoth(5, 5, time.Second, 0.8),
		} {
			t.Run(fmt.Sprintf("%g_%s", lost, d.limit), func(t *testing.T) {
				d.lost, d.deadline = lost, time.Hour
				d.run(t, 5).must(t, figures{peak: d.concurrency, window: 1.1, use: 0.8, reschedules: 5})
			})
		}
	}
}

// TestLimitedAttacks: what others send takes no more from a sender than that many calls of an honest one.
func TestLimitedAttacks(t *testing.T) {
	largest := storage.Base64.MaxContentBytes()
	attacks := map[string][]burst{}
	for _, ticket := range []string{"0", "1", "9007199254740991", "140737488355328"} {
		attacks["ticket_"+ticket] = []burst{{interval: time.Second, count: 300, members: `,"reserved":` + ticket}}
	}
	for _, below := range []int{20, 100} {
		attacks[fmt.Sprint("large_", below)] = []burst{{interval: time.Second, count: 300, size: largest - below}}
	}
	attacks["contents"] = []burst{{interval: time.Second, count: 300, size: 40 << 10, isRouted: true}}
	attacks["ticket_1_at_once"] = []burst{{at: 10 * time.Second, count: 20, members: `,"reserved":1`}}
	attacks["duplicates"] = []burst{{at: 10 * time.Second, interval: time.Second, count: 60, same: "d"}}
	for name, others := range attacks {
		for _, d := range []demand{
			limitedRate(1, 0.5, time.Hour),
			limitedConcurrency(2, 2*time.Second, 0.5),
			limitedBoth(1, 2, time.Second, 0.5),
		} {
			t.Run(name+d.limit, func(t *testing.T) {
				d.others, d.history, d.deadline, d.length = others, name == "duplicates", time.Hour, 5*time.Minute
				d.run(t, 5).must(t, figures{
					peak: d.concurrency, window: 1.1, use: 0.8, reschedules: 20, missing: 300, twice: 5,
				})
			})
		}
	}
}

// TestLimitedDamagedRow: one write to the row of a limit, by somebody who may write to the table, stops no target, and
// lets no more calls be made than the limit.
func TestLimitedDamagedRow(t *testing.T) {
	const never = `"9999-12-31T23:59:59Z"`
	far := map[string]string{"freeSince": never, "leftAt": never, "movedAt": never}
	behind := func(l map[string]json.RawMessage) {
		issued, _ := strconv.ParseInt(string(l["issued"]), 10, 64)
		l["front"] = fmt.Append(nil, issued-999_999_999)
	}
	for name, damage := range map[string]func(l map[string]json.RawMessage){
		"times": func(map[string]json.RawMessage) {},
		"front": behind,
		"mean":  func(l map[string]json.RawMessage) { behind(l); l["mean"] = []byte("3599") },
		"holders": func(l map[string]json.RawMessage) {
			rest := cmp.Or(strings.Trim(string(l["holders"]), "{}"), `"y":{"permits":-1,"until":`+never)
			l["holders"] = []byte(`{"x":{"permits":99,"until":` + never + `},` + rest + `}}`)
		},
	} {
		for _, d := range []demand{
			limitedRate(1, 0.8, time.Hour),
			limitedConcurrency(2, 2*time.Second, 0.8),
			limitedBoth(2, 5, 2*time.Second, 0.8),
		} {
			t.Run(name+d.limit, func(t *testing.T) {
				d.deadline, d.length = time.Hour, 15*time.Minute
				d.events = map[time.Duration]func(*limited){5 * time.Minute: func(w *limited) {
					w.rewrite(func(l map[string]json.RawMessage) {
						for member, at := range far {
							l[member] = []byte(at)
						}
						damage(l)
					})
				}}
				d.run(t, 5).must(t, figures{
					peak: d.concurrency, window: 1.1, use: 0.95, excess: 0.0001, reschedules: 3,
				})
			})
		}
	}
}

// TestLimitedCancelled: calls that are cancelled while they wait in the line take little from those that come later.
func TestLimitedCancelled(t *testing.T) {
	for load, length := range map[float64]time.Duration{0.5: 200 * time.Second, 0.9: 15 * time.Minute} {
		for _, d := range []demand{
			limitedRate(1, load, time.Hour),
			limitedRate(5, load, time.Hour),
			limitedConcurrency(1, 2*time.Second, load),
			limitedConcurrency(5, 2*time.Second, load),
			limitedBoth(2, 2, time.Second, load),
		} {
			t.Run(fmt.Sprint(load, d.limit), func(t *testing.T) {
				d.backlog, d.from, d.length = 5000/divisor, 100*time.Second, 100*time.Second+length
				d.events = map[time.Duration]func(*limited){100 * time.Second: (*limited).cancel}
				d.deadline = time.Hour
				want := figures{peak: d.concurrency, window: 1.1, use: 0.88, reschedules: 100}
				isBoth := d.rate > 0 && d.concurrency > 0
				if d.concurrency == 1 || isBoth && load > 0.8 { // those count that come before tickets count as lost
					want.use = 0.72
				}
				d.run(t, 5).must(t, want)
			})
		}
	}
}

// TestLimitedInPlace: contents of a route without room for a ticket are called.
func TestLimitedInPlace(t *testing.T) {
	for _, d := range []demand{
		limitedRate(1, 0.8, time.Hour),
		limitedConcurrency(1, 2*time.Second, 0.8),
		limitedBoth(1, 2, 2*time.Second, 0.8),
	} {
		for _, count := range []int{5, 30} {
			t.Run(fmt.Sprint(d.limit, count), func(t *testing.T) {
				d.others = []burst{{
					at: time.Minute, interval: time.Millisecond, count: count, size: 40 << 10, isRouted: true,
				}}
				d.deadline, d.length = time.Hour, 5*time.Minute
				d.run(t, 5).must(t, figures{peak: d.concurrency, window: 1.1, use: 0.9, reschedules: 10})
			})
		}
	}
}

func limitedPerMinute(rate int, part float64) demand {
	d := limitedRate(1, part, time.Hour)
	d.limit, d.rate = fmt.Sprintf(`{"rate":"%d/m"}`, rate), float64(rate)/60
	return d
}

// TestLimitedCancelledLine: after all calls of a line were cancelled, the next ones of a slow target do not wait for
// the time of that line. One can come back while another call has the turn, some times in a row.
func TestLimitedCancelledLine(t *testing.T) {
	const most = 60 // turns or calls
	for _, row := range []struct {
		demand
		unit time.Duration
	}{
		{limitedPerMinute(1, 0), time.Minute},
		{limitedPerMinute(6, 0), 10 * time.Second},
		{limitedRate(1, 0, time.Hour), time.Second},
		{limitedConcurrency(1, 2*time.Second, 0), 2 * time.Second},
		{limitedConcurrency(1, 30*time.Second, 0), 30 * time.Second},
		{limitedBoth(1, 2, 2*time.Second, 0), 2 * time.Second},
	} {
		for _, backlog := range []int{100, 5000 / divisor} {
			for _, next := range []time.Duration{time.Second, 30 * time.Second} {
				t.Run(fmt.Sprint(row.limit, row.call, backlog, next), func(t *testing.T) {
					const cancelled = 10 * time.Minute
					d := row.demand
					d.backlog, d.deadline, d.from, d.length = backlog, 24*time.Hour, cancelled, time.Hour
					d.events = map[time.Duration]func(*limited){cancelled: (*limited).cancel}
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

// TestLimitedCopiedTickets: a sender who knows tickets of the line, such as those of copies of his messages, takes no
// more from others than that many honest calls. With old ones he comes before others, but few of them hold up nobody.
func TestLimitedCopiedTickets(t *testing.T) {
	for _, isOld := range []bool{false, true} {
		for _, count := range []int{20, 300} {
			if isOld && count == 300 {
				continue
			}
			for _, d := range []demand{
				limitedRate(1, 0.5, time.Hour),
				limitedConcurrency(2, 2*time.Second, 0.5),
				limitedBoth(1, 2, time.Second, 0.5),
			} {
				t.Run(fmt.Sprint(isOld, count, d.limit), func(t *testing.T) {
					d.others = []burst{{
						at: time.Minute, interval: 300 * time.Second / time.Duration(count), count: count,
						members: `,"reserved":1`,
					}}
					if count == 20 { // all at once, beside a load of 0.8
						d.others[0].interval, d.load = 10*time.Millisecond, 0.8
					}
					d.events, d.deadline, d.length = map[time.Duration]func(*limited){}, time.Hour, 6*time.Minute
					for at := 50 * time.Second; at < d.length; at += 10 * time.Second {
						d.events[at] = func(w *limited) { w.copyTickets(isOld) }
					}
					d.run(t, 5).must(t, figures{
						peak: d.concurrency, window: 1.1, use: 0.8, reschedules: 20, missing: 300,
					})
				})
			}
		}
	}
}
