package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	State string
	// Criteria are those by which the page can group, and By is the present one.
	Criteria []message.By
	By       message.By
	// Group is the key of the group of which the page shows the calls; nil if it shows groups.
	Group *message.Group
	// Total is the number of calls that were counted.
	Total int
	// Groups are the largest ones, and OtherGroups is the number of the others.
	Groups      []groupRow
	OtherGroups int
	// Calls are the first ones, and OtherCalls is the number of the others.
	Calls      []callRow
	OtherCalls int
	// Fronts describe the poison queues.
	Fronts   []frontRow
	Commands []string
}

// groupRow is a group of calls, with the commands for it.
type groupRow struct {
	message.ScheduledGroup
	// First is when the first dead letter of a group was written, LastAt the latest one.
	First, LastAt time.Time
	Commands      []string
}

// callRow is a call of a list.
type callRow struct {
	message.Message

	NextAttemptAt time.Time
	Stale         bool
}

// Call describes the call of a message, or what is known without it.
func (m callRow) Call() string {
	return cmp.Or(strings.TrimPrefix(m.Method+" "+m.Host+cmp.Or(m.Path, m.PathPattern), " "), m.Detail)
}

// frontRow is a poison queue.
type frontRow struct {
	account.Front

	Command string
}

// Whole reports whether all messages of the queue were looked at.
func (f frontRow) Whole() bool { return f.Messages != nil && *f.Messages <= f.Visible }

// choice reads the criterion and the group of a page.
func choice(q query, state string, criteria []message.By) (d groupsData, err error) {
	d = groupsData{State: state, Criteria: criteria, By: criteria[0]}
	if by := q.get("by"); by != "" {
		d.By, err = message.ParseBy(by, criteria)
	}
	if err != nil {
		return d, &problemError{"No such groups", http.StatusNotFound, "calls list --help", err}
	}
	if key, isChosen := q["key"]; isChosen {
		d.Group = &message.Group{By: d.By, Key: key[0]}
	}
	return d, nil
}

// filter is the selection of a group, as a person would write it.
func filter(by message.By, key string) string { return "--group " + by.Arguments()(key) }

// callCommands returns the commands for the calls of a state that a selection names.
func callCommands(state, selection string) []string {
	selection = " --state " + state + " " + selection
	return []string{
		"calls list" + selection,
		"calls retry" + selection + " --dry-run",
		"calls export" + selection + " --output calls.jsonl",
		"calls delete" + selection + " --dry-run",
	}
}

func (c *Console) scheduled(ctx context.Context, q query) (page, error) {
	d, err := choice(q, call.StateScheduled, message.ScheduledCriteria())
	if err != nil {
		return page{}, err
	}
	now := time.Now()
	groups := message.ScheduledGroups{By: d.By, Now: now}
	var source account.Source
	source.Filter.Group = d.Group
	err = c.alone(ctx, func(ctx context.Context) (err error) {
		presence := c.operations.Account.PresenceCheck(ctx, now)
		settings, _ := c.operations.Account.Settings(ctx) // the overview says why they are unknown
		inForce := setting.Select(settings, now)
		d.Total, err = c.operations.Account.ListScheduled(ctx, source, false, func(m message.Recorded) error {
			stale := presence(m.Row) == record.Gone
			due := m
			account.UntilResumed(&due, inForce, now)
			m.Row.NextAttemptAt = due.Row.NextAttemptAt // groups have the cause of the row, as in the commands
			groups.Add(m, stale)
			if d.Group != nil {
				d.add(callRow{m.Message, m.Row.NextAttemptAt, stale})
			}
			return nil
		})
		return err
	})
	switch {
	case errors.Is(err, account.ErrNoTable):
		return page{}, &problemError{"Scheduled calls are not recorded", http.StatusNotFound, "doctor", err}
	case err != nil:
		return page{}, err
	}
	argument := groups.Arguments()
	for _, g := range groups.Result() {
		d.addGroup(groupRow{ScheduledGroup: g, Commands: callCommands(call.StateScheduled, "--group "+argument(g.Key))})
	}
	d.keepFirst(mostCalls)
	d.Commands = []string{"calls list --state scheduled --group-by " + string(d.By)}
	if d.Group != nil {
		d.Commands = callCommands(call.StateScheduled, filter(d.By, d.Group.Key))
	}
	return page{Template: "groups", Title: "Scheduled calls", Data: d}, nil
}

// add adds a message, and keeps the first ones in mind.
func (d *groupsData) add(m callRow) {
	d.Calls = append(d.Calls, m)
	if len(d.Calls) > 10*mostCalls {
		d.keepFirst(mostCalls)
	}
}

// keepFirst keeps the messages that are due first.
func (d *groupsData) keepFirst(most int) {
	slices.SortStableFunc(d.Calls, func(a, b callRow) int { return a.NextAttemptAt.Compare(b.NextAttemptAt) })
	d.Calls = d.Calls[:min(len(d.Calls), most)]
	d.OtherCalls = d.Total - len(d.Calls)
}

// addGroup adds a group, unless there are many. No filter selects the messages without a key, and those of the groups
// that were counted together.
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

func (c *Console) poison(ctx context.Context, q query) (page, error) {
	d, err := choice(q, call.StatePoison, message.PoisonCriteria())
	if err != nil {
		return page{}, err
	}
	fronts, err := c.operations.Account.PoisonFronts(ctx)
	if err != nil {
		return page{}, err
	}
	groups := message.NewGroups(d.By)
	var queues []string
	for _, f := range fronts {
		queues = append(queues, "--queue "+format.ShellWord(f.Queue))
		command := fmt.Sprintf("poison list --queue %s --group-by %s", format.ShellWord(f.Queue), d.By)
		d.Fronts = append(d.Fronts, frontRow{f, command})
		for _, m := range f.First {
			isSelected := d.Group == nil || d.Group.Match(m)
			if !isSelected {
				continue
			}
			d.Total++
			groups.Add(m)
			if d.Group != nil {
				d.Calls = append(d.Calls, callRow{Message: m})
			}
		}
	}
	argument := groups.Arguments()
	for _, g := range groups.Result() {
		selection := "--group " + argument(g.Key) + " " + strings.Join(queues, " ")
		row := groupRow{First: g.First, LastAt: g.Last, Commands: callCommands(call.StatePoison, selection)}
		row.Key, row.Count = g.Key, g.Count
		d.addGroup(row)
	}
	d.OtherCalls = max(len(d.Calls)-mostCalls, 0)
	d.Calls = d.Calls[:len(d.Calls)-d.OtherCalls]
	d.Commands = []string{"calls list --state poison --group-by " + string(d.By)}
	if d.Group != nil {
		d.Commands = callCommands(call.StatePoison, filter(d.By, d.Group.Key)+" "+strings.Join(queues, " "))
	}
	return page{Template: "groups", Title: "Dead letters", Data: d}, nil
}

// HasID reports whether storage can have given the id and the queue of a message: nothing leads to another one.
func (m callRow) HasID() bool { return storage.ValidID(m.ID) && storage.ValidName(m.Queue) }
