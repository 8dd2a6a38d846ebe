package sight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// minuteRow has the numbers of an instance in a minute. The key says of which: anyone who can write to the table may
// have written the row. The PartitionKey is the hour, so that readers need no list of apps, which can be invented.
type minuteRow struct {
	storage.Key

	// Numbers is an [Interval] as JSON.
	Numbers []byte `row:"numbers"`
}

// nowRow has what an instance knows of the targets of its app.
type nowRow struct {
	storage.Key

	App string `row:"app"`
	// View is a [view] as JSON.
	View []byte `row:"view"`
}

// nowPartition is the PartitionKey of these rows.
const nowPartition = "now"

// nowPrefix returns the beginning of the IDs of the rows of an app.
func nowPrefix(app string) string { return rows.KeyOf(app) + "," }

func nowKey(app, instance string) storage.Key {
	return storage.Key{Partition: nowPartition, ID: nowPrefix(app) + rows.KeyOf(instance)}
}

// maxFailing limits the targets that fail in a row. Those that have failed longest keep their place: a sender can
// invent hosts.
const maxFailing = 100

// encodeView returns what an instance knows as its row has it: at most [maxFailing] targets that fail and as many that
// succeeded, and fewer if the row is too small for them.
func encodeView(failing map[string]Target, succeeded map[string]time.Time) []byte {
	hosts := slices.Sorted(maps.Keys(succeeded))
	for most := maxFailing; ; most /= 2 {
		v := view{Failing: longest(failing, most), Succeeded: map[string]time.Time{}}
		for _, host := range hosts[:min(len(hosts), most)] {
			v.Succeeded[host] = succeeded[host]
		}
		encoded, _ := json.Marshal(v) // texts and numbers
		if len(encoded) <= storage.MaxPropertyBytes {
			return encoded
		}
	}
}

// view returns what is valid of what the row says. A time more than a minute after the row was written, by the clock of
// the table, is not believed. The result shares no memory with the row.
func (r nowRow) view() (v view) {
	var stated view
	if json.Unmarshal(r.View, &stated) != nil || r.App == "" || !strings.HasPrefix(r.ID, nowPrefix(r.App)) {
		return view{}
	}
	latest := r.WrittenAt.Add(time.Minute)
	for _, t := range stated.Failing[:min(len(stated.Failing), maxFailing)] {
		isKnown := t.Host != "" && !t.Latest.IsZero() && !t.Since.IsZero() && !t.Since.After(t.Latest)
		if !isKnown || t.Latest.After(latest) || r.WrittenAt.Sub(t.Latest) > maxAge {
			continue
		}
		t.App, t.SeenAt = r.App, r.WrittenAt
		for _, member := range []*string{&t.App, &t.Host, &t.Reason, &t.Cause, &t.Answer} {
			*member = strings.Clone(text.Clip(*member, maxRowText))
		}
		v.Failing = append(v.Failing, t)
	}
	for host, at := range stated.Succeeded {
		if len(v.Succeeded) < maxFailing && !at.After(latest) {
			if v.Succeeded == nil {
				v.Succeeded = map[string]time.Time{}
			}
			v.Succeeded[strings.Clone(host)] = at
		}
	}
	return v
}

// maxRowText is longer than the texts that a handler writes. Somebody else may have written the row.
const maxRowText = 300

// maxAge is how long rows *now* stay, and what fails there: longer than a message waits for its next attempt.
const maxAge = 8 * 24 * time.Hour

// maxRows limits the rows *now* of an account that a command reads, and maxInstances those of an app that an instance
// reads, which has little memory: each can have 64 KiB. Somebody else may have written them.
const (
	maxRows      = 1000
	maxInstances = 200
)

// readNow shows the rows *now* whose ID has a prefix; an empty one means those of all apps.
func readNow(ctx context.Context, table storage.Table, prefix string, see func(nowRow, view)) error {
	n, most := 0, maxRows
	if prefix != "" {
		most = maxInstances
	}
	q := storage.Query{Partition: nowPartition, IDPrefix: prefix}
	return rows.ListWhole(ctx, table, q, func(row nowRow) error {
		if n++; n > most {
			return rows.ErrStop
		}
		see(row, row.view())
		return nil
	})
}

// The forms of times in keys.
const (
	minuteForm = "20060102T1504"
	hourForm   = "20060102T15"
)

// minutesPartition returns the PartitionKey of the rows of an hour.
func minutesPartition(hour time.Time) string { return hour.UTC().Format(hourForm) }

func minuteKey(app, instance string, minute time.Time) storage.Key {
	return storage.Key{
		Partition: minutesPartition(minute),
		ID:        minute.UTC().Format(minuteForm) + "," + nowKey(app, instance).ID,
	}
}

// minute returns the minute of a row; zero if its key is invalid, or names one that begins more than a minute after the
// row was written, by the clock of the table.
func (r minuteRow) minute() time.Time {
	id, _, _ := strings.Cut(r.ID, ",")
	minute, err := time.Parse(minuteForm, id)
	if err != nil || r.Partition != minutesPartition(minute) || minute.After(r.WrittenAt.Add(time.Minute)) {
		return time.Time{}
	}
	return minute
}

// encode returns the numbers as a row has them: by name those of at most [minuteHosts], and of fewer if the row is too
// small for them.
func encode(numbers *Interval) []byte {
	for hosts := minuteHosts; ; hosts /= 2 {
		numbers.keepBusiest(hosts)
		encoded, _ := json.Marshal(numbers) // texts and numbers
		if len(encoded) <= storage.MaxPropertyBytes {
			return encoded
		}
	}
}

// The lengths of the texts of a row, in bytes, with which it is valid.
const (
	maxHostText   = 128
	maxReasonText = 32
)

var errInvalid = errors.New("the row has no valid numbers")

// decode returns the numbers of a row. It shares no memory with the text.
func decode(encoded []byte) (*Interval, error) {
	var numbers Interval
	if err := json.Unmarshal(encoded, &numbers); err != nil || len(numbers.Hosts) > minuteHosts {
		return nil, errInvalid
	}
	valid := numbers.Others.isValid()
	for host, c := range numbers.Hosts {
		valid = valid && host != "" && isText(host, maxHostText) && c != nil && c.isValid()
	}
	if !valid {
		return nil, errInvalid
	}
	numbers.Others.AtLeast = false
	return &numbers, nil
}

// isText reports whether a text can be shown, and has at most so many bytes.
func isText(s string, most int) bool { return len(s) <= most && text.Printable(s) == s }

func (c *Counts) isValid() bool {
	valid := isCount(c.Delivered) && isCount(c.New)
	for _, byReason := range []map[string]int{c.Failed, c.Refused} {
		valid = valid && len(byReason) <= maxReasons+1
		for reason, n := range byReason {
			valid = valid && isText(reason, maxReasonText) && isCount(n)
		}
	}
	for _, n := range c.Durations {
		valid = valid && isCount(n)
	}
	return valid
}

func isCount(n int) bool { return n >= 0 && n <= maxCount }

// minuteRetention is how long rows *minute* stay.
const minuteRetention = 24 * time.Hour

// Sweep removes the rows of all apps that nobody reads any more.
func (s *Sight) Sweep(ctx context.Context) error {
	if s == nil {
		return nil
	}
	return s.writer.Use(func(table storage.Table) error { return sweep(ctx, table) })
}

func sweep(ctx context.Context, table storage.Table) error {
	old := storage.Query{WrittenBefore: time.Now().Add(-minuteRetention), Select: []string{"app"}}
	_, err := rows.Sweep(ctx, table, old, func(row storage.Entity) bool {
		return row.Partition == nowPartition && time.Since(row.WrittenAt) <= maxAge
	})
	if err != nil {
		err = fmt.Errorf("remove old rows of what the app knows of targets: %w", err)
	}
	return err
}
