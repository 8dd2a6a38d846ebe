package sight

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/storage"
)

func TestPercentile(t *testing.T) {
	for name, test := range map[string]struct {
		took []time.Duration
		want string
	}{
		"none":  {nil, "- -"},
		"fast":  {[]time.Duration{0}, "<10ms <10ms"},
		"limit": {[]time.Duration{10 * time.Millisecond}, "<30ms <30ms"},
		"two":   {[]time.Duration{time.Millisecond, 2 * time.Second}, "<10ms <3s"},
		"slow":  {[]time.Duration{119 * time.Second, time.Hour}, "<2m >2m"},
		"one_in_100": {
			append(slices.Repeat([]time.Duration{20 * time.Millisecond}, 99), 20*time.Second), "<30ms <30ms",
		},
		"two_in_100": {
			slices.Concat(slices.Repeat([]time.Duration{20 * time.Millisecond}, 98),
				slices.Repeat([]time.Duration{20 * time.Second}, 2)), "<30ms <30s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var d Durations
			for _, took := range test.took {
				d.add(took)
			}
			if got := d.Percentile(50) + " " + d.Percentile(99); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// delivered returns an interval with calls that were delivered, by host, and so many of others.
func delivered(others int, hosts map[string]int) *Interval {
	i := &Interval{Others: Counts{Delivered: others}}
	for host, n := range hosts {
		i.counts(host).Delivered = n
	}
	for _, c := range i.Hosts {
		c.AtLeast = false
	}
	return i
}

// describe returns hosts with the calls that were delivered, as a person sees them.
func describe(i *Interval) string {
	var texts []string
	for host, c := range i.Hosts {
		sign := ""
		if c.AtLeast {
			sign = "≥"
		}
		texts = append(texts, fmt.Sprint(host, sign, c.Delivered))
	}
	slices.Sort(texts)
	return fmt.Sprint(strings.Join(texts, " "), " others ", i.Others.Delivered)
}

// TestAdd: a host has at least its number if it was perhaps among the others of a row.
func TestAdd(t *testing.T) {
	for name, test := range map[string]struct {
		rows []*Interval
		want string
	}{
		"none": {nil, " others 0"},
		"exact": {
			[]*Interval{delivered(0, map[string]int{"a": 1}), delivered(0, map[string]int{"a": 2, "b": 3})},
			"a3 b3 others 0",
		},
		"listed": {
			[]*Interval{delivered(5, map[string]int{"a": 1}), delivered(6, map[string]int{"a": 2})}, "a3 others 11",
		},
		"fell": {
			[]*Interval{delivered(0, map[string]int{"a": 1, "b": 1}), delivered(6, map[string]int{"b": 2})},
			"a≥1 b3 others 6",
		},
		"rose": {
			[]*Interval{delivered(6, map[string]int{"b": 2}), delivered(0, map[string]int{"a": 1, "b": 1})},
			"a≥1 b3 others 6",
		},
		"rose_and_fell": {
			[]*Interval{
				delivered(6, nil), delivered(0, map[string]int{"a": 1}), delivered(0, nil),
				delivered(0, map[string]int{"a": 1}),
			}, "a≥2 others 6",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var all Interval
			for _, row := range test.rows {
				all.add(row)
			}
			if got := describe(&all); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// TestManyHosts: whatever hosts a sender invents, the busiest ones are counted by name, and no message is lost.
func TestManyHosts(t *testing.T) {
	var i Interval
	count := func(host string, n int) {
		c := i.counts(host)
		for range n {
			c.Delivered++
			c.Durations.add(time.Second)
		}
	}
	for round := range 10 {
		for n := range 1000 {
			count(fmt.Sprintf("invented-%d-%d.example", round, n), 1)
		}
		count("busy.example", 5)
	}
	if len(i.Hosts) > maxHosts {
		t.Errorf("%d hosts are in memory", len(i.Hosts))
	}
	before := i.Counts("busy.example")
	i.keepBusiest(minuteHosts)
	all := i.except(nil)
	if all.Delivered != 10_050 || len(i.Hosts) != minuteHosts || all.Durations != (Durations{5: 10_050}) {
		t.Errorf("%d calls of %d hosts, %v", all.Delivered, len(i.Hosts), all.Durations)
	}
	if busy := i.Counts("busy.example"); busy.Delivered != 50 || !busy.AtLeast || busy.Delivered != before.Delivered {
		t.Errorf("the busy host has %+v", busy)
	}
	if other := i.Counts("invented-0-999.example"); other.Delivered > 0 || !other.AtLeast {
		t.Errorf("an invented host has %+v", other)
	}
}

// TestRowSize: a row fits a table whatever the hosts are, and is read as it was written.
func TestRowSize(t *testing.T) {
	var i Interval
	for n := range maxHosts {
		c := i.counts(fmt.Sprintf("%d%s", n, strings.Repeat("<", maxHostText-5)))
		c.Delivered = 1000
		for reason := range maxReasons + 5 {
			name := fmt.Sprint(reason, strings.Repeat("&", maxReasonText-5))
			addReason(&c.Failed, name, 1000)
			addReason(&c.Refused, name, 1)
		}
	}
	encoded := encode(&i)
	read, err := decode(encoded)
	if err != nil || len(encoded) > storage.MaxPropertyBytes || len(i.Hosts) == 0 {
		t.Fatalf("%d bytes of %d hosts, %v", len(encoded), len(i.Hosts), err)
	}
	if diff := cmp.Diff(&i, read); diff != "" {
		t.Errorf("(-written +read):\n%s", diff)
	}
}

// TestViewSize: a row fits a table whatever hosts others name, and however many.
func TestViewSize(t *testing.T) {
	failing, succeeded := map[string]Target{}, map[string]time.Time{}
	for n := range maxFailing {
		host := fmt.Sprint(n) + strings.Repeat("<", maxRowText)
		failing[host] = Target{Host: host, Cause: host, Answer: host, Latest: time.Now()}
		succeeded[host] = time.Now()
	}
	if n := len(encodeView(failing, succeeded)); n > storage.MaxPropertyBytes {
		t.Errorf("%d bytes", n)
	}
}

// FuzzRow: anyone who can write to the table may have written a row. What is read of it can be shown and added up, and
// written again unless the numbers are too large.
func FuzzRow(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"hosts":{"a.example":{"delivered":3,"failed":{"timeout":1},"durations":[1,2,0,0,0,0,0,0,0,1]}}}`,
		`{"hosts":{"a":null}}`, `{"hosts":{"a":{"delivered":-1}}}`, `{"hosts":{"":{}}}`, `{"hosts":{"\u202e":{}}}`,
		`{"others":{"delivered":1e300}}`, `{"others":{"delivered":1073741823,"atLeast":true}}`,
		`{"hosts":{"a":{"refused":{"\u0000":1}}}}`, `{"hosts":{"a":{"durations":[1,1,1,1,1,1,1,1,1,1,1,1,1,1]}}}`, `[`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		read, err := decode(text)
		if err != nil {
			return
		}
		var all Interval
		for range 3 {
			all.add(read)
		}
		fits := true
		for _, c := range append(slices.Collect(maps.Values(all.Hosts)), &all.Others) {
			if c.Messages() < 0 || len(c.Failed) > maxReasons+1 || len(c.Refused) > maxReasons+1 {
				t.Fatalf("%+v", c)
			}
			_ = c.Durations.Percentile(99)
			fits = fits && c.isValid()
		}
		if !fits {
			return
		}
		again, err := decode(encode(&all))
		if err != nil {
			t.Fatal(err)
		}
		if before, after := all.except(nil), again.except(nil); before.Messages() != after.Messages() {
			t.Errorf("%+v is read as %+v", before, after)
		}
	})
}
