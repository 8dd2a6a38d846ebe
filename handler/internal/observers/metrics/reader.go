package metrics

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"asynccaller/handler/internal/observers/record"
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
	// maxApps limits the apps whose numbers are read, and maxRead the rows of a partition. Somebody else may have
	// written them.
	maxApps = 50
	maxRead = 20_000
)

// Reader reads the numbers of the apps of an account. It keeps what it has read, and then reads only new rows. It is
// not safe for concurrent use.
type Reader struct {
	table storage.Table
	// minutes and hours are the numbers of all apps.
	minutes, hours map[time.Time]*Interval
	read           map[string]*partition
}

// partition is what was read of a partition: the IDs of its rows. Those that are read next were written after a time.
type partition struct {
	ids  map[string]bool
	next time.Time
}

// NewReader returns a reader of a table that has read nothing.
func NewReader(table storage.Table) *Reader {
	return &Reader{
		table: table, minutes: map[time.Time]*Interval{}, hours: map[time.Time]*Interval{},
		read: map[string]*partition{},
	}
}

// Read returns the numbers of apps together. The last hour ends with the last minute whose rows have usually arrived.
func (r *Reader) Read(ctx context.Context, apps []string, now time.Time) (Numbers, error) {
	if len(apps) > maxApps {
		return Numbers{}, fmt.Errorf("the account has %d apps, and the calls per minute of at most %d are read",
			len(apps), maxApps)
	}
	end := now.UTC().Add(-arrival).Truncate(time.Minute)
	begin := end.Add(-ShownMinutes * time.Minute)
	firstHour := now.UTC().Add(-record.AppRetention).Truncate(time.Hour)
	forget(r.minutes, begin)
	forget(r.hours, firstHour)
	read := map[string]*partition{}
	for _, app := range apps {
		names := []string{hoursPartition(app)}
		for hour := begin.Truncate(time.Hour); !hour.After(now); hour = hour.Add(time.Hour) {
			names = append(names, minutesPartition(app, hour))
		}
		for _, name := range names {
			read[name] = cmp.Or(r.read[name], &partition{ids: map[string]bool{}})
		}
	}
	r.read = read
	for name, known := range read {
		err := r.readNew(ctx, name, known, func(row row) {
			addTo(r.minutes, row.minute(), begin, row.Numbers)
			addTo(r.hours, row.hour(), firstHour, row.Numbers)
		})
		if err != nil {
			return Numbers{}, fmt.Errorf("read calls per minute: %w", err)
		}
	}
	numbers := Numbers{minutes: map[time.Time]*Interval{}, hours: r.hours}
	for minute := range ShownMinutes {
		at := begin.Add(time.Duration(minute) * time.Minute)
		of := r.minutes[at]
		if of == nil {
			continue
		}
		numbers.minutes[at] = of
		numbers.lastHour.add(of)
		if minute >= ShownMinutes-RecentMinutes {
			numbers.recent.add(of)
		}
	}
	return numbers, nil
}

// forget removes the numbers from before a time.
func forget(intervals map[time.Time]*Interval, begin time.Time) {
	maps.DeleteFunc(intervals, func(at time.Time, _ *Interval) bool { return at.Before(begin) })
}

// readNew shows the new rows of a partition.
func (r *Reader) readNew(ctx context.Context, name string, known *partition, see func(row)) error {
	var latest time.Time
	isNew := false
	query := storage.Query{Partition: name, WrittenAfter: known.next}
	err := rows.ListWhole(ctx, r.table, query, func(row row) error {
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

// addTo adds the numbers of a row to those of its time, unless that is too early or the row is invalid.
func addTo(intervals map[time.Time]*Interval, at, begin time.Time, encoded []byte) {
	numbers, err := decode(encoded)
	if err != nil || at.Before(begin) {
		return
	}
	if intervals[at] == nil {
		intervals[at] = &Interval{}
	}
	intervals[at].add(numbers)
}

// Numbers are those of apps in the last hour, and in the hours of the last 8 days that were added up.
type Numbers struct {
	minutes, hours   map[time.Time]*Interval
	recent, lastHour Interval
}

// Series has the numbers of a host over time.
type Series struct {
	// Last5Minutes and LastHour have the numbers of [RecentMinutes] and [ShownMinutes].
	Last5Minutes Window `json:"last5Minutes"`
	LastHour     Window `json:"lastHour"`
	// Minutes are those of the last hour in which anything happened, and Hours those of the last days, in their order.
	Minutes []Point `json:"minutes,omitempty"`
	Hours   []Point `json:"hours,omitempty"`
}

// Window has the numbers of some minutes together.
type Window struct {
	Counts
	// P50 and P99 are limits below which 50 and 99 percent of the durations are, as of [Durations.Percentile].
	P50 string `json:"p50"`
	P99 string `json:"p99"`
}

// Point has the numbers of the minute or hour that begins at a time.
type Point struct {
	At time.Time `json:"at"`
	Counts
}

func window(c Counts) Window {
	return Window{Counts: c, P50: c.Durations.Percentile(50), P99: c.Durations.Percentile(99)}
}

// Of returns the numbers of a host.
func (n Numbers) Of(host string) Series {
	of := func(i *Interval) Counts { return i.Of(host) }
	return Series{
		Last5Minutes: window(n.recent.Of(host)), LastHour: window(n.lastHour.Of(host)),
		Minutes: points(n.minutes, of), Hours: points(n.hours, of),
	}
}

// All returns the numbers of all hosts together.
func (n Numbers) All() Series {
	all := n.Others(nil)
	all.Minutes = points(n.minutes, func(i *Interval) Counts { return i.others(nil) })
	all.Hours = points(n.hours, func(i *Interval) Counts { return i.others(nil) })
	return all
}

// Others returns the numbers of all hosts but these together, without their minutes and hours.
func (n Numbers) Others(than []string) Series {
	return Series{Last5Minutes: window(n.recent.others(than)), LastHour: window(n.lastHour.others(than))}
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
