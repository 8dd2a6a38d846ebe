package sight

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// ShownMinutes are those of the last hour, and RecentMinutes the last ones of them.
const (
	ShownMinutes  = 60
	RecentMinutes = 5
)

const (
	// arrival is how long after its end the rows of a minute have usually arrived.
	arrival = 15 * time.Second
	// overlap is how much of the time that was read is read once more: a row can become visible late.
	overlap = 5 * time.Second
	// maxRead limits the rows of an hour that are read. Somebody else may have written them.
	maxRead = 50_000
)

// Reader reads what the apps of an account know. It keeps the minutes that it has read, and then reads only new rows.
// It is not safe for concurrent use.
type Reader struct {
	table storage.Table
	// minutes are the numbers of all apps.
	minutes map[time.Time]*Interval
	read    map[string]*partition
}

// partition is what was read of a partition: the IDs of its rows. Those that are read next were written after a time.
type partition struct {
	ids  map[string]bool
	next time.Time
}

// NewReader returns a reader of a table that has read nothing.
func NewReader(table storage.Table) *Reader {
	return &Reader{table: table, minutes: map[time.Time]*Interval{}, read: map[string]*partition{}}
}

// Failing returns the targets that fail, of all apps that share the account, by app and host. Calls without an answer
// that have ended since do not count.
func (r *Reader) Failing(ctx context.Context) (failing []Target, err error) {
	byApp := map[string][]view{}
	err = readNow(ctx, r.table, "", func(row nowRow, v view) { byApp[row.App] = append(byApp[row.App], v) })
	if err != nil {
		return nil, fmt.Errorf("read which targets fail: %w", err)
	}
	for _, app := range slices.Sorted(maps.Keys(byApp)) {
		joined := join(byApp[app])
		for _, host := range slices.Sorted(maps.Keys(joined)) {
			t := joined[host]
			isOver := t.IsUnanswered() && time.Since(t.SeenAt) > targets.MaxTimeout
			if !isOver {
				failing = append(failing, t)
			}
		}
	}
	return failing, nil
}

// Read returns the numbers of all apps together. The last hour ends with the last minute whose rows have usually
// arrived.
func (r *Reader) Read(ctx context.Context, now time.Time) (Numbers, error) {
	end := now.UTC().Add(-arrival).Truncate(time.Minute)
	begin := end.Add(-ShownMinutes * time.Minute)
	maps.DeleteFunc(r.minutes, func(at time.Time, _ *Interval) bool { return at.Before(begin) })
	read := map[string]*partition{}
	for hour := begin.Truncate(time.Hour); !hour.After(now); hour = hour.Add(time.Hour) {
		name := minutesPartition(hour)
		read[name] = cmp.Or(r.read[name], &partition{ids: map[string]bool{}})
	}
	r.read = read
	for name, known := range read {
		err := r.readNew(ctx, name, known, func(row minuteRow) { r.add(row, begin) })
		if err != nil {
			return Numbers{}, fmt.Errorf("read calls per minute: %w", err)
		}
	}
	numbers := Numbers{minutes: map[time.Time]*Interval{}}
	for minute := range ShownMinutes {
		at := begin.Add(time.Duration(minute) * time.Minute)
		of := r.minutes[at]
		if of == nil {
			continue
		}
		if len(numbers.minutes) == 0 {
			numbers.known = ShownMinutes - minute
		}
		numbers.minutes[at] = of
		numbers.lastHour.add(of)
		if minute >= ShownMinutes-RecentMinutes {
			numbers.recent.add(of)
		}
	}
	return numbers, nil
}

// readNew shows the new rows of a partition.
func (r *Reader) readNew(ctx context.Context, name string, known *partition, see func(minuteRow)) error {
	var latest time.Time
	isNew := false
	query := storage.Query{Partition: name, WrittenAfter: known.next}
	err := rows.ListWhole(ctx, r.table, query, func(row minuteRow) error {
		if row.WrittenAt.After(latest) {
			latest = row.WrittenAt
		}
		if known.ids[row.ID] {
			return nil
		}
		if len(known.ids) >= maxRead {
			return fmt.Errorf("%s has more than %d rows", name, maxRead)
		}
		isNew = true
		known.ids[row.ID] = true
		see(row)
		return nil
	})
	switch {
	case err != nil || latest.IsZero():
	case isNew:
		known.next = latest.Add(-overlap)
	default:
		known.next = latest
	}
	return err
}

// add adds the numbers of a row to those of its minute, unless that is too early or the row is invalid.
func (r *Reader) add(row minuteRow, begin time.Time) {
	numbers, err := decode(row.Numbers)
	at := row.minute()
	if err != nil || at.Before(begin) {
		return
	}
	if r.minutes[at] == nil {
		r.minutes[at] = &Interval{}
	}
	r.minutes[at].add(numbers)
}

// Numbers are those of all apps in the last hour.
type Numbers struct {
	minutes          map[time.Time]*Interval
	recent, lastHour Interval
	// known is the number of minutes from the first one in which anything happened.
	known int
}

// Series has the numbers of a host over time.
type Series struct {
	// Last5Minutes and LastHour have the numbers of [RecentMinutes] and [ShownMinutes].
	Last5Minutes Window `json:"last5Minutes"`
	LastHour     Window `json:"lastHour"`
	// Minutes are those of the last hour in which anything happened, in their order.
	Minutes []Point `json:"minutes,omitempty"`
}

// Window has the numbers of some minutes together.
type Window struct {
	Counts
	// Known is the number of these minutes since the first one of the hour in which the apps did anything, at least 1.
	Known int `json:"knownMinutes"`
	// P50 and P99 are limits below which 50 and 99 percent of the durations are, as of [Durations.Percentile].
	P50 string `json:"p50"`
	P99 string `json:"p99"`
}

// Point has the numbers of the minute that begins at a time.
type Point struct {
	At time.Time `json:"at"`
	Counts
}

func (n Numbers) window(c Counts, minutes int) Window {
	return Window{
		Counts: c, Known: max(min(n.known, minutes), 1),
		P50: c.Durations.Percentile(50), P99: c.Durations.Percentile(99),
	}
}

func (n Numbers) series(recent, lastHour Counts) Series {
	return Series{Last5Minutes: n.window(recent, RecentMinutes), LastHour: n.window(lastHour, ShownMinutes)}
}

// Of returns the numbers of a host.
func (n Numbers) Of(host string) Series {
	of := n.series(n.recent.Counts(host), n.lastHour.Counts(host))
	of.Minutes = points(n.minutes, func(i *Interval) Counts { return i.Counts(host) })
	return of
}

// All returns the numbers of all hosts together.
func (n Numbers) All() Series {
	all := n.Except(nil)
	all.Minutes = points(n.minutes, func(i *Interval) Counts { return i.except(nil) })
	return all
}

// Except returns the numbers of all hosts but these together, without their minutes.
func (n Numbers) Except(hosts []string) Series {
	return n.series(n.recent.except(hosts), n.lastHour.except(hosts))
}

// Busiest returns the hosts with the most messages in the last hour, at most so many.
func (n Numbers) Busiest(most int) []string {
	hosts := n.lastHour.busiest()
	return hosts[:min(len(hosts), most)]
}

// points returns numbers of intervals, in the order of their times.
func points(intervals map[time.Time]*Interval, of func(*Interval) Counts) (found []Point) {
	for _, at := range slices.SortedFunc(maps.Keys(intervals), time.Time.Compare) {
		c := of(intervals[at])
		if c.AtLeast || c.Messages() > 0 {
			found = append(found, Point{at, c})
		}
	}
	return found
}
