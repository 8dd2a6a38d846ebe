package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// newPauseSession returns a session of an app that runs, with n messages that wait for t.example, paused, and one that
// has failed.
func newPauseSession(t *testing.T, n int) *testSession {
	t.Helper()
	d := newScheduledSession(t, n+1, 0)
	d.group = "targets"
	d.account.AppTable = &memory.Table{}
	d.operations.Operator = journal.Operator{User: "anna", Machine: "ops-7"}
	isFirst := true
	err := rows.ListWhole(t.Context(), d.account.Table, storage.Query{}, func(row record.Row) error {
		if !isFirst {
			row.Reason, row.Deadline = "paused", time.Now().Add(time.Hour)
		}
		isFirst = false
		return rows.Put(t.Context(), d.account.Table, row)
	})
	if err == nil {
		app := heartbeat.App{Name: "local", Version: "test"}
		err = heartbeat.Beat(t.Context(), d.account.Table, app, functionapp.MonitorTimer)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func pauseAt(host string, lasts time.Duration) setting.Setting {
	p := setting.Setting{
		Host: host, Member: setting.Pause, Since: time.Now().UTC(), Reason: "INC-4711",
	}
	if lasts > 0 {
		p.Until = p.Since.Add(lasts)
	}
	return p
}

// TestPauseSaysWhatExpires: the command counts the scheduled messages that expire while the target is paused, and says
// what it cannot know.
func TestPauseSaysWhatExpires(t *testing.T) {
	const until, inForce = "scheduled calls for it that expire until 2000-01-0", "set pause of t.example in test, "
	for name, test := range map[string]struct {
		host    string
		lasts   time.Duration
		printed string
		unknown string // in the error of a pause that is partly done
		change  func(*testing.T, *testSession)
	}{
		"expire":     {"t.example", 2 * time.Hour, until + "1T02:00:00Z: 3, the first at 2000-01-01T01:", "", nil},
		"in_time":    {"t.example:443", 30 * time.Minute, until + "1T00:30:00Z: 0\n", "", nil},
		"other_port": {"t.example:8443", 2 * time.Hour, until + "1T02:00:00Z: 0\n", "", nil},
		"no_end":     {"t.example", 0, until + "2T00:00:00Z: 3, the first", "", nil},
		"no_record": {
			"t.example", 0, inForce + "since 2000-01-01T00:00:00Z by (anna@ops-7) until it is resumed: INC-4711",
			"how many scheduled calls expire is unknown: list scheduled calls: no answer",
			func(_ *testing.T, d *testSession) { d.account.Table.(*memory.Table).Fail(errors.New("no answer")) },
		},
		"invalid_rows": {
			"t.example", 0, "an app that runs notices it within 20s", "",
			func(t *testing.T, d *testSession) { putSettings(t, d, setting.Setting{}) },
		},
		"too_many": {
			"t.example", 0, "", "it has more settings than an app reads",
			func(t *testing.T, d *testSession) { putSettings(t, d, pauseAt("", 0)) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newPauseSession(t, 3)
				if test.change != nil {
					test.change(t, d)
				}
				err := withExitCode(t.Context(), d.pauseTarget(t.Context(), pauseAt(test.host, test.lasts)))
				isPartly := codeOf(err) == exitPartly && strings.Contains(err.Error(), test.unknown)
				if isPartly != (test.unknown != "") || !isPartly && err != nil {
					t.Errorf("exit code %d: %v", codeOf(err), err)
				}
				if !strings.Contains(d.err.String(), test.printed) {
					t.Errorf("printed %s", d.err.String())
				}
			})
		})
	}
}

// putSettings writes 1,500 rows like those of settings, before that of t.example.
func putSettings(t *testing.T, d *testSession, row setting.Setting) {
	t.Helper()
	for n := range 1_500 {
		row.Host = fmt.Sprintf("a%04d.example", n)
		row.Key = storage.Key{Partition: setting.Partition, ID: row.Host + "_pause"}
		if err := rows.Put(t.Context(), d.account.AppTable, row); err != nil {
			t.Fatal(err)
		}
	}
}

// TestResume: the pause ends, and when the app has noticed that, the messages that it has rescheduled are due.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newPauseSession(t, 3)
		if err := d.pauseTarget(t.Context(), pauseAt("t.example:443", 0)); err != nil {
			t.Fatal(err)
		}
		d.err.Reset()
		began := time.Now()
		if err := d.resumeTarget(t.Context(), "t.example:443", journal.Pace{}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < setting.Notice {
			t.Errorf("retried after %v", took)
		}
		due := 0
		for _, m := range d.store.All("async-caller") {
			if !m.NextVisibleAt.After(time.Now()) {
				due++
			}
		}
		if due != 3 || !strings.Contains(d.err.String(), "retried 3 of 3 in test") ||
			strings.Contains(d.err.String(), "warning") {
			t.Errorf("%d messages are due\n%s", due, d.err.String())
		}
		if runs, err := d.operations.Journals.List(); err != nil || len(runs) != 1 {
			t.Errorf("runs %q, %v", runs, err)
		}
		err := d.resumeTarget(t.Context(), "t.example:443", journal.Pace{})
		if codeOf(err) != exitNothing || !strings.Contains(err.Error(),
			"is not paused in test; messages that still wait: "+
				"`async-caller calls retry --state scheduled --host t.example:443 --reason paused`") {
			t.Errorf("resumed again: exit code %d, %v", codeOf(err), err)
		}
	})
}

// TestResumeSelects: a resume expedites the messages that its pause has stopped, and none that another pause still
// stops. A canary is one of these messages.
func TestResumeSelects(t *testing.T) {
	urls := []string{
		"https://t.example/0", "http://T.Example./1", "https://t.example:8443/2", "http://t.example:0443/3",
		"https://other.example/4", "https://[2001:db8::1]:8443/5", "https://[2001:db8::1]/6",
	}
	const onDefaultPorts = "--host t.example:443 --reason paused"
	for name, test := range map[string]struct {
		paused []string
		resume string
		due    string
		hint   string
	}{
		"host":                 {[]string{"t.example"}, "t.example", "0123", "--host t.example --reason paused"},
		"port":                 {[]string{"t.example:8443"}, "t.example:8443", "2", "--host t.example:8443 --reason"},
		"https":                {[]string{"t.example:443"}, "t.example:443", "03", onDefaultPorts},
		"http":                 {[]string{"t.example:80"}, "t.example:80", "1", "--host t.example:80 --reason paused"},
		"beside_another_port":  {[]string{"t.example:443", "t.example:8443"}, "t.example:443", "03", onDefaultPorts},
		"beside_http":          {[]string{"t.example:443", "t.example:80"}, "t.example:443", "03", onDefaultPorts},
		"host_but_not_a_port":  {[]string{"t.example", "t.example:8443"}, "t.example", "013", ""},
		"host_but_not_https":   {[]string{"t.example", "t.example:443"}, "t.example", "12", ""},
		"port_but_not_host":    {[]string{"t.example", "t.example:443"}, "t.example:443", "", onDefaultPorts},
		"address":              {[]string{"[2001:db8::1]"}, "[2001:db8::1]", "56", `--host "[2001:db8::1]" --reason`},
		"address_and_port":     {[]string{"[2001:db8::1]:8443"}, "[2001:db8::1]:8443", "5", ""},
		"address_but_not_port": {[]string{"[2001:db8::1]", "[2001:db8::1]:8443"}, "[2001:db8::1]", "6", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newPauseSession(t, 0)
				for n, target := range urls {
					putPaused(t, d, strconv.Itoa(n), target)
				}
				for _, host := range test.paused {
					if err := d.pauseTarget(t.Context(), pauseAt(host, 0)); err != nil {
						t.Fatal(err)
					}
				}
				if err := d.resumeTarget(t.Context(), test.resume, journal.Pace{}); err != nil {
					t.Fatalf("%v\n%s", err, d.err.String())
				}
				var due []string
				for _, m := range d.store.All("async-caller") {
					if e, err := envelope.Parse(mustDecode(t, m.Text)); err == nil &&
						!m.NextVisibleAt.After(time.Now()) {
						due = append(due, e.RequestID)
					}
				}
				slices.Sort(due)
				if got := strings.Join(due, ""); got != test.due {
					t.Errorf("expedited %q, want %q\n%s", got, test.due, d.err.String())
				}
				err := d.resumeTarget(t.Context(), test.resume, journal.Pace{})
				if codeOf(err) != exitNothing || !strings.Contains(err.Error(), test.hint) {
					t.Errorf("resumed again: %v", err)
				}
			})
		})
	}
}

// putPaused puts a scheduled message for a target that is paused, with its row.
func putPaused(t *testing.T, d *testSession, id, target string) {
	t.Helper()
	content := fmt.Appendf(nil, `{"asyncCaller":1,"requestId":"%s","call":{"url":"%s"}}`, id, target)
	item := storage.Item{Text: storage.Base64.Encode(content), Delay: time.Hour}
	m, err := d.store.Put(t.Context(), "async-caller", item)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	row := record.Row{
		Key:        storage.Key{Partition: "async-caller", ID: m.ID},
		PopReceipt: m.PopReceipt, RequestID: id, TargetHost: u.Host, Reason: "paused", Content: content,
		CreatedAt: time.Now(), NextAttemptAt: time.Now().Add(time.Hour), Deadline: time.Now().Add(2 * time.Hour),
	}
	if err := rows.Put(t.Context(), d.account.Table, row); err != nil {
		t.Fatal(err)
	}
}

func mustDecode(t *testing.T, text string) []byte {
	t.Helper()
	content, err := storage.Base64.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// TestListSettings: the list and the status have the settings that are in force. The list also has the limits and
// credentials of targets.json, and names invalid rows. A JSON line of the list has the same members, whatever it is.
func TestListSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newPauseSession(t, 0)
		list := func() (string, int) {
			t.Helper()
			d.stdout.Reset()
			_, err := d.listSettings(t.Context(), "")
			return d.stdout.String(), codeOf(err)
		}
		if got, code := list(); code != exitDone || got != "" {
			t.Errorf("exit code %d: %s", code, got)
		}
		d.account.Rules.Decision.Profiles = mustProfiles(t, `{
			"a.example":{"timeout":"3m","auth":{"managedIdentity":"api://a"}},
			"*.b.example":{"rate":"10/s","concurrency":3,"auth":{"oauth2":{
				"tokenUrl":"https://login.example/t","clientId":"client-of-a-very-long-name","clientSecret":"$S"}}}}`)
		for host, lasts := range map[string]time.Duration{
			"a.example": 0, "b.example:8443": 3 * time.Hour, "c.example": time.Minute,
			strings.Repeat("very-long.", 8) + "example": 0,
		} {
			if err := d.operations.Set(t.Context(), "pause", pauseAt(host, lasts)); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.operations.Set(t.Context(), "set", limitAt("a.example", setting.Rate, "100/m", 0)); err != nil {
			t.Fatal(err)
		}
		hostile := storage.Entity{
			Key:    storage.Key{Partition: setting.Partition, ID: "=2A_pause"},
			Values: map[string]any{"targetHost": "*", "member": "pause", "since": time.Now(), "reason": "all\x1b[2J"},
		}
		if err := d.account.AppTable.Put(t.Context(), []storage.Entity{hostile}); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Hour)
		got, code := list()
		const want = `
TARGET                        SET                                 SOURCE  SINCE   ENDS  BY, REASON
a.example                     pause                               live       1h  never  (anna@o…4711
a.example                     rate 100/m                          live       1h  never  (anna@o…4711
b.example:8443                pause                               live       1h     2h  (anna@o…4711
very-long.very-lon…g.example  pause                               live       1h  never  (anna@o…4711
*.b.example                   auth OAuth 2 client cl…gin.example  file        -      -
*.b.example                   concurrency 3                       file        -      -
*.b.example                   rate 10/s                           file        -      -
a.example                     auth managed identity for api://a   file        -      -
ignored        =2A_pause pause: its key is not that of a host and a member
`
		if "\n"+got != want || code != exitDone {
			t.Errorf("exit code %d, %s\nwant %s", code, got, want)
		}
		status := d.mustStatus(t)
		for _, want := range []string{
			"paused a.example since 2000-01-01T00:00:00Z by (anna@ops-7) until it is resumed: INC-4711",
			"paused b.example:8443 since 2000-01-01T00:00:00Z by (anna@ops-7) until 2000-01-01T03:00:00Z: INC-4711",
			"credential a.example: managed identity for api://a",
		} {
			if !strings.Contains(status, want) {
				t.Errorf("status without %q:\n%s", want, status)
			}
		}
		if strings.Contains(status, "=2A") || strings.Contains(status, "c.example") {
			t.Errorf("status: %s", status)
		}
		d.json = true
		list()
		for line := range strings.Lines(d.stdout.String()) {
			var all map[string]any
			if err := json.Unmarshal([]byte(line), &all); err != nil {
				t.Fatal(err)
			}
			for _, member := range []string{"host", "member", "value", "since", "until", "by", "reason", "source"} {
				if _, has := all[member]; !has {
					t.Errorf("no %s in %s", member, line)
				}
			}
			isHostile := all["host"] == "=2A_pause"
			if isHostile != (all["problem"] != nil) {
				t.Error(line)
			}
		}
		if n := strings.Count(d.stdout.String(), "\n"); n != 9 {
			t.Errorf("%d lines", n)
		}
		d.json = false
		profiles, err := targets.Parse([]byte(`{"t.example":{"rate":"1/s"}}`), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		d.account.Rules.Decision.Profiles = profiles
		for err, want := range map[error]string{
			storage.ErrDenied:        "limits this identity has no permission to use tables: if that of the app",
			context.DeadlineExceeded: "limits while the table does not answer an instance, its calls to targets with",
		} {
			d.account.AppTable.(*memory.Table).Fail(err)
			status = d.mustStatus(t)
			if !strings.Contains(status, "set unknown: ") || !strings.Contains(status, want) {
				t.Errorf("status after %v: %s", err, status)
			}
		}
	})
}

// TestUnansweredChange: a change of settings is never reported as done, or as not done, if the table has not said so.
func TestUnansweredChange(t *testing.T) {
	for name, change := range map[string]func(context.Context, *testSession) error{
		"pause": func(ctx context.Context, d *testSession) error { return d.pauseTarget(ctx, pauseAt("t.example", 0)) },
		"set": func(ctx context.Context, d *testSession) error {
			return d.setTarget(ctx, "set", clearCommand, limitAt("t.example", setting.Rate, "5/s", 0))
		},
		"clear": func(ctx context.Context, d *testSession) error { return d.clearLimits(ctx, "t.example") },
		"resume": func(ctx context.Context, d *testSession) error {
			return d.resumeTarget(ctx, "t.example", journal.Pace{})
		},
	} {
		for err, code := range map[error]int{errors.New("no answer"): exitPartly, storage.ErrDenied: exitFailed} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := newPauseSession(t, 0)
					table := &failingChanges{err: err}
					if err := setting.Write(t.Context(), &table.Table, pauseAt("t.example", 0),
						limitAt("t.example", setting.Rate, "1/s", 0)); err != nil {
						t.Fatal(err)
					}
					d.account.AppTable = table
					err := withExitCode(t.Context(), change(t.Context(), d))
					isUnknown := strings.Contains(fmt.Sprint(err), "whether it is done is unknown: no answer\n")
					if err == nil || codeOf(err) != code || isUnknown != (code == exitPartly) ||
						strings.Contains(d.err.String(), "t.example") {
						t.Errorf("exit code %d, %v; printed %s", codeOf(err), err, d.err.String())
					}
				})
			})
		}
	}
}

// failingChanges is a table that can be read. Its answer to a change is err.
type failingChanges struct {
	memory.Table
	err error
}

func (f *failingChanges) Put(context.Context, []storage.Entity) error { return f.err }
func (f *failingChanges) Delete(context.Context, []storage.Key) error { return f.err }
