package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
)

// query are the parameters of a page.
type query url.Values

func (q query) get(name string) string { return url.Values(q).Get(name) }

// overviewData is what the first page shows.
type overviewData struct {
	account.Status
	Queues []account.QueueStatus
	// Idle is the number of queues that are left out because nothing waits on them.
	Idle     int
	Problems []string
	// Running says of each app that runs when it last gave a sign of life.
	Running  []string
	Tiles    []tile
	Charts   []chart
	Targets  []targetRow
	Settings []settingRow
	Commands []string
}

// tile is a number in large letters.
type tile struct{ Label, Number, Link, Class string }

// targetRow is a target with how it fails in the eyes of each app.
type targetRow struct {
	account.TargetStatus
	Set []string
}

// settingRow is a live setting with the command that ends it.
type settingRow struct {
	account.Setting
	Command string
}

func (c *Console) overview(ctx context.Context, _ query) (p page, err error) {
	err = c.status(ctx, func(s account.Status) {
		fronts := s.Fronts.Poison(ctx)
		p = page{Template: "overview", Title: "Overview", Data: newOverview(s, fronts)}
	})
	return p, err
}

func newOverview(s account.Status, fronts []account.Front) overviewData {
	d := overviewData{
		Status: s, Problems: append(problems(s), queueProblems(s)...), Tiles: tiles(s, fronts),
		Settings: settingRows(s.Settings),
	}
	for _, q := range s.Queues {
		if q.IsIdle() {
			d.Idle++
		} else {
			d.Queues = append(d.Queues, q)
		}
	}
	for _, t := range s.Targets {
		d.Targets = append(d.Targets, targetRow{t, settingsOf(s, t.Key)})
	}
	if knowsNumbers(s) {
		d.Charts = callCharts(s.At, s.Numbers.All().Minutes)
	}
	d.Charts = append(d.Charts, dueCharts(s.DueTimes)...)
	for _, app := range s.Apps {
		if app.Silent == "" {
			sign := format.Age(s.At.Sub(app.LastSign()))
			d.Running = append(d.Running, "App "+app.Title()+" runs, last sign of life "+sign+" ago.")
		}
	}
	d.Commands = []string{"status --watch", "targets list", "doctor"}
	return d
}

// knowsNumbers reports whether the calls per minute could be read, and an app is known that would have written some.
func knowsNumbers(s account.Status) bool {
	return s.OtherNumbers != nil && (len(s.Apps) > 0 || len(s.Numbers.All().Minutes) > 0)
}

// problems says what an operator should know first about all targets, and what is unknown of them.
func problems(s account.Status) (texts []string) {
	for _, app := range s.NoCalls {
		texts = append(texts, "No calls are made: "+app)
	}
	for _, app := range s.Apps {
		if app.Silent != "" {
			texts = append(texts, fmt.Sprintf("App %s: the timer function %s does not run.", app.Name, app.Silent))
		}
	}
	if len(s.Apps) == 0 && s.RecordProblem == "" {
		texts = append(texts, "Whether an app runs is unknown: no timer function has recorded that it ran.")
	}
	unknown := []struct{ what, why string }{
		{"Scheduled calls", s.RecordProblem},
		{"Why targets fail", s.TargetProblem},
		{"Live settings", s.SettingProblem},
		{"Calls per minute", s.NumbersProblem},
	}
	if s.SharedQueues != "" {
		texts = append(texts, "Limits of targets: "+s.SharedQueues+": "+heartbeat.OneName)
	}
	if s.Limits != "" {
		texts = append(texts, "Limits of targets: "+s.Limits)
	}
	for _, u := range unknown {
		if u.why != "" {
			texts = append(texts, u.what+": unknown: "+u.why)
		}
	}
	return texts
}

// queueProblems says which queues could not be read, and what storage will delete.
func queueProblems(s account.Status) (texts []string) {
	for _, q := range s.Queues {
		if q.Problem != "" {
			texts = append(texts, fmt.Sprintf("Queue %s could not be read: %s", q.Queue, q.Problem))
		}
		if q.Expiring > 0 {
			texts = append(texts, fmt.Sprintf("Storage will delete at least %s on %s, unless the timer %s keeps them.",
				format.Messages(q.Expiring), q.Queue+storage.PoisonSuffix, functionapp.KeeperTimer))
		}
	}
	return texts
}

// tiles returns the sums over the account, and over the last hour.
func tiles(s account.Status, fronts []account.Front) []tile {
	var waiting, poison, scheduled, due sum
	for _, q := range s.Queues {
		waiting.add(q.Messages)
	}
	for _, f := range fronts {
		poison.add(f.Messages)
	}
	if s.RecordProblem != "" {
		scheduled.add(nil)
		due.add(nil)
	}
	for _, t := range s.AllTargets {
		scheduled.add(new(t.Waiting()))
		due.add(&t.DueInMinute)
	}
	all := []tile{
		{"On the queues of the app", waiting.String(), "", ""},
		{"Scheduled", scheduled.String(), "scheduled", ""},
		{"Due in a minute", due.String(), "scheduled?by=queue", ""},
		{"Dead letters", poison.String(), "poison", poison.class()},
	}
	if !knowsNumbers(s) {
		return all
	}
	hour := s.Numbers.All().LastHour
	failed := sum{n: hour.FailedCalls()}
	return append(all, tile{"Delivered, last hour", format.Number(hour.Delivered), "", "good"},
		tile{"Failed calls, last hour", failed.String(), "", failed.class()})
}

// sum is a sum of numbers that may be unknown.
type sum struct {
	n         int
	isAtLeast bool
}

func (s *sum) add(n *int) {
	if n == nil {
		s.isAtLeast = true
		return
	}
	s.n += *n
}

func (s sum) String() string {
	switch {
	case s.isAtLeast && s.n == 0:
		return "unknown"
	case s.isAtLeast:
		return "≥ " + format.Number(s.n)
	}
	return format.Number(s.n)
}

func (s sum) class() string {
	if s.n > 0 {
		return "bad"
	}
	return ""
}

// settingsOf returns what is set for a target.
func settingsOf(s account.Status, host string) (texts []string) {
	for _, made := range inForceFor(s, host) {
		texts = append(texts, made.String())
	}
	return texts
}

// inForceFor returns the settings that apply to a host. A row does not say whether its URLs are http or https, which a
// setting for a port of its own depends on.
func inForceFor(s account.Status, host string) (rows []account.Setting) {
	var all []setting.Setting
	for _, made := range s.Settings {
		all = append(all, made.Setting)
	}
	inForce := setting.Select(all, s.At)
	for _, made := range s.Settings {
		applies := func(scheme string) bool {
			of, isSet := inForce.Of(&url.URL{Scheme: scheme, Host: host}, s.At)[made.Member]
			return isSet && of.Host == made.Host
		}
		if applies("http") || applies("https") {
			rows = append(rows, made)
		}
	}
	return rows
}

func settingRows(settings []account.Setting) (rows []settingRow) {
	for _, made := range settings {
		host := format.ShellWord(made.Host)
		command := "targets set " + host + " --clear"
		if made.Member == setting.Pause {
			command = "targets resume " + host
		}
		rows = append(rows, settingRow{made, command})
	}
	return rows
}

// Delivered returns the calls per minute of the last 5 minutes that were delivered.
func (t targetRow) Delivered() string {
	return perMinute(t.Numbers, func(c sight.Counts) int { return c.Delivered })
}

// Failed is like Delivered for the calls that failed.
func (t targetRow) Failed() string {
	return perMinute(t.Numbers, func(c sight.Counts) int { return c.FailedCalls() })
}

func perMinute(numbers *sight.Series, calls func(sight.Counts) int) string {
	if numbers == nil {
		return "-"
	}
	last := numbers.Last5Minutes.Counts
	return format.PerMinute(calls(last), numbers.Last5Minutes.Known, last.AtLeast)
}

// targetData is what the page of a target shows.
type targetData struct {
	account.TargetStatus

	// RecordProblem is why it is unknown what waits for the target, and TargetProblem why it is unknown how it fails.
	RecordProblem, TargetProblem string

	Problems []string
	Settings []settingRow
	Charts   []chart
	Commands []string

	isKnown bool
}

func (c *Console) target(ctx context.Context, q query) (p page, err error) {
	host, isKnown := targets.HostOf(q.get("host")), false
	err = c.status(ctx, func(s account.Status) {
		d := newTarget(s, host)
		isKnown = d.isKnown
		p = page{Template: "target", Title: host, Data: d}
	})
	switch {
	case err != nil:
		return page{}, err
	case !isKnown:
		err = fmt.Errorf("%.128q: nothing waits for it, and no call to it is known", host)
		return page{}, &problemError{"No such target", http.StatusNotFound, "calls list --group-by host", err}
	}
	return p, nil
}

func newTarget(s account.Status, host string) targetData {
	t := account.TargetStatus{Host: host, ScheduledGroup: message.ScheduledGroup{Key: host}}
	i := slices.IndexFunc(s.AllTargets, func(t account.TargetStatus) bool { return t.Key == host })
	if i >= 0 {
		t = s.AllTargets[i]
	}
	d := targetData{
		TargetStatus: t, RecordProblem: s.RecordProblem, TargetProblem: s.TargetProblem, Problems: problems(s),
		Settings: settingRows(inForceFor(s, host)),
	}
	d.Estimate = s.Estimate(host)
	d.Commands = targetCommands(host, d.Settings)
	if len(d.Failing) == 0 { // the first targets are only those of the last hour
		d.Failing = sight.OfHost(s.Failing, host)
	}
	isUnknown := s.RecordProblem != "" || s.TargetProblem != "" || s.SettingProblem != "" || s.NumbersProblem != ""
	d.isKnown = i >= 0 || len(d.Settings)+len(d.Failing) > 0 || isUnknown
	if knowsNumbers(s) {
		d.Numbers = new(s.Numbers.Of(host))
		d.Charts = callCharts(s.At, d.Numbers.Minutes)
		d.isKnown = d.isKnown || len(d.Numbers.Minutes) > 0
	}
	return d
}

// targetCommands returns the commands for a target.
func targetCommands(host string, settings []settingRow) []string {
	selection := filter(message.ByHost, host)
	commands := []string{
		"calls list " + selection,
		"calls retry --state scheduled " + selection + " --dry-run",
		"calls retry --state poison " + selection + " --dry-run",
	}
	name, err := targets.ParseHost(host)
	if err != nil || strings.HasPrefix(name, "-") { // no command takes it
		return commands
	}
	isPaused := slices.ContainsFunc(settings, func(s settingRow) bool { return s.Member == setting.Pause })
	word := format.ShellWord(name)
	if !isPaused {
		commands = append(commands, "targets pause "+word+" --for 1h")
	}
	return append(commands, "targets set "+word+" --rate 5/s --for 1h")
}
