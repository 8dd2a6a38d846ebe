package operation

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/operate/send"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/targets"
)

const (
	// DrillDeadline is how long the app may try each call of a drill: long enough for an instance to start first.
	DrillDeadline = 3 * time.Minute
	// drillGrace is how long after the last deadline outcomes are recorded.
	drillGrace = 15 * time.Second
	// drillSilence is when a person should know that no outcome is recorded: an instance may have to start first.
	drillSilence = 30 * time.Second
	// DrillPrefix begins the request ids of a drill's calls.
	DrillPrefix = "drill-"
)

// ErrNoCall means that a drill has no call to make: its URL or priority is invalid, or it has no URL and the home page
// of the app is not known.
var ErrNoCall = errors.New("there is no call to make")

// Drill describes calls that show whether an app delivers.
type Drill struct {
	// URL is the URL of each call, a GET; empty means the home page of the app that runs on the account.
	URL string
	// Count is the number of calls, and Priority that of their queue; 0 means the standard queue.
	Count, Priority int
}

// DrillResult says what became of the calls of a drill.
type DrillResult struct {
	Account string `json:"account"`
	// Host is that of the URL: the rest may be a secret.
	Host  string `json:"host"`
	Queue string `json:"queue"`
	// RequestIDs begins the request ids of the calls.
	RequestIDs string `json:"requestIds"`
	// Until is the latest deadline. The app drops a call that it has not delivered by then.
	Until time.Time `json:"until"`
	Sent  int       `json:"sent"`
	// Delivered and Failed count the calls that have ended, and Failures the failed ones by their latest failure.
	Delivered int            `json:"delivered"`
	Failed    int            `json:"failed"`
	Failures  map[string]int `json:"failures"`
	// Missing is the number of calls whose end is not known after their deadlines; nil if the drill ended earlier.
	Missing *int `json:"missing"`
	// Apps are those that had recorded heartbeats at Began, when the drill began.
	Began time.Time       `json:"began"`
	Apps  []heartbeat.App `json:"apps"`
}

// Pending is the number of calls that were sent and whose end is not known.
func (r *DrillResult) Pending() int { return r.Sent - r.Delivered - r.Failed }

// Drill sends calls through the app and waits for their outcomes, until all are known or the deadlines have passed. The
// observer learns of each outcome. With an [ErrNoOutcomes] or an [ErrNoCall] it has sent nothing. With another error,
// or if ctx ends, the result has what is known.
func (op *Operations) Drill(ctx context.Context, d Drill) (r DrillResult, err error) {
	r = DrillResult{
		Account: op.Account.Name, Queue: envelope.QueueFor(d.Priority),
		RequestIDs: DrillPrefix + strings.ToLower(rand.Text()[:8]) + "-", Began: time.Now().UTC(),
		Failures: map[string]int{},
	}
	if _, err := op.Account.Reach(ctx); err != nil {
		return r, err
	}
	r.Apps, err = op.recordingApps(ctx, "a drill is")
	if err == nil && d.URL == "" {
		d.URL, err = homePage(r.Apps, r.Began)
	}
	if err != nil {
		return r, err
	}
	if target, err := url.Parse(d.URL); err == nil {
		r.Host = targets.Host(target)
	}
	w := newWatch(op, rand.Text())
	err = op.sendDrill(ctx, d, &r, w)
	if err == nil && r.Sent == 0 { // Ctrl-C
		err = ctx.Err()
	}
	if err != nil {
		return r, err
	}
	until := r.Until.Add(drillGrace)
	op.observer().Note(fmt.Sprintf("sent %d calls for %s to %s; waiting for their outcomes, at most until %s",
		r.Sent, text.Line(r.Host, maxShown), r.Queue, until.Format(time.TimeOnly+" UTC")))
	silentUntil := time.Now().Add(drillSilence)
	err = w.poll(ctx, func() (bool, error) {
		now, c := time.Now(), w.count()
		r.Delivered, r.Failed, r.Failures = c.delivered, c.over, c.reasons
		w.noteNews()
		if len(w.said) == 0 && now.After(silentUntil) {
			op.observer().Note(noOutcome)
			silentUntil = until
		}
		op.observer().Advanced(r.Delivered+r.Failed, r.Sent)
		return r.Pending() == 0 || now.After(until), nil
	})
	if r.Pending() == 0 || err == nil && ctx.Err() == nil {
		missing := r.Pending()
		r.Missing = &missing
	}
	if ctx.Err() != nil {
		err = nil
	}
	return r, err
}

// homePage returns the URL of the home page of the app that runs on the account, as it has recorded it. A name that is
// formed from the app's own could be that of a stranger's site.
func homePage(apps []heartbeat.App, now time.Time) (string, error) {
	var names []string
	var hostName string
	for _, app := range apps {
		if app.Silent(now) == "" {
			names = append(names, text.Line(app.Name, maxShown))
			hostName = strings.ToLower(app.HostName)
		}
	}
	why := ""
	switch {
	case len(names) == 0:
		why = "no app runs on the account"
	case len(names) > 1:
		const mostNames = 5
		why = fmt.Sprintf("%d apps run on the account, such as %s",
			len(names), strings.Join(names[:min(len(names), mostNames)], ", "))
	case !azureHost.MatchString(hostName):
		why = "the app " + names[0] + " has recorded no host name below azurewebsites.net, or that of another cloud"
	default:
		return "https://" + hostName + "/", nil
	}
	return "", fmt.Errorf("%w: the home page of the app is not known, because %s; "+
		"name a URL to call: `async-caller drill --url URL`", ErrNoCall, why)
}

// azureHost matches the names that Azure gives to apps in its clouds. The rows of heartbeats can be anyone's who writes
// to the table, so that no other name is called.
var azureHost = regexp.MustCompile(
	`^[a-z0-9][a-z0-9-]{0,62}(\.[a-z0-9-]{1,63}){0,2}\.(azurewebsites\.(net|us)|chinacloudsites\.cn)$`)

// sendDrill sends the calls, until ctx ends. An answer that is lost does not stop it: the call counts as sent.
func (op *Operations) sendDrill(ctx context.Context, d Drill, r *DrillResult, w *watch) error {
	rules := op.Account.Rules
	sender := send.Sender{
		Store: op.Account.Store, Account: op.Account.Name, Encoding: rules.Encoding, Rules: rules.Decision,
	}
	for n := 1; n <= d.Count && ctx.Err() == nil; n++ {
		deadline := time.Now().UTC().Add(DrillDeadline)
		draft := send.Draft{
			RequestID: r.RequestIDs + strconv.Itoa(n), Call: send.Call{URL: d.URL}, Priority: d.Priority,
			Deadline: deadline, GiveUp: string(envelope.GiveUpDrop), Run: w.token,
		}
		content, err := draft.Encode()
		if err != nil {
			return err
		}
		message, err := sender.Prepare(content)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrNoCall, err)
		}
		receipt, err := sender.Send(context.WithoutCancel(ctx), message)
		if err != nil && !receipt.PerhapsSent {
			return fmt.Errorf("call %d of %d is not sent, and the outcomes of those before it are not read: %w",
				n, d.Count, err)
		}
		w.sent[message.RequestID] = true
		r.Sent++
		r.Until = deadline
	}
	return nil
}
