package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"

	"github.com/rs/zerolog"
)

// moodyTable is a table of an app that answers late, or not at all.
type moodyTable struct {
	memory.Table
	mu   sync.Mutex
	late time.Duration
}

func (m *moodyTable) setLate(late time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.late = late
}

func (m *moodyTable) wait(ctx context.Context) error {
	m.mu.Lock()
	late := m.late
	m.mu.Unlock()
	if !storage.Sleep(ctx, late) {
		return ctx.Err()
	}
	return nil
}

func (m *moodyTable) List(ctx context.Context, q storage.Query, see func(storage.Entity) error) error {
	if err := m.wait(ctx); err != nil {
		return err
	}
	return m.Table.List(ctx, q, see)
}

func (m *moodyTable) Get(ctx context.Context, partition, id string) (storage.Entity, bool, error) {
	if err := m.wait(ctx); err != nil {
		return storage.Entity{}, false, err
	}
	return m.Table.Get(ctx, partition, id)
}

// seenBy says what the gates of an instance do with a call to a host.
func seenBy(ctx context.Context, w *setting.Watcher, profiles targets.Profiles, host string) string {
	target := &url.URL{Scheme: "https", Host: host}
	e := &envelope.Envelope{Call: envelope.Call{Target: target}}
	in := &decision.Intake{Envelope: e, Profile: profiles.For(target)}
	if _, verdict := w.Enter(ctx, &decision.Due{Intake: in, Arrived: time.Now()}); verdict != nil {
		return "paused"
	}
	return fmt.Sprintf("rate %s, concurrency %d", in.Profile.RateText, in.Profile.Concurrency)
}

// listedFor says the same as the list of an operator does.
func listedFor(listed []setting.Setting, profile targets.Profile, host string) string {
	for _, s := range listed {
		switch {
		case s.Problem != "" || s.Host != host:
		case s.Member == setting.Pause:
			return "paused"
		case s.Member == setting.Rate:
			profile.RateText = s.Value
		default:
			_, _ = fmt.Sscan(s.Value, &profile.Concurrency)
		}
	}
	return fmt.Sprintf("rate %s, concurrency %d", profile.RateText, profile.Concurrency)
}

// TestListIsInForce: what the list says is in force at the instances of all apps within 20 s, or it says that this is
// not known: whatever two operators do at the same time, also while the table is slow or away, when an instance starts
// meanwhile, and among rows of somebody else who can write to the table.
func TestListIsInForce(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { listIsInForce(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func listIsInForce(t *testing.T, random *rand.Rand) {
	t.Helper()
	const file = `{"*.example":{"rate":"9/s","concurrency":9}}`
	hosts := []string{"a.example", "b.example", "c.example"}
	d := newPauseSession(t, 0)
	table := &moodyTable{}
	d.account.AppTable, d.json = table, true
	ctx, stop := context.WithCancel(t.Context())
	var instances sync.WaitGroup
	defer instances.Wait()
	defer stop()
	start := func() *setting.Watcher {
		w := setting.NewWatcher(table, zerolog.Nop())
		w.Read(ctx, time.Second)
		instances.Go(func() { w.Run(ctx) })
		return w
	}
	apps := []targets.Profiles{mustProfiles(t, file), mustProfiles(t, `{}`)}
	running := [][]*setting.Watcher{{start()}, {start()}}
	operate := func(n int, random *rand.Rand) {
		operator := operation.Operations{Account: d.account}
		operator.Operator.User = fmt.Sprint("operator-", n)
		host, lasts := hosts[random.IntN(len(hosts))], time.Duration(random.IntN(3))*40*time.Second
		switch random.IntN(5) {
		case 0:
			_ = operator.Set(t.Context(), "pause", pauseAt(host, lasts))
		case 1:
			_, _ = operator.Unset(t.Context(), "resume", host, setting.Pause)
		case 2:
			_, _ = operator.Unset(t.Context(), "set", host, setting.Rate, setting.Concurrency)
		default:
			rate := fmt.Sprintf("%d/s", 1+random.IntN(8))
			_ = operator.Set(t.Context(), "set", limitAt(host, setting.Rate, rate, lasts),
				limitAt(host, setting.Concurrency, fmt.Sprint(1+random.IntN(8)), lasts))
		}
	}
	known := 0
	for range 12 {
		table.Fail(nil)
		table.setLate(0)
		isHostile := random.IntN(3) == 0
		for n := range 30 {
			if !isHostile {
				break
			}
			foreign := limitAt(hosts[random.IntN(len(hosts))], setting.Rate, "1/s", 0)
			foreign.Key = storage.Key{Partition: setting.Partition, ID: fmt.Sprint("0", n)}
			if err := rows.Put(t.Context(), &table.Table, foreign); err != nil {
				t.Fatal(err)
			}
		}
		switch random.IntN(4) {
		case 0:
			table.Fail(errors.New("no answer"))
		case 1:
			table.setLate(time.Duration(random.IntN(8000)) * time.Millisecond)
		}
		var operators sync.WaitGroup
		for n := range 2 {
			own := rand.New(rand.NewPCG(random.Uint64(), 0))
			operators.Go(func() { operate(n, own) })
		}
		operators.Wait()
		if random.IntN(4) == 0 {
			app := random.IntN(len(apps))
			running[app] = append(running[app], start())
		}
		d.stdout.Reset()
		_, err := d.listSettings(t.Context(), "")
		listed := decodeSettings(t, d.stdout.Bytes())
		if err != nil {
			if codeOf(err) != exitPartly || len(listed) > 0 {
				t.Fatalf("exit code %d: %v, listed %v", codeOf(err), err, listed)
			}
			continue
		}
		known++
		<-time.After(setting.Notice)
		synctest.Wait()
		listed = slices.DeleteFunc(listed, func(s setting.Setting) bool { return !s.IsInForce(time.Now()) })
		for app, profiles := range apps {
			for _, host := range hosts {
				want := listedFor(listed, profiles.OfHost(host), host)
				for n, w := range running[app] {
					if got := seenBy(ctx, w, profiles, host); got != want {
						t.Errorf("app %d, instance %d: %s: %s, and the list says %s", app, n, host, got, want)
					}
				}
			}
		}
	}
	if known < 4 {
		t.Errorf("only %d lists are known", known)
	}
}

// decodeSettings returns the settings that a list has printed.
func decodeSettings(t *testing.T, lines []byte) (listed []setting.Setting) {
	t.Helper()
	for line := range strings.Lines(string(lines)) {
		var s account.Setting
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatal(err)
		}
		listed = append(listed, s.Setting)
	}
	return listed
}
