package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/call"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/storage"
)

// mostGroups and mostCalls are how many of them a page shows.
const (
	mostGroups = 200
	mostCalls  = 100
)

// groupsData is what a page shows of the calls of a state.
type groupsData struct {
	State, Title string
	// Criteria are those by which the page can group, and By is the present one.
	Criteria []message.By
	By       message.By
	// Group is the key of the group of which the page shows the calls; nil if it shows groups.
	Group *message.Group
	// Total is the number of calls that were counted, and Notes say what it lacks.
	Total int
	Notes []string
	// Groups are the largest ones, and OtherGroups is the number of the others.
	Groups      []groupRow
	OtherGroups int
	// Calls are the first ones, and OtherCalls is the number of the others.
	Calls      []callRow
	OtherCalls int
	Commands   []string

	groups message.ScheduledGroups
	// queues selects the queues in the commands; empty if they are those of the app.
	queues string
}

// groupRow is a group of calls, with the commands for it.
type groupRow struct {
	message.ScheduledGroup

	Commands []string
}

// callRow is a call of a list. At is when its next attempt is due, or when it became a dead letter.
type callRow struct {
	message.Message

	At time.Time
	// IsGone says that its message was not seen although it should have been.
	IsGone bool
}

// Call describes the call of a message, or what is known without it.
func (m callRow) Call() string {
	return cmp.Or(strings.TrimPrefix(m.Method+" "+m.Host+cmp.Or(m.Path, m.PathPattern), " "), m.Detail)
}

// HasID reports whether storage can have given the id and the queue of a message: nothing leads to another one.
func (m callRow) HasID() bool { return storage.ValidID(m.ID) && storage.ValidName(m.Queue) }

// filter is the selection of a group, as a person would write it.
func filter(by message.By, key string) string { return "--group " + by.Arguments()(key) }

// commands returns the commands for the calls of a selection.
func (d *groupsData) commands(selection string) []string {
	selection = " --state " + d.State + " " + selection + d.queues
	return []string{
		"calls list" + selection,
		"calls retry" + selection + " --dry-run",
		"calls export" + selection + " --output calls.jsonl",
		"calls delete" + selection + " --dry-run",
	}
}

func (c *Console) scheduled(ctx context.Context, q query) (page, error) {
	d := groupsData{
		State: call.StateScheduled, Title: "Scheduled calls", Criteria: message.ScheduledCriteria(),
	}
	return c.calls(ctx, q, d, c.readScheduled)
}

func (c *Console) poison(ctx context.Context, q query) (page, error) {
	d := groupsData{State: call.StatePoison, Title: "Dead letters", Criteria: message.PoisonCriteria()}
	return c.calls(ctx, q, d, c.readDeadLetters)
}

// calls returns the page of the calls that read adds.
func (c *Console) calls(
	ctx context.Context, q query, d groupsData, read func(context.Context, account.Source, *groupsData) error,
) (page, error) {
	by, err := message.ParseBy(cmp.Or(q.get("by"), string(d.Criteria[0])), d.Criteria)
	if err != nil {
		return page{}, &problemError{"No such groups", http.StatusNotFound, "calls list --help", err}
	}
	d.By, d.groups = by, message.ScheduledGroups{By: by, Now: time.Now()}
	if key, isChosen := q["key"]; isChosen {
		d.Group = &message.Group{By: by, Key: key[0]}
	}
	source := account.Source{Filter: message.Filter{Group: d.Group}, PeekOnly: true}
	err = c.alone(ctx, func(ctx context.Context) error { return read(ctx, source, &d) })
	switch {
	case errors.Is(err, account.ErrNoTable):
		return page{}, &problemError{"Scheduled calls are not recorded", http.StatusNotFound, "doctor", err}
	case err != nil:
		return page{}, err
	}
	argument := d.groups.Arguments()
	for _, g := range d.groups.Result() {
		d.addGroup(groupRow{g, d.commands("--group " + argument(g.Key))})
	}
	d.keepFirst(mostCalls)
	d.Commands = []string{"calls list --state " + d.State + " --group-by " + string(by) + d.queues}
	if d.Group != nil {
		d.Commands = d.commands(filter(by, d.Group.Key))
	}
	return page{Template: "groups", Title: d.Title, Data: d}, nil
}

func (c *Console) readScheduled(ctx context.Context, source account.Source, d *groupsData) error {
	now := d.groups.Now
	presence := c.operations.Account.PresenceCheck(ctx, now)
	settings, _ := c.operations.Account.Settings(ctx) // the overview says why they are unknown
	inForce := setting.Select(settings, now)
	_, err := c.operations.Account.ListScheduled(ctx, source, false, func(m message.Recorded) error {
		due := m
		account.UntilResumed(&due, inForce, now)
		m.Row.NextAttemptAt = due.Row.NextAttemptAt // groups have the cause of the row, as in the commands
		d.add(m, presence(m.Row) == record.Gone)
		return nil
	})
	return err
}

// readDeadLetters adds the dead letters of each queue that can be read.
func (c *Console) readDeadLetters(ctx context.Context, source account.Source, d *groupsData) error {
	fronts, err := c.operations.Account.PoisonFronts(ctx)
	isMoved := false
	for _, f := range fronts {
		d.queues += " --queue " + format.ShellWord(f.Queue)
		isMoved = isMoved || !strings.HasSuffix(f.Queue, storage.PoisonSuffix)
		source.Queues = []string{f.Queue}
		listed, unread := c.operations.Account.Look(ctx, source, func(m message.Recorded) error {
			m.Row.NextAttemptAt = m.Since
			d.add(m, m.Unseen)
			return nil
		})
		if unread != nil {
			d.Notes = append(d.Notes, "Queue "+f.Queue+": unknown: "+unread.Error())
			continue
		}
		for _, v := range listed.Views {
			if text := v.Text(); text != "" {
				d.Notes = append(d.Notes, "Queue "+v.Queue+": "+text)
			}
		}
	}
	if !isMoved {
		d.queues = ""
	}
	return cmp.Or(err, ctx.Err())
}

// add counts a call and, if the page shows calls, keeps the first ones in mind.
func (d *groupsData) add(m message.Recorded, isGone bool) {
	d.Total++
	d.groups.Add(m, isGone)
	if d.Group == nil {
		return
	}
	d.Calls = append(d.Calls, callRow{m.Message, m.Row.NextAttemptAt, isGone})
	if len(d.Calls) > 10*mostCalls {
		d.keepFirst(mostCalls)
	}
}

// keepFirst keeps the first calls.
func (d *groupsData) keepFirst(most int) {
	slices.SortStableFunc(d.Calls, func(a, b callRow) int { return a.At.Compare(b.At) })
	d.Calls = d.Calls[:min(len(d.Calls), most)]
	d.OtherCalls = d.Total - len(d.Calls)
}

// addGroup adds a group, unless there are many. No filter selects the calls without a key, and those of the groups that
// were counted together.
func (d *groupsData) addGroup(g groupRow) {
	if g.Key == message.KeyOthers || g.Key == "" {
		g.Commands = nil
	}
	if len(d.Groups) == mostGroups {
		d.OtherGroups++
		return
	}
	d.Groups = append(d.Groups, g)
}
