package cli

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/observers/sight/sighttest"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

func limitAt(host, member, value string, lasts time.Duration) setting.Setting {
	s := pauseAt(host, lasts)
	s.Member, s.Value = member, value
	return s
}

func mustProfiles(t *testing.T, content string) targets.Profiles {
	t.Helper()
	profiles, err := targets.Parse([]byte(content), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return profiles
}

// TestStatusOfWaiting: a target that does not fail says why its next message waits, and a paused one until when.
func TestStatusOfWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newPauseSession(t, 0)
		app := d.account.AppTable
		put := func(id, host, reason, cause string, due time.Duration) {
			t.Helper()
			row := rowAt(id, host, due)
			row.Reason, row.Cause, row.Status = reason, cause, 0
			if err := rows.Put(t.Context(), d.account.Table, row); err != nil {
				t.Fatal(err)
			}
		}
		put("1", "limited.example", "busy", "limit 5/s", 2*time.Minute)
		put("2", "limited.example", "temporary_status", "503", 3*time.Minute)
		put("3", "hangs.example", "busy", "untrusted", time.Minute)
		put("4", "paused.example", "paused", "", 8*time.Minute)
		put("5", "paused.example:8443", "temporary_status", "503", 5*time.Hour)
		put("6", "open.example", "timeout", "timeout", time.Second)
		put("7", "https.example", "paused", "", 4*time.Minute)
		put("8", "https.example", "not_due", "", 5*time.Minute)
		for host, lasts := range map[string]time.Duration{
			"paused.example": 2 * time.Hour, "open.example": 0, "https.example:443": 3 * time.Hour,
		} {
			if err := setting.Write(t.Context(), app, pauseAt(host, lasts)); err != nil {
				t.Fatal(err)
			}
		}
		known := &memory.Table{}
		d.account.Sight = sight.NewReader(known)
		hanging := sight.Target{
			App: "app", Host: "hangs.example", Reason: sight.NoAnswerYet, Cause: "no answer yet: 12 calls",
			Since: time.Now(), Latest: time.Now(),
		}
		<-time.After(14 * time.Second)
		sighttest.Fail(t, known, hanging)
		<-time.After(56 * time.Second)
		d.mustStatus(t)
		want := `
TARGET               CAUSE                                   SINCE  BREAKER  WAITING  1 HOUR    NEXT
hangs.example        no answer yet: 12 calls,…as of 56s ago    14s  -              1       1      0s
https.example        not_due                                     -  -              2       1   3m50s
limited.example      limit 5/s                                   -  -              2       2     50s
open.example         paused                                      -  -              1       0  resume
paused.example       paused                                      -  -              1       0   1h59m
paused.example:8443  paused                                      -  -              1       0   4h59m
t.example            503                                         -  -              1       1  58m50s
`
		if got := d.stdout.String(); !strings.Contains(got, want) {
			t.Errorf("got %s\nwant %s", got, want)
		}
		<-time.After(targets.MaxTimeout)
		d.stdout.Reset()
		d.mustStatus(t)
		if got := d.stdout.String(); strings.Contains(got, "no answer yet") {
			t.Errorf("a call that has ended is in %s", got)
		}
	})
}
