package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// numbersSession is a session whose account has an app with the numbers of minutes.
type numbersSession struct {
	*testSession
	table *memory.Table
	rows  int
}

func newNumbersSession(t *testing.T, scheduled ...record.Row) *numbersSession {
	t.Helper()
	n := &numbersSession{testSession: newRowsSession(t, scheduled...), table: &memory.Table{}}
	n.account.Sight = sight.NewReader(n.table)
	app := heartbeat.App{Name: "app", Version: "test"}
	if err := heartbeat.Beat(t.Context(), n.account.Table, app, functionapp.MonitorTimer); err != nil {
		t.Fatal(err)
	}
	return n
}

// put writes the row of a minute, so many minutes ago.
func (n *numbersSession) put(t *testing.T, ago int, numbers string) {
	t.Helper()
	n.rows++
	at := time.Now().UTC().Add(-time.Duration(ago) * time.Minute)
	key := storage.Key{
		Partition: at.Format("20060102T15"), ID: fmt.Sprintf("%s,app,%d", at.Format("20060102T1504"), n.rows),
	}
	entity := storage.Entity{Key: key, Values: map[string]any{"numbers": []byte(numbers)}}
	if err := n.table.Put(t.Context(), []storage.Entity{entity}); err != nil {
		t.Fatal(err)
	}
}

// numbersPart returns the lines of the latest status from those of the calls per minute on.
func (n *numbersSession) numbersPart(t *testing.T) string {
	t.Helper()
	n.mustStatus(t)
	_, lines, found := strings.Cut(n.stdout.String(), "\nTARGET (PER MINUTE)")
	if !found {
		return ""
	}
	lines, _, _ = strings.Cut(lines, "\n\n")
	return "TARGET (PER MINUTE)" + strings.TrimRight(lines, "\n") + "\n"
}

// TestStatusNumbers: the calls per minute of the targets that wait and of the busiest ones, whatever heartbeats
// somebody has invented.
func TestStatusNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		<-time.After(3*time.Hour + 30*time.Second)
		d := newNumbersSession(t, rowAt("aaaaaaaa-1", "waits.example", 30*time.Minute))
		for n := range 60 {
			app := heartbeat.App{Name: fmt.Sprint("0-invented-", n)}
			if err := heartbeat.Beat(t.Context(), d.account.Table, app, functionapp.MonitorTimer); err != nil {
				t.Fatal(err)
			}
		}
		for ago := 1; ago <= 60; ago++ {
			d.put(t, ago, `{"hosts":{"busy.example":{"delivered":1234,"durations":[0,1200,34]},
				"waits.example":{"delivered":1,"failed":{"timeout":2,"dns":1},"durations":[0,0,0,0,0,0,0,0,1,2]}}}`)
		}
		d.put(t, 20, `{"hosts":{"rare.example":{"delivered":1,"durations":[1]}},"others":{"delivered":300}}`)
		d.put(t, 61, `{"hosts":{"past.example":{"delivered":1000}}}`)
		d.put(t, 0, `{"hosts":{"busy.example":{"delivered":9999}}}`)
		want := `
TARGET (PER MINUTE)  DELIVERED 5M  DELIVERED 1H  FAILED 5M  FAILED 1H    P50     P99
waits.example                 1.0          ≥1.0        3.0       ≥3.0    >2m     >2m
busy.example                1,234        ≥1,234          0         ≥0  <30ms  <100ms
rare.example                    0          <0.1          0          0      -       -
(other targets)                 0           5.0          0          0      -       -
`
		if got := "\n" + d.numbersPart(t); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
		if strings.Contains(d.stdout.String(), "busy.example           -") {
			t.Errorf("a target without trouble is among those with: %s", d.stdout.String())
		}
		d.json = true
		var status account.Status
		d.mustStatus(t)
		if err := json.Unmarshal(d.stdout.Bytes(), &status); err != nil || len(status.Targets) != 3 ||
			len(status.Targets[0].Numbers.Minutes) != 60 || status.OtherNumbers.LastHour.Delivered != 300 ||
			status.Targets[0].Numbers.Last5Minutes.Failed["timeout"] != 10 {
			t.Errorf("%v: %s", err, d.stdout.String())
		}
	})
}

// TestStatusOfManyTargets: the ten busiest targets are shown, and the others together.
func TestStatusOfManyTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		<-time.After(3*time.Hour + 30*time.Second)
		d := newNumbersSession(t)
		for n := range 30 {
			d.put(t, 30, fmt.Sprintf(`{"hosts":{"h%02d.example":{"delivered":%d}}}`, n, 600+n))
		}
		got := d.numbersPart(t)
		if lines := strings.Split(got, "\n"); len(lines) != 13 || !strings.HasPrefix(lines[1], "h29.example") ||
			strings.Join(strings.Fields(lines[11]), " ") != "(other targets) 0 406 0 0 - -" {
			t.Errorf("got %s", got)
		}
	})
}

// TestStatusKeepsOrder: a watch reads what is new, and shows the targets in the same order.
func TestStatusKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		<-time.After(3 * time.Hour)
		d := newNumbersSession(t)
		var last lastShown
		var got []string
		for _, row := range []string{
			`{"hosts":{"a.example":{"delivered":2},"b.example":{"delivered":1}}}`,
			`{"hosts":{"b.example":{"delivered":9},"c.example":{"delivered":20}}}`,
		} {
			d.put(t, 1, row)
			<-time.After(20 * time.Second)
			d.stdout.Reset()
			if err := d.showStatus(t.Context(), false, false, &last); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(d.stdout.String()) {
				if host, rest, _ := strings.Cut(line, " "); strings.HasSuffix(host, ".example") {
					got = append(got, host+" "+strings.Fields(rest)[1])
				}
			}
		}
		want := "[a.example 2.0 b.example 1.0 a.example 2.0 b.example 10 c.example 20]"
		if fmt.Sprint(got) != want {
			t.Errorf("got %v, want %s", got, want)
		}
	})
}

// TestStatusWithoutNumbers: what cannot be read is unknown, and never none.
func TestStatusWithoutNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newNumbersSession(t)
		d.table.Fail(storage.ErrDenied)
		if err := d.showStatus(t.Context(), false, false, nil); err == nil {
			t.Error("no error")
		}
		if got := d.mustStatus(t); !strings.Contains(got, "note calls per minute are unknown: ") ||
			!strings.Contains(got, storage.TableReaderRole) {
			t.Errorf("status %s", got)
		}
	})
}

// TestEstimates: the commands say when the calls that wait will be done, as it is and after a change of the settings.
func TestEstimates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		<-time.After(3*time.Hour + 30*time.Second)
		var waiting []record.Row
		for n := range 20 {
			id, wait := fmt.Sprintf("aaaaaaaa-%d", n), time.Duration(n+1)*time.Minute
			waiting = append(waiting, rowAt(id, "waits.example", wait))
		}
		d := newNumbersSession(t, append(waiting, rowAt("bbbbbbbb-1", "few.example", time.Hour))...)
		d.account.AppTable = &memory.Table{}
		for ago := 1; ago <= 10; ago++ {
			d.put(t, ago, `{"hosts":{"waits.example":{"new":12,"delivered":12},"few.example":{"delivered":1}}}`)
		}
		d.mustStatus(t)
		_, err := d.listSettings(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		limit := setting.Setting{Host: "waits.example", Member: setting.Rate, Value: "10/m", Since: time.Now()}
		pause := setting.Setting{Host: "waits.example", Member: setting.Pause, Since: time.Now()}
		for _, change := range []account.Change{
			{Host: "waits.example", Made: []setting.Setting{limit}},
			{Host: "waits.example", Made: []setting.Setting{pause}},
			{Host: "few.example", Ended: []string{setting.Pause}},
		} {
			if err := d.estimate(t.Context(), change); err != nil {
				t.Error(err)
			}
		}
		d.account.AppTable.(*memory.Table).Fail(errors.New("no answer"))
		if err := d.estimate(t.Context(), account.Change{Host: "waits.example"}); err == nil {
			t.Error("settings that cannot be read are no error")
		}
		d.account.AppTable.(*memory.Table).Fail(nil)
		d.account.Table.(*memory.Table).Fail(errors.New("no answer"))
		if _, err := d.listSettings(t.Context(), ""); codeOf(err) != exitPartly {
			t.Errorf("a record that cannot be read: %v", err)
		}
		for _, want := range []string{
			"done waits.example: 90 % in 18m, all in about 20m",
			"waits.example waiting 20 record - - 90 % in 18m, all in about 20m",
			"then does not shrink: 12/min come, 10/min may leave",
			"then stands still: paused until it is resumed",
			"now unknown: its settings, its failures or its calls per minute could not be read",
		} {
			if !strings.Contains(strings.Join(strings.Fields(d.stdout.String()), " "), want) {
				t.Errorf("no %q in:\n%s", want, d.stdout.String())
			}
		}
	})
}
