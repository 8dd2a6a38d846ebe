package metrics

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// row has the numbers of an instance in a minute, or of an app in an hour. The key says of which: anyone who can write
// to the table may have written the row.
type row struct {
	storage.Key

	// Numbers is an [Interval] as JSON.
	Numbers []byte `row:"numbers"`
	// UpTo is when the latest of the rows was written that are added up in the row of an hour.
	UpTo time.Time `row:"upTo"`
}

// The forms of times in keys.
const (
	minuteForm = "20060102T1504"
	hourForm   = "20060102T15"
)

// minutesPartition returns the PartitionKey of the rows of an app in an hour.
func minutesPartition(app string, hour time.Time) string {
	return rows.KeyOf(app) + "," + hour.UTC().Format(hourForm)
}

// hoursPartition returns the PartitionKey of the rows of the hours of an app.
func hoursPartition(app string) string { return rows.KeyOf(app) + ",hours" }

func minuteKey(app, instance string, minute time.Time) storage.Key {
	return storage.Key{
		Partition: minutesPartition(app, minute), ID: minute.UTC().Format(minuteForm) + "," + rows.KeyOf(instance),
	}
}

func hourKey(app string, hour time.Time) storage.Key {
	return storage.Key{Partition: hoursPartition(app), ID: hour.UTC().Format(hourForm)}
}

// minute returns the minute of a row; zero if its key is invalid.
func (r row) minute() time.Time {
	id, _, _ := strings.Cut(r.ID, ",")
	minute, err := time.Parse(minuteForm, id)
	if err != nil || !strings.HasSuffix(r.Partition, ","+minute.Format(hourForm)) {
		return time.Time{}
	}
	return minute
}

// hour returns the hour of a row; zero if its key is invalid.
func (r row) hour() time.Time {
	hour, _ := time.Parse(hourForm, r.ID)
	return hour
}

// encode returns the numbers as a row has them: by name those of at most so many hosts, and of fewer if the row is too
// small for them.
func encode(numbers *Interval, hosts int) []byte {
	for ; ; hosts /= 2 {
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
	if err := json.Unmarshal(encoded, &numbers); err != nil || len(numbers.Hosts) > hourHosts {
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
	valid := isCount(c.Delivered)
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
