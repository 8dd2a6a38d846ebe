package account

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/gates/limit"
	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/operate/estimate"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/retry"
	"asynccaller/handler/internal/rules/targets"
)

// outlook is what estimates need beside a status.
type outlook struct {
	account *Account
	waiting map[string]*estimate.Waiting
	inForce setting.InForce
	// means are how many seconds calls take, by host, and meansErr why that is not known.
	means    map[string]float64
	meansErr error
}

// add adds a scheduled message that is not gone.
func (o *outlook) add(m message.Recorded, now time.Time) {
	host := message.ByHost.Key(m.Message)
	w := o.waiting[host]
	if w == nil && len(o.waiting) >= message.MaxKeys {
		return
	}
	if w == nil {
		w = &estimate.Waiting{}
		if o.waiting == nil {
			o.waiting = map[string]*estimate.Waiting{}
		}
		o.waiting[host] = w
	}
	kind := estimate.Later
	switch decision.Reason(m.Row.Reason) { //nolint:exhaustive // the others wait for their next attempt
	case decision.Busy:
		kind = estimate.InLine
	case decision.Paused:
		kind = estimate.Paused
	}
	w.Add(m.Row.NextAttemptAt.Sub(now), m.Row.Attempts, kind)
}

// estimate adds to the named targets when their messages will be done.
func (a *Account) estimate(ctx context.Context, s *Status, settings setting.InForce) {
	s.outlook.account, s.outlook.inForce = a, settings
	if a.AppTable != nil && len(s.outlook.waiting) > 0 {
		ctx, cancel := context.WithTimeout(ctx, beatsTimeout)
		defer cancel()
		s.outlook.means, s.outlook.meansErr = limit.ReadMeans(ctx, a.AppTable)
	}
	for i, t := range s.Targets {
		s.Targets[i].Estimate = s.Estimate(t.Key)
	}
}

// Estimate says when the scheduled messages for a host will be done. It is nil if only a handful wait, or if it is not
// known how many.
func (s *Status) Estimate(host string) *estimate.Estimate {
	return s.estimateWith(host, s.outlook.inForce, s.outlook.waiting[host])
}

// Change is a change of the live settings of a host.
type Change struct {
	Host string
	// Made are settings that begin, and Ended members that end.
	Made  []setting.Setting
	Ended []string
	// Rate is how many messages for which a pause ends become due in a second; 0 sets no limit.
	Rate float64
}

// Changed has the estimates for a host before a change of the settings and after it.
type Changed struct {
	Host string            `json:"host"`
	Now  estimate.Estimate `json:"now"`
	Then estimate.Estimate `json:"then"`
}

// Estimates returns the estimates for the ports of the host of a change before and after it, ordered by host, where
// more than a handful of messages are scheduled.
func (s *Status) Estimates(c Change) (changed []Changed) {
	inForce := s.outlook.inForce.With(c.Host, c.Made, c.Ended...)
	for host, w := range s.outlook.waiting {
		isMeant := host == c.Host || targets.WithoutPort(host) == c.Host
		if !isMeant || w.Count() <= estimate.Handful {
			continue
		}
		now := s.Estimate(host)
		if slices.Contains(c.Ended, setting.Pause) {
			w = w.Resumed(setting.Notice, c.Rate)
		}
		changed = append(changed, Changed{host, *now, *s.estimateWith(host, inForce, w)})
	}
	slices.SortFunc(changed, func(a, b Changed) int { return strings.Compare(a.Host, b.Host) })
	return changed
}

// estimateWith is like Estimate with other settings and messages.
func (s *Status) estimateWith(host string, inForce setting.InForce, w *estimate.Waiting) *estimate.Estimate {
	if w == nil || w.Count() <= estimate.Handful {
		return nil
	}
	a := s.outlook.account
	t := estimate.Target{
		Now: s.At, Waiting: w, Numbers: s.Numbers.Of(host), Retry: a.Rules.Decision.Retry,
	}
	for _, f := range sight.OfHost(s.Failing, host) {
		t.Failing, t.IsOpen = cmp.Or(t.Failing, f.Cause), t.IsOpen || f.IsOpen()
	}
	of := inForce.Of(&url.URL{Scheme: "https", Host: host}, s.At)
	if len(of) == 0 { // a row does not say whether its URL is http or https
		of = inForce.Of(&url.URL{Scheme: "http", Host: host}, s.At)
	}
	pause, isPaused := of[setting.Pause]
	t.IsPaused, t.PausedUntil = isPaused, pause.Until
	profile := of.Profile(a.Rules.Decision.Profiles.OfHost(host))
	if profile.Retry != nil {
		t.Retry = *profile.Retry
	}
	if t.Retry.Name == "" {
		t.Retry = retry.Default()
	}
	mean, wasLimited := s.outlook.means[host]
	t.Pace, t.Concurrency = limit.Pace(profile, mean), profile.Concurrency > 0 && profile.Rate == 0
	runs := func(app AppStatus) bool { return app.Silent == "" && app.Problem == "" }
	switch {
	case !slices.ContainsFunc(s.Apps, runs):
		t.Unknown = "no app is known to make calls"
	case s.SettingProblem != "" || s.TargetProblem != "" || s.NumbersProblem != "" || a.Sight == nil:
		t.Unknown = "its settings, its failures or its calls per minute could not be read"
	case s.outlook.meansErr != nil:
		t.Unknown = "its limits: " + RecordProblem(s.outlook.meansErr)
	case a.NoLimits != "" && wasLimited:
		t.Unknown = a.NoLimits
	case profile.Concurrency > 0 && !wasLimited:
		t.Unknown = "how long its calls take is not known yet"
	}
	return new(estimate.Of(t))
}
