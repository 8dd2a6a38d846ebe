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
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/storage"
)

// mostGroups and mostMessages are how many of them a page shows.
const (
	mostGroups   = 200
	mostMessages = 100
)

// groupsData is what the pages of scheduled and of poison messages show.
type groupsData struct {
	// Criteria are those by which the page can group, and By is the present one.
	Criteria []message.By
	By       message.By
	// Group is the key of the group of which the page shows the messages; nil if it shows groups.
	Group *message.Group
	// Total is the number of messages that were counted.
	Total int
	// Groups are the largest ones, and OtherGroups is the number of the others.
	Groups      []groupRow
	OtherGroups int
	// Messages are the first ones, and OtherMessages is the number of the others.
	Messages      []messageRow
	OtherMessages int
	// Fronts describe the poison queues.
	Fronts   []frontRow
	Commands []string
}

// groupRow is a group of messages, with the commands for it.
type groupRow struct {
	message.ScheduledGroup
	// First is when the first message of a poison group was given up, LastAt the latest one.
	First, LastAt time.Time
	Commands      []string
}

// messageRow is a message of a list.
type messageRow struct {
	message.Message

	NextAttemptAt time.Time
	Stale         bool
}

// Call describes the call of a message, or what is known without it.
func (m messageRow) Call() string {
	return cmp.Or(strings.TrimPrefix(m.Method+" "+m.Host+cmp.Or(m.Path, m.PathPattern), " "), m.Detail)
}

// frontRow is a poison queue.
type frontRow struct {
	account.Front

	Command string
}

// Whole reports whether all messages of the queue were looked at.
func (f frontRow) Whole() bool { return f.Messages != nil && *f.Messages <= f.Visible }

// choice reads the criterion and the group of a page. Help is the command that names the criteria.
func choice(q query, criteria []message.By, help string) (d groupsData, err error) {
	d = groupsData{Criteria: criteria, By: criteria[0]}
	if by := q.get("by"); by != "" {
		d.By, err = message.ParseBy(by, criteria)
	}
	if err != nil {
		return d, &problemError{"No such groups", http.StatusNotFound, help, err}
	}
	if key, isChosen := q["key"]; isChosen {
		d.Group = &message.Group{By: d.By, Key: key[0]}
	}
	return d, nil
}

// filter is the selection of a group, as a person would write it.
func filter(by message.By, key string) string { return "--group " + by.Arguments()(key) }

func scheduledCommands(selection string) []string {
	return []string{
		"calls list --state scheduled " + selection,
		"calls retry --state scheduled " + selection + " --dry-run",
		"calls delete --state scheduled " + selection + " --dry-run",
	}
}

func (c *Console) scheduled(ctx context.Context, q query) (page, error) {
	d, err := choice(q, message.ScheduledCriteria(), "calls list --help")
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
				d.add(messageRow{m.Message, m.Row.NextAttemptAt, stale})
			}
			return nil
		})
		return err
	})
	switch {
	case errors.Is(err, account.ErrNoTable):
		return page{}, &problemError{"Scheduled messages are not recorded", http.StatusNotFound, "doctor", err}
	case err != nil:
		return page{}, err
	}
	argument := groups.Arguments()
	for _, g := range groups.Result() {
		d.addGroup(groupRow{ScheduledGroup: g, Commands: scheduledCommands("--group " + argument(g.Key))})
	}
	d.keepFirst(mostMessages)
	d.Commands = scheduledCommands("")[:1]
	if d.Group != nil {
		d.Commands = scheduledCommands(filter(d.By, d.Group.Key))
	}
	return page{Template: "scheduled", Title: "Scheduled messages", Data: d}, nil
}

// add adds a message, and keeps the first ones in mind.
func (d *groupsData) add(m messageRow) {
	d.Messages = append(d.Messages, m)
	if len(d.Messages) > 10*mostMessages {
		d.keepFirst(mostMessages)
	}
}

// keepFirst keeps the messages that are due first.
func (d *groupsData) keepFirst(most int) {
	slices.SortStableFunc(d.Messages, func(a, b messageRow) int { return a.NextAttemptAt.Compare(b.NextAttemptAt) })
	d.Messages = d.Messages[:min(len(d.Messages), most)]
	d.OtherMessages = d.Total - len(d.Messages)
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
	d, err := choice(q, message.PoisonCriteria(), "calls list --help")
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
		command := fmt.Sprintf("calls list --state poison --queue %s --group-by %s", format.ShellWord(f.Queue), d.By)
		d.Fronts = append(d.Fronts, frontRow{f, command})
		for _, m := range f.First {
			isSelected := d.Group == nil || d.Group.Match(m)
			if !isSelected {
				continue
			}
			d.Total++
			groups.Add(m)
			if d.Group != nil {
				d.Messages = append(d.Messages, messageRow{Message: m})
			}
		}
	}
	argument := groups.Arguments()
	for _, g := range groups.Result() {
		selection := "--group " + argument(g.Key) + " " + strings.Join(queues, " ")
		row := groupRow{First: g.First, LastAt: g.Last, Commands: poisonCommands(selection)}
		row.Key, row.Count = g.Key, g.Count
		d.addGroup(row)
	}
	d.OtherMessages = max(len(d.Messages)-mostMessages, 0)
	d.Messages = d.Messages[:len(d.Messages)-d.OtherMessages]
	d.Commands = []string{"calls list --state poison --group-by reason"}
	if d.Group != nil {
		d.Commands = poisonCommands(filter(d.By, d.Group.Key) + " " + strings.Join(queues, " "))
	}
	return page{Template: "poison", Title: "Poison messages", Data: d}, nil
}

func poisonCommands(selection string) []string {
	return []string{
		"calls list --state poison " + selection,
		"calls retry --state poison " + selection + " --dry-run",
		"calls export --state poison " + selection + " --output poison.jsonl",
		"calls delete --state poison " + selection + " --dry-run",
	}
}

// HasID reports whether storage can have given the id and the queue of a message: nothing leads to another one.
func (m messageRow) HasID() bool { return storage.ValidID(m.ID) && storage.ValidName(m.Queue) }
