package setting

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// bench has a table and the instances of apps that share it.
type bench struct {
	t     *testing.T
	table *memory.Table
	stops []func()
}

// after lets time pass.
func (b *bench) after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// inBubble runs a test with a fake clock.
func inBubble(t *testing.T, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, table: &memory.Table{}}
		test(b)
		for _, stop := range b.stops {
			stop()
		}
	})
}

// watch starts an instance that reads settings.
func (b *bench) watch(log *bytes.Buffer) *Watcher {
	watcher := NewWatcher(b.table, zerolog.New(log))
	ctx, stop := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	watcher.Read(ctx, time.Second)
	go func() { watcher.Run(ctx); close(done) }()
	b.stops = append(b.stops, func() { stop(); <-done })
	return watcher
}

// pauseOf returns a pause as it is stored.
func pauseOf(host string, since time.Time) Setting {
	return Setting{Key: keyOf(host, Pause), Host: host, Member: Pause, Since: since}
}

func mustURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func (b *bench) pause(host string, lasts time.Duration) Setting {
	b.t.Helper()
	p := Setting{Host: host, Member: Pause, Since: time.Now().UTC(), By: "anna@ops-7", Reason: "INC-4711"}
	if lasts > 0 {
		p.Until = p.Since.Add(lasts)
	}
	if err := Write(b.t.Context(), b.table, p); err != nil {
		b.t.Fatal(err)
	}
	return p
}

func (b *bench) resume(host string) {
	b.t.Helper()
	if ended, err := Remove(b.t.Context(), b.table, host, Pause); err != nil || len(ended) == 0 {
		b.t.Fatalf("%+v, %v", ended, err)
	}
}

// TestPauseReachesInstances: each instance notices a pause and its end within 20 s. The log says once that the table is
// away.
func TestPauseReachesInstances(t *testing.T) {
	inBubble(t, func(b *bench) {
		var logs [2]bytes.Buffer
		b.pause("before.example", 0)
		instances := []*Watcher{b.watch(&logs[0]), b.watch(&logs[1])}
		want := func(host string, paused bool) {
			t.Helper()
			for _, instance := range instances {
				p, isPaused := instance.known.Load().Of(mustURL(t, "https://"+host+"/orders"), time.Now())[Pause]
				if isPaused != paused || isPaused && p.By != "anna@ops-7" {
					t.Errorf("%s: paused %t, want %t", host, isPaused, paused)
				}
			}
		}
		want("before.example", true) // from the start
		b.pause("t.example", 0)
		b.after(Notice)
		want("t.example", true)
		want("other.example", false)
		b.table.Fail(errors.New("no answer"))
		b.after(time.Minute)
		b.table.Fail(nil)
		b.resume("t.example")
		b.after(Notice)
		want("t.example", false)
		for n := range logs {
			text := logs[n].String()
			if strings.Count(text, "cannot be read") != 1 || strings.Count(text, "can be read again") != 1 {
				t.Errorf("log %s", text)
			}
		}
	})
}

// TestPausedTargets: which targets a pause stops.
func TestPausedTargets(t *testing.T) {
	now := time.Now()
	for host, urls := range map[string]map[string]bool{
		"t.example": {
			"https://t.example/": true, "http://T.Example./x": true, "https://t.example:8443/": true,
			"https://a.t.example/": false, "https://t.example.evil/": false,
		},
		"t.example:443":      {"https://t.example/": true, "https://t.example:0443/": true, "http://t.example/": false},
		"[2001:db8::1]:8443": {"https://[2001:DB8:0::1]:8443/": true, "https://[2001:db8::1]/": false},
		"2001:db8::1":        {"https://[2001:db8::1]/": true},
		"xn--bcher-kva.de":   {"https://B%C3%BCcher.de/": true, "https://xn--bcher-kva.de/": true},
		"10.0.0.1":           {"http://[::ffff:10.0.0.1]/": true, "http://10.0.0.2/": false},
	} {
		p := pauseOf(host, now).checked()
		if p.Problem != "" {
			t.Errorf("%s: %s", host, p.Problem)
		}
		paused := Select([]Setting{p}, now)
		for text, want := range urls {
			u := mustURL(t, text)
			if _, got := paused.Of(u, now)[Pause]; got != want {
				t.Errorf("%s paused: %s is paused %t, want %t", host, text, got, want)
			}
		}
	}
}

// TestHostileRowsOfSettings: a row that the command has not written has no effect, and is named. The number and the
// texts of rows are limited.
func TestHostileRowsOfSettings(t *testing.T) {
	now := time.Now()
	long := strings.Repeat("x\u202e", 5000)
	valid := pauseOf("t.example", now)
	changed := func(change func(s *Setting)) Setting {
		s := valid
		change(&s)
		return s
	}
	limit := func(member, value string) Setting {
		return Setting{Key: keyOf("t.example", member), Host: "t.example", Member: member, Value: value, Since: now}
	}
	for name, row := range map[string]Setting{
		"no_host":         changed(func(s *Setting) { s.Host = "" }),
		"other_id":        changed(func(s *Setting) { s.Key = keyOf("other.example", Pause) }),
		"other_member":    changed(func(s *Setting) { s.Key = keyOf("t.example", Rate) }),
		"other_partition": changed(func(s *Setting) { s.Partition = "limit" }),
		"all":             pauseOf("*", now),
		"suffix":          pauseOf("*.example", now),
		"no_since":        changed(func(s *Setting) { s.Since = time.Time{} }),
		"long": {
			Key: storage.Key{Partition: Partition, ID: long}, Host: long, Member: long, Value: long, Since: now,
			Reason: long, By: long,
		},
		"escape":           changed(func(s *Setting) { s.Host = "t.example\x1b[2J" }),
		"with_user":        pauseOf("u@t.example", now),
		"valid_but_old":    changed(func(s *Setting) { s.Since, s.Until = now.Add(-time.Hour), now }),
		"pause_of_5":       limit(Pause, "5"),
		"unknown_member":   limit("timeout", "5m"),
		"no_rate":          limit(Rate, ""),
		"rate_0":           limit(Rate, "0/s"),
		"rate_high":        limit(Rate, "1000001/s"),
		"rate_unit":        limit(Rate, "5/d"),
		"rate_long":        limit(Rate, strings.Repeat("0", 300)+"5/s"),
		"concurrency_0":    limit(Concurrency, "0"),
		"concurrency_rate": limit(Concurrency, "5/s"),
		"concurrency_high": limit(Concurrency, "10001"),
	} {
		s := row.checked()
		isValid := s.Problem == ""
		shown := s.Host + s.String() + s.Text() + s.Problem
		if s.IsInForce(now) || isValid != (name == "valid_but_old") || len(shown) > 8*MaxText ||
			strings.ContainsAny(shown, "\x1b\u202e") {
			t.Errorf("%s: %+v", name, s)
		}
	}
	var table memory.Table
	var many []Setting
	for n := range 3 * maxRead {
		host := fmt.Sprintf("h%d.example", n)
		many = append(many, pauseOf(host, now))
	}
	if err := rows.Put(t.Context(), &table, many...); err != nil {
		t.Fatal(err)
	}
	pauses, err := Read(t.Context(), &table)
	if err != nil || len(pauses) != maxRead {
		t.Errorf("%d pauses, %v", len(pauses), err)
	}
}

// TestEarlierSpellings: a setting under another spelling of its host, which an earlier version wrote, is that of the
// host. A later one replaces it, and what ends one ends the other.
func TestEarlierSpellings(t *testing.T) {
	for spelling, host := range map[string]string{
		"2001:db8::1": "[2001:db8::1]", "[2001:DB8:0::1]:08443": "[2001:db8::1]:8443", "T.Example.": "t.example",
		"t.example.:443": "t.example:443", "bücher.example": "xn--bcher-kva.example", "::ffff:10.0.0.1": "10.0.0.1",
	} {
		inBubble(t, func(b *bench) {
			inForce := func() OfTarget {
				t.Helper()
				settings, err := Read(t.Context(), b.table)
				if err != nil {
					t.Fatal(err)
				}
				return Select(settings, time.Now()).Of(mustURL(t, "https://"+host), time.Now())
			}
			write := func(s Setting) {
				t.Helper()
				if err := rows.Put(t.Context(), b.table, s); err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now().UTC()
			write(pauseOf(spelling, began))
			write(limitOf(spelling, Rate, "5/s", began))
			if of := inForce(); of[Pause].Host != host || of[Rate].Value != "5/s" {
				t.Errorf("%s: in force is %+v", spelling, of)
			}
			b.after(time.Minute)
			b.pause(host, time.Hour)
			settings, err := Read(t.Context(), b.table)
			if err == nil {
				err = RemovePast(t.Context(), b.table, settings, time.Now())
			}
			settings, readErr := Read(t.Context(), b.table)
			if err != nil || readErr != nil || len(settings) != 2 {
				t.Errorf("%s: %d settings, %v: want one row in place of the other", spelling, len(settings), err)
			}
			if of := inForce(); of[Pause].Until.IsZero() {
				t.Errorf("%s: in force is the earlier pause", spelling)
			}
			b.after(time.Minute)
			write(limitOf(host, Rate, "6/s", began))
			b.after(time.Minute)
			write(limitOf(spelling, Rate, "7/s", began)) // an earlier version still runs somewhere
			if of := inForce(); of[Rate].Value != "7/s" {
				t.Errorf("%s: %+v, want the later one", spelling, of)
			}
			if ended, err := Remove(t.Context(), b.table, host, Pause, Rate); err != nil || len(ended) != 3 {
				t.Errorf("%s: ended %+v, %v", spelling, ended, err)
			}
			if of := inForce(); len(of) > 0 {
				t.Errorf("%s: after its end %+v", spelling, of)
			}
			write(pauseOf(spelling, began))
			ended, err := Remove(t.Context(), b.table, host, Pause)
			if err != nil || len(ended) != 1 || ended[0].Host != host {
				t.Errorf("%s alone: ended %+v, %v", spelling, ended, err)
			}
		})
	}
}

// TestPauseIsChangedByTwo: of two operators who set a pause, the last one counts. One who ends it never ends what
// another has set meanwhile.
func TestPauseIsChangedByTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &memory.Table{}
		b := &bench{t: t, table: table}
		b.pause("t.example", time.Hour)
		b.after(time.Minute)
		b.pause("t.example", 2*time.Hour)
		racing := &pausedAgain{Table: table, again: func() { b.pause("t.example", 0) }}
		ended, err := Remove(t.Context(), racing, "t.example", Pause)
		if len(ended) > 0 || !errors.Is(err, ErrChanged) {
			t.Errorf("resumed while another operator pauses: %+v, %v", ended, err)
		}
		pauses, err := Read(t.Context(), table)
		if err != nil || len(pauses) != 1 || !pauses[0].Until.IsZero() {
			t.Errorf("%+v, %v: want the later pause to stay", pauses, err)
		}
		b.after(3 * time.Hour)
		if later := b.pause("u.example", time.Minute); later.Since.IsZero() {
			t.Error("no beginning")
		}
		b.after(time.Minute)
		pauses, err = Read(t.Context(), table)
		if err == nil {
			err = RemovePast(t.Context(), table, pauses, time.Now())
		}
		pauses, _ = Read(t.Context(), table)
		if err != nil || len(pauses) != 1 || pauses[0].Host != "t.example" {
			t.Errorf("%+v, %v: want only the ended pause to be removed", pauses, err)
		}
	})
}

// pausedAgain is a table in which another operator changes a pause just before it is deleted.
type pausedAgain struct {
	storage.Table
	once  sync.Once
	again func()
}

func (p *pausedAgain) Delete(ctx context.Context, keys []storage.Key) error {
	p.once.Do(p.again)
	return p.Table.Delete(ctx, keys)
}

// TestSettingsAmongHostileRows: rows of somebody who can write to the table, or settings that have ended, hide none.
func TestSettingsAmongHostileRows(t *testing.T) {
	now := time.Now()
	for name, hostile := range map[string]func(host string) Setting{
		"invalid":    func(string) Setting { return Setting{} },
		"other_host": func(string) Setting { return pauseOf("t.example", now) },
		"no_since":   func(host string) Setting { return pauseOf(host, time.Time{}) },
		"ended": func(host string) Setting {
			s := pauseOf(host, now.Add(-time.Hour))
			s.Until = now.Add(-time.Minute)
			return s
		},
		"long":     func(string) Setting { return Setting{By: strings.Repeat("x", 1<<10)} },
		"no_value": func(host string) Setting { return Setting{Host: host, Member: Rate, Since: now} },
	} {
		var table memory.Table
		for n := range 1_500 {
			host := fmt.Sprintf("0%05d.example", n)
			row := hostile(host)
			row.Key = keyOf(host, Pause)
			if err := rows.Put(t.Context(), &table, row); err != nil {
				t.Fatal(err)
			}
		}
		if err := Write(t.Context(), &table, pauseOf("t.example", now)); err != nil {
			t.Fatal(err)
		}
		watcher := NewWatcher(&table, zerolog.Nop())
		watcher.Read(t.Context(), time.Minute)
		if _, isPaused := watcher.known.Load().Of(mustURL(t, "https://t.example/"), now)[Pause]; !isPaused {
			t.Errorf("%s: not paused", name)
		}
		if read, err := Read(t.Context(), &table); err != nil || len(read) > 1_001 {
			t.Errorf("%s: %d pauses, %v", name, len(read), err)
		}
	}
}

// TestPauseGate: the gate refuses the calls to a target as long as it is paused, and says until when.
func TestPauseGate(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.pause("t.example", time.Hour)
		watcher := b.watch(&bytes.Buffer{})
		enter := func(host string) *decision.Verdict {
			e := &envelope.Envelope{Call: envelope.Call{Target: mustURL(t, "https://"+host+"/")}}
			due := &decision.Due{Intake: &decision.Intake{Envelope: e}, Arrived: time.Now()}
			_, verdict := watcher.Enter(t.Context(), due)
			return verdict
		}
		verdict := enter("t.example")
		if verdict == nil || verdict.Refusal == nil || verdict.Refusal.Reason != decision.Paused ||
			verdict.Refusal.Detail != "until 2000-01-01T01:00:00Z" {
			t.Errorf("%+v", verdict)
		}
		if verdict := enter("u.example"); verdict != nil {
			t.Errorf("another target: %+v", verdict)
		}
		b.after(time.Hour)
		if verdict := enter("t.example"); verdict != nil {
			t.Errorf("after its end: %+v", verdict)
		}
	})
}

// limitOf returns the setting of a limit as it is stored.
func limitOf(host, member, value string, since time.Time) Setting {
	return Setting{Key: keyOf(host, member), Host: host, Member: member, Value: value, Since: since}
}

// TestProfileInForce: a setting replaces its member of the profile for exactly its host or its host and port. All
// others are those of the file. A host and port that has a profile or a setting of its own is counted for itself.
func TestProfileInForce(t *testing.T) {
	now := time.Now()
	const file = `{"*.example":{"rate":"1/s","concurrency":3,"timeout":"3m"},"port.example:443":{"rate":"9/s"},
		"own.example":{"rate":{"limit":"50/s","burst":7}}}`
	profiles, err := targets.Parse([]byte(file), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var rows []Setting
	for _, row := range [][3]string{
		{"a.example", Rate, "5/s"},
		{"b.example:8443", Concurrency, "2"},
		{"both.example", Rate, "5/s"},
		{"both.example:443", Rate, "6/s"},
		{"both.example", Concurrency, "4"},
		{"port.example", Rate, "5/m"},
		{"own.example", Rate, "5/s"},
		{"new.test", Concurrency, "1"},
	} {
		rows = append(rows, limitOf(row[0], row[1], row[2], now).checked())
	}
	inForce := Select(rows, now)
	for url, want := range map[string]string{
		"https://a.example/":       "5/s, burst 5, 3 at a time, of a.example, timeout 3m0s",
		"https://b.example/":       "1/s, burst 1, 3 at a time, of b.example, timeout 3m0s",
		"https://b.example:8443/":  "1/s, burst 1, 2 at a time, of b.example:8443, timeout 3m0s",
		"https://both.example/":    "6/s, burst 6, 4 at a time, of both.example:443, timeout 3m0s",
		"http://both.example/":     "5/s, burst 5, 4 at a time, of both.example, timeout 3m0s",
		"https://port.example/":    "5/m, burst 1, 0 at a time, of port.example:443, timeout 0s",
		"https://own.example/":     "5/s, burst 5, 0 at a time, of own.example, timeout 0s",
		"https://new.test/":        ", burst 0, 1 at a time, of new.test, timeout 0s",
		"https://sub.a.example/":   "1/s, burst 1, 3 at a time, of sub.a.example, timeout 3m0s",
		"https://unlimited.test/x": ", burst 0, 0 at a time, of unlimited.test, timeout 0s",
	} {
		u := mustURL(t, url)
		p := inForce.Of(u, now).Profile(profiles.For(u))
		got := fmt.Sprintf("%s, burst %d, %d at a time, of %s, timeout %v",
			p.RateText, p.Burst, p.Concurrency, p.Scope, p.Timeout)
		if got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
}

// TestLimitReachesInstances: the gates behind the settings see a limit within 20 s, and that of the file again at its
// end, also while the table is away. An instance that starts meanwhile knows it within 20 s of the table's return.
func TestLimitReachesInstances(t *testing.T) {
	inBubble(t, func(b *bench) {
		rate := func(w *Watcher) string {
			t.Helper()
			e := &envelope.Envelope{Call: envelope.Call{Target: mustURL(t, "https://t.example/")}}
			due := &decision.Due{Intake: &decision.Intake{Envelope: e}, Arrived: time.Now()}
			if _, verdict := w.Enter(t.Context(), due); verdict != nil {
				t.Errorf("refused: %+v", verdict)
			}
			return due.Intake.Profile.RateText
		}
		want := func(w *Watcher, text string) {
			t.Helper()
			if got := rate(w); got != text {
				t.Errorf("rate %q, want %q", got, text)
			}
		}
		set := func(value string, lasts time.Duration) {
			t.Helper()
			s := Setting{Host: "t.example", Member: Rate, Value: value, Since: time.Now().UTC()}
			s.Until = s.Since.Add(lasts)
			if err := Write(t.Context(), b.table, s); err != nil {
				t.Fatal(err)
			}
		}
		w := b.watch(&bytes.Buffer{})
		set("1/s", time.Hour)
		b.after(Notice)
		want(w, "1/s")
		set("5/s", 10*time.Minute)
		b.after(Notice)
		want(w, "5/s")
		b.table.Fail(errors.New("no answer"))
		late := b.watch(&bytes.Buffer{})
		b.after(9 * time.Minute)
		want(w, "5/s")
		want(late, "")
		b.table.Fail(nil)
		b.after(Notice)
		want(late, "5/s")
		b.table.Fail(errors.New("no answer"))
		b.after(time.Minute)
		want(w, "")
		want(late, "")
	})
}
