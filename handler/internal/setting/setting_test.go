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

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// bench has a table and the instances of apps that share it.
type bench struct {
	t     *testing.T
	table *changedTable
	stops []func()
}

// changedTable is a table in which late, unless nil, is called before a row is replaced.
type changedTable struct {
	memory.Table
	late func()
}

func (c *changedTable) Replace(ctx context.Context, entity storage.Entity) (string, error) {
	if late := c.late; late != nil {
		c.late = nil
		late()
	}
	return c.Table.Replace(ctx, entity)
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
		b := &bench{t: t, table: &changedTable{}}
		test(b)
		for _, stop := range b.stops {
			stop()
		}
	})
}

// pausesOf starts an instance that reads pauses.
func (b *bench) pausesOf(log *bytes.Buffer) *Watcher {
	pauses := NewWatcher(b.table, zerolog.New(log))
	ctx, stop := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	pauses.Read(ctx, time.Second)
	go func() { pauses.Run(ctx); close(done) }()
	b.stops = append(b.stops, func() { stop(); <-done })
	return pauses
}

func mustURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func (b *bench) pause(host string, lasts time.Duration) Pause {
	b.t.Helper()
	p := Pause{Host: host, Since: time.Now().UTC(), By: "anna@ops-7", Reason: "INC-4711"}
	if lasts > 0 {
		p.Until = p.Since.Add(lasts)
	}
	p, err := Write(b.t.Context(), b.table, p)
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

func (b *bench) resume(host string) {
	b.t.Helper()
	if _, found, err := Remove(b.t.Context(), b.table, host); err != nil || !found {
		b.t.Fatalf("%t, %v", found, err)
	}
}

// TestPauseReachesInstances: each instance notices a pause and its end within 20 s. While the table is away, what is
// known lasts until its own end, and the log says once that the table is away.
func TestPauseReachesInstances(t *testing.T) {
	inBubble(t, func(b *bench) {
		var logs [2]bytes.Buffer
		before := b.pause("before.example", 0)
		first, second := b.pausesOf(&logs[0]), b.pausesOf(&logs[1])
		wantLine := func(text string) {
			t.Helper()
			for n := range logs {
				if count := strings.Count(logs[n].String(), text); count != 1 {
					t.Errorf("%d times %q:\n%s", count, text, logs[n].String())
				}
			}
		}
		want := func(host string, paused bool) {
			t.Helper()
			for _, instance := range []*Watcher{first, second} {
				p, isPaused := instance.Of(mustURL(t, "https://"+host+"/orders"), time.Now())
				if isPaused != paused || isPaused && p.By != "anna@ops-7" {
					t.Errorf("%s: paused %t, want %t", host, isPaused, paused)
				}
			}
		}
		want("before.example", true) // from the start
		b.pause("t.example", 0)
		b.pause("short.example", 10*time.Minute)
		b.after(Notice)
		want("t.example", true)
		want("other.example", false)

		b.table.Fail(errors.New("no answer"))
		b.after(9 * time.Minute)
		want("t.example", true)
		want("short.example", true)
		b.after(time.Minute)
		want("short.example", false)
		wantLine("cannot be read")

		b.table.Fail(nil)
		b.resume("t.example")
		b.resume(before.Host)
		b.after(Notice)
		want("t.example", false)
		want("before.example", false)
		wantLine("can be read again")
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
		p := Pause{Key: pauseKey(host), Host: host, Since: now}.checked()
		if p.Problem != "" {
			t.Errorf("%s: %s", host, p.Problem)
		}
		paused := InForce([]Pause{p}, now)
		for text, want := range urls {
			u := mustURL(t, text)
			if _, got := paused.Of(u, now); got != want {
				t.Errorf("%s paused: %s is paused %t, want %t", host, text, got, want)
			}
		}
	}
}

// TestHostileRowsOfPauses: a row that the command has not written has no effect, and is named. The number and the
// texts of rows are limited.
func TestHostileRowsOfPauses(t *testing.T) {
	now := time.Now()
	long := strings.Repeat("x\u202e", 5000)
	for name, row := range map[string]Pause{
		"no_host":       {Key: pauseKey("t.example"), Since: now},
		"other_id":      {Key: pauseKey("other.example"), Host: "t.example", Since: now},
		"upper_case":    {Key: pauseKey("T.example"), Host: "T.example", Since: now},
		"all":           {Key: pauseKey("*"), Host: "*", Since: now},
		"suffix":        {Key: pauseKey("*.example"), Host: "*.example", Since: now},
		"no_since":      {Key: pauseKey("t.example"), Host: "t.example"},
		"long":          {Key: storage.Key{ID: long}, Host: long, Since: now, Reason: long, By: long},
		"escape":        {Key: pauseKey("t.example"), Host: "t.example\x1b[2J", Since: now},
		"with_user":     {Key: pauseKey("u@t.example"), Host: "u@t.example", Since: now},
		"valid_but_old": {Key: pauseKey("t.example"), Host: "t.example", Since: now.Add(-time.Hour), Until: now},
	} {
		p := row.checked()
		isValid := p.Problem == ""
		shown := p.Host + p.Text()
		if p.IsInForce(now) || isValid != (name == "valid_but_old") || len(shown) > 8*MaxText ||
			strings.ContainsAny(shown, "\x1b\u202e") {
			t.Errorf("%s: %+v", name, p)
		}
	}
	var table memory.Table
	var many []Pause
	for n := range 3 * maxRead {
		host := fmt.Sprintf("h%d.example", n)
		many = append(many, Pause{Key: pauseKey(host), Host: host, Since: now})
	}
	if err := rows.Put(t.Context(), &table, many...); err != nil {
		t.Fatal(err)
	}
	pauses, err := Read(t.Context(), &table)
	if err != nil || len(pauses) != maxRead {
		t.Errorf("%d pauses, %v", len(pauses), err)
	}
}

// TestPauseIsChangedByTwo: operators who change a pause at the same time never overwrite what the other was told.
func TestPauseIsChangedByTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &changedTable{}
		b := &bench{t: t, table: table}
		first := b.pause("t.example", time.Hour)
		b.after(time.Minute)
		if longer := b.pause("t.example", 0); !longer.Since.Equal(first.Since) || !longer.Until.IsZero() {
			t.Errorf("changed to %+v, want the pause to go on", longer)
		}
		table.late = func() { b.resume("t.example") }
		if _, err := Write(t.Context(), table, Pause{Host: "t.example", Since: time.Now()}); !errors.Is(err,
			ErrChanged) {
			t.Errorf("paused while another operator resumes: %v", err)
		}
		b.pause("t.example", time.Hour)
		racing := &pausedAgain{Table: table, again: func() { b.pause("t.example", 0) }}
		if _, found, err := Remove(t.Context(), racing, "t.example"); !found || !errors.Is(err, ErrChanged) {
			t.Errorf("resumed while another operator pauses: %t, %v", found, err)
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
			err = RemoveEnded(t.Context(), table, pauses, time.Now())
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

// TestPausesAmongHostileRows: rows of somebody who can write to the table, or pauses that have ended, hide no pause.
func TestPausesAmongHostileRows(t *testing.T) {
	now := time.Now()
	for name, hostile := range map[string]func(host string) Pause{
		"invalid":    func(string) Pause { return Pause{} },
		"other_host": func(string) Pause { return Pause{Host: "t.example"} },
		"no_since":   func(host string) Pause { return Pause{Host: host} },
		"ended": func(host string) Pause {
			ended := now.Add(-time.Minute)
			return Pause{Host: host, Since: ended.Add(-time.Hour), Until: ended}
		},
		"long": func(string) Pause { return Pause{By: strings.Repeat("x", 1<<10)} },
	} {
		var table memory.Table
		for n := range 1_500 {
			host := fmt.Sprintf("0%05d.example", n)
			row := hostile(host)
			row.Key = pauseKey(host)
			if err := rows.Put(t.Context(), &table, row); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Write(t.Context(), &table, Pause{Host: "t.example", Since: now}); err != nil {
			t.Fatal(err)
		}
		pauses := NewWatcher(&table, zerolog.Nop())
		pauses.Read(t.Context(), time.Minute)
		if _, isPaused := pauses.Of(mustURL(t, "https://t.example/"), now); !isPaused {
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
		pauses := b.pausesOf(&bytes.Buffer{})
		enter := func(host string) *decision.Verdict {
			e := &envelope.Envelope{Call: envelope.Call{Target: mustURL(t, "https://"+host+"/")}}
			due := &decision.Due{Intake: &decision.Intake{Envelope: e}, Arrived: time.Now()}
			_, verdict := pauses.Enter(t.Context(), due)
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
