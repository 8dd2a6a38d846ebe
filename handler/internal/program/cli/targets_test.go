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
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/operation"
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
	isFirst := true
	err := rows.ListWhole(t.Context(), d.account.Table, storage.Query{}, func(row record.Scheduled) error {
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
		Host: host, Member: setting.Pause, Since: time.Now().UTC(), By: "anna@ops-7", Reason: "INC-4711",
	}
	if lasts > 0 {
		p.Until = p.Since.Add(lasts)
	}
	return p
}

// TestPauseSaysWhatExpires: the command counts the scheduled messages that expire while the target is paused, and says
// what it cannot know.
func TestPauseSaysWhatExpires(t *testing.T) {
	for name, test := range map[string]struct {
		host    string
		lasts   time.Duration
		change  func(*testing.T, *testSession)
		printed string
		code    int
		unknown string
	}{
		"expire": {
			host: "t.example", lasts: 2 * time.Hour,
			printed: "scheduled messages for it: 4; 3 of them expire before the pause ends, " +
				"the first at 2000-01-01T01:00:00Z\n",
		},
		"in_time": {
			host: "t.example:443", lasts: 30 * time.Minute,
			printed: "scheduled messages for it: 4; 0 of them expire before the pause ends\n",
		},
		"other_port": {host: "t.example:8443", lasts: 2 * time.Hour, printed: "scheduled messages for it: 0; 0 of them"},
		"no_end": {
			host: "t.example", printed: "until it is resumed\nend: `async-caller targets resume t.example`\n" +
				"an app that runs notices it within 20s",
		},
		"no_end_day": {host: "t.example", printed: "4; 3 of them expire within 24h"},
		"no_record": {
			host: "t.example", printed: "paused t.example in test until", code: exitPartly,
			unknown: "it is about is unknown: list scheduled messages: no answer",
			change: func(_ *testing.T, d *testSession) {
				d.account.Table.(*memory.Table).Fail(errors.New("no answer"))
			},
		},
		"invalid_rows": {
			host: "t.example", printed: "an app that runs notices it within 20s",
			change: func(t *testing.T, d *testSession) { putSettings(t, d, setting.Setting{}) },
		},
		"too_many": {
			host: "t.example", code: exitFailed, unknown: "the table has more settings than an app reads",
			change: func(t *testing.T, d *testSession) { putSettings(t, d, pauseAt("", 0)) },
		},
		"denied": {
			host: "t.example", code: exitFailed, unknown: "pause t.example: ",
			change: func(_ *testing.T, d *testSession) { d.account.AppTable.(*memory.Table).Fail(storage.ErrDenied) },
		},
		"no_table": {
			host: "t.example", code: exitUsage, unknown: "add TableEndpoint",
			change: func(_ *testing.T, d *testSession) { d.account.AppTable = nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newPauseSession(t, 3)
				if test.change != nil {
					test.change(t, d)
				}
				err := withExitCode(t.Context(), d.pauseTarget(t.Context(), pauseAt(test.host, test.lasts)))
				if err == nil && test.code != exitDone || err != nil && (codeOf(err) != test.code ||
					!strings.Contains(err.Error(), test.unknown)) {
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
			t.Errorf("expedited after %v", took)
		}
		due := 0
		for _, m := range d.store.All("async-caller") {
			if !m.NextVisibleAt.After(time.Now()) {
				due++
			}
		}
		if due != 3 || !strings.Contains(d.err.String(), "expedited 3 of 3 in test") ||
			strings.Contains(d.err.String(), "warning") {
			t.Errorf("%d messages are due\n%s", due, d.err.String())
		}
		if runs, err := d.operations.Journals.List(); err != nil || len(runs) != 1 {
			t.Errorf("runs %q, %v", runs, err)
		}
		err := d.resumeTarget(t.Context(), "t.example:443", journal.Pace{})
		if codeOf(err) != exitNothing || !strings.Contains(err.Error(),
			"is not paused in test; messages that still wait: "+
				"`async-caller scheduled expedite --host t.example:443 --reason paused`") {
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
		"port":                 {[]string{"t.example:8443"}, "t.example:8443", "2", "--host t.example:8443 --reason paused"},
		"https":                {[]string{"t.example:443"}, "t.example:443", "03", onDefaultPorts},
		"http":                 {[]string{"t.example:80"}, "t.example:80", "1", "--host t.example:80 --reason paused"},
		"beside_another_port":  {[]string{"t.example:443", "t.example:8443"}, "t.example:443", "03", onDefaultPorts},
		"beside_http":          {[]string{"t.example:443", "t.example:80"}, "t.example:443", "03", onDefaultPorts},
		"host_but_not_a_port":  {[]string{"t.example", "t.example:8443"}, "t.example", "013", ""},
		"host_but_not_https":   {[]string{"t.example", "t.example:443"}, "t.example", "12", ""},
		"port_but_not_host":    {[]string{"t.example", "t.example:443"}, "t.example:443", "", onDefaultPorts},
		"address":              {[]string{"[2001:db8::1]"}, "[2001:db8::1]", "56", `--host "[2001:db8::1]" --reason paused`},
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
	row := record.Scheduled{
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

// TestManyOperatorsPause: whatever operators do at the same time, the table has what the last of them was told.
func TestManyOperatorsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newPauseSession(t, 0)
		var operators sync.WaitGroup
		for n := range 4 {
			operators.Go(func() {
				p := pauseAt("t.example", 0)
				p.By = fmt.Sprintf("operator-%d", n)
				if _, err := d.operations.Set(t.Context(), "pause", p); err != nil {
					t.Errorf("pause: %v", err)
				}
			})
		}
		operators.Wait()
		ended := make(chan error, 4)
		for range cap(ended) {
			go func() {
				_, err := d.operations.Unset(t.Context(), "resume", "t.example", setting.Pause)
				ended <- err
			}()
		}
		for range cap(ended) {
			if err := <-ended; err != nil && !errors.Is(err, operation.ErrNotSet) {
				t.Errorf("resume: %v", err)
			}
		}
		if pauses, err := d.account.Settings(t.Context()); err != nil || len(pauses) != 0 {
			t.Errorf("%+v, %v", pauses, err)
		}
	})
}

// TestListSettings: the list and the status have the settings that are in force, and the list names invalid rows.
func TestListSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newPauseSession(t, 0)
		list := func() (string, int) {
			t.Helper()
			d.stdout.Reset()
			err := d.listSettings(t.Context())
			return strings.Join(strings.Fields(d.stdout.String()), " "), codeOf(err)
		}
		if got, code := list(); code != exitDone || got != "" ||
			!strings.Contains(d.err.String(), "no target is paused, and no limit is set, in test") {
			t.Errorf("exit code %d: %s\n%s", code, got, d.err.String())
		}
		pauses := map[string]time.Duration{"a.example": 0, "b.example:8443": 3 * time.Hour, "c.example": time.Minute}
		for host, lasts := range pauses {
			if _, err := d.operations.Set(t.Context(), "pause", pauseAt(host, lasts)); err != nil {
				t.Fatal(err)
			}
		}
		hostile := storage.Entity{
			Key:    storage.Key{Partition: setting.Partition, ID: "=2A_pause"},
			Values: map[string]any{"targetHost": "*", "member": "pause", "since": time.Now(), "reason": "all\x1b[2J"},
		}
		if err := d.account.AppTable.Put(t.Context(), []storage.Entity{hostile}); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Hour)
		if got, code := list(); code != exitPartly || !strings.Contains(got, "a.example") {
			t.Errorf("while no app runs: exit code %d, %q", code, got)
		}
		app := heartbeat.App{Name: "local", Version: "test"}
		err := heartbeat.Beat(t.Context(), d.account.Table, app, functionapp.MonitorTimer)
		if err != nil {
			t.Fatal(err)
		}
		got, code := list()
		want := "TARGET SET FILE SINCE ENDS BY, REASON " +
			"=2A_pause pause - - - ignored: the key is not that of a host and a member " +
			"a.example pause - 1h never anna@ops-7: INC-4711 " +
			"b.example:8443 pause - 1h 2h anna@ops-7: INC-4711"
		if got != want || code != exitDone {
			t.Errorf("exit code %d, %q\nwant %q", code, got, want)
		}
		status := d.mustStatus(t)
		for _, want := range []string{
			"paused a.example since 2000-01-01T00:00:00Z by anna@ops-7 until it is resumed: INC-4711",
			"paused b.example:8443 since 2000-01-01T00:00:00Z by anna@ops-7 until 2000-01-01T03:00:00Z: INC-4711",
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
		line, _, _ := strings.Cut(d.stdout.String(), "\n")
		var first setting.Setting
		if err := json.Unmarshal([]byte(line), &first); err != nil || first.Problem == "" {
			t.Errorf("%s, %v", line, err)
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

// TestCredentialsAreShown: targets list and status name the credential of each pattern.
func TestCredentialsAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newPauseSession(t, 0)
		profiles, err := targets.Parse([]byte(`{"a.example":{"auth":{"managedIdentity":"api://a"}},`+
			`"*.b.example":{"auth":{"oauth2":{"tokenUrl":"https://l.example/t","clientId":"c","clientSecret":"$S"}}}}`),
			nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		d.account.Rules.Decision.Profiles = profiles
		if err := d.listSettings(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := d.showStatus(t.Context(), false, false, map[string]int{}); err != nil {
			t.Error(err)
		}
		for _, want := range []string{
			"*.b.example  OAuth 2 client c at l.example", "a.example    managed identity for api://a",
			"credential     a.example: managed identity for api://a",
		} {
			if printed := d.stdout.String(); !strings.Contains(printed, want) {
				t.Errorf("nothing says %q:\n%s", want, printed)
			}
		}
	})
}
