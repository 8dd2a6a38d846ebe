// Package poison is for the people who must deal with messages that could not be delivered: it lists what
// stands on the poison queues of an account and why, sends it again, moves, deletes, exports and imports
// it, and takes back what a run has done. The command line uses it; anything else that faces a person can.
//
// What changes queues is a run: [Plan] says beforehand what it will do, a journal notes what it does, and
// [Account.Resume] and [Account.Undo] go by that journal. A run writes first and deletes after, so whatever
// happens a message is in one place, or for a moment in two, but never in none.
package poison

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/poison/edit"
	"asynccaller/handler/internal/poison/inspect"
	"asynccaller/handler/internal/poison/journal"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/queue/lease"
)

// Suffix is what the name of a poison queue ends in.
const Suffix = "-poison"

// Account is a storage account with poison queues. It is safe for concurrent use.
type Account struct {
	// Store is the account's queues, Name its queue endpoint without scheme and secrets.
	Store queue.Store
	Name  string
	// Rules are the handler's.
	Rules edit.Rules
	// Runs is where journals are kept.
	Runs journal.Folder
	// AppQueues are the queues that function apps are known to read.
	AppQueues []string
	// Observer follows the work; it may be nil.
	Observer Observer
}

// ErrAppQueue means that a function app reads the queue. Taking messages from it would disturb the app.
var ErrAppQueue = errors.New("a function app reads it")

// Observer is told how work goes. Its methods may be called from several goroutines.
type Observer interface {
	// Scanned is told how many messages of a queue have been looked at so far, and about how many it has.
	Scanned(queueName string, seen, total int)
	// Advanced is told how many of a run's messages are over and done with.
	Advanced(done, total int)
	// Note is told what a person should know.
	Note(text string)
}

// Source says which messages are meant.
type Source struct {
	// Queues are where they stand; empty means every poison queue of the account.
	Queues []string
	// IDs, unless empty, are the messages, as [inspect.MatchID] takes them; Filter chooses among them.
	IDs    []string
	Filter inspect.Filter
	// Limit is the largest number of messages; 0 for all.
	Limit int
	// Force also takes from queues that a function app reads.
	Force bool

	// expiring means only messages that storage will delete.
	expiring bool
}

// Found is a message, and what it holds.
type Found struct {
	inspect.Message
	// Text is what stands on the queue, Content what it says, decoded as far as it can be.
	Text    string
	Content []byte
}

func (a *Account) reader() inspect.Rules {
	return inspect.Rules{Encoding: a.Rules.Encoding, Decision: a.Rules.Decision}
}

// read looks at one message of a queue, and reports whether the source means it.
func (a *Account) read(s Source, queueName string, m queue.Message) (Found, bool) {
	if s.expiring && !expires(m) {
		return Found{}, false
	}
	rules := a.reader()
	found := Found{Message: inspect.Read(rules, queueName, m), Text: m.Text, Content: rules.Content(m.Text)}
	named := len(s.IDs) == 0 || slices.ContainsFunc(s.IDs, func(id string) bool { return inspect.MatchID(found.Message, id) })
	return found, named && s.Filter.Match(found.Message, found.Content)
}

// queues are the names of the source's queues. They are checked: a queue that a function app reads is
// refused, because every message that is looked at is away for a moment, and counts as delivered once more.
func (a *Account) queues(ctx context.Context, s Source) ([]string, error) {
	all, err := a.reach(ctx)
	if err != nil {
		return nil, err
	}
	if len(s.Queues) == 0 {
		return slices.DeleteFunc(poisonQueues(all), func(name string) bool { return a.live(all, name) != "" }), nil
	}
	for _, name := range s.Queues {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("queue %s: %w; the account's poison queues are: %s", name, queue.ErrNoQueue, list(poisonQueues(all)))
		}
		if why := a.live(all, name); why != "" && !s.Force {
			return nil, fmt.Errorf("queue %s: %w (%s); its poison queue is %s; --force takes from it all the same", name, ErrAppQueue, why, name+Suffix)
		}
	}
	return s.Queues, nil
}

// reach is names for the beginning of a command: a person waits, and as a rule it is the wrong account, or
// this machine may not reach it.
func (a *Account) reach(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, firstPatience)
	defer cancel()
	all, err := a.names(ctx)
	if err != nil && !errors.Is(err, queue.ErrRefused) {
		err = fmt.Errorf("storage cannot be reached: %w; is AzureWebJobsStorage the right account, and is it reachable from here?", err)
	}
	return all, err
}

func (a *Account) names(ctx context.Context) ([]string, error) {
	var all []string
	err := lease.Patiently(ctx, func(ctx context.Context) (err error) {
		all, err = a.Store.Names(ctx, "")
		return err
	})
	return all, err
}

// live says why we think that a function app reads the queue; empty where nothing tells so.
func (a *Account) live(all []string, name string) string {
	switch {
	case slices.Contains(a.AppQueues, name):
		return "a function of the app has it as its queue"
	case slices.Contains(all, name+Suffix):
		return "it has a poison queue"
	}
	return ""
}

func poisonQueues(all []string) []string {
	var names []string
	for _, name := range all {
		if strings.HasSuffix(name, Suffix) {
			names = append(names, name)
		}
	}
	return names
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// firstPatience is how long a person waits for the first answer.
const firstPatience = 15 * time.Second

func (a *Account) count(ctx context.Context, name string) (total int, err error) {
	err = lease.Patiently(ctx, func(ctx context.Context) (err error) {
		total, err = a.Store.Count(ctx, name)
		return err
	})
	return total, err
}

// look shows every visible message of the queues, and how many there are that cannot be seen.
func (a *Account) look(ctx context.Context, names []string, o Observer, see func(queueName string, m queue.Message)) (hidden int, err error) {
	hold, err := lease.New(a.Store, nil)
	if err != nil {
		return 0, err
	}
	defer hold.Close(ctx)
	for _, name := range names {
		total, err := a.count(ctx, name)
		if err != nil {
			return hidden, err
		}
		n := 0
		seen, err := hold.Look(ctx, name, func(m queue.Message) {
			n++
			o.Scanned(name, n, total)
			see(name, m)
		})
		if err != nil {
			return hidden, err
		}
		hidden += max(total-seen, 0)
	}
	return hidden, nil
}

// silent is an observer that does not listen.
type silent struct{}

func (silent) Scanned(string, int, int) {}
func (silent) Advanced(int, int)        {}
func (silent) Note(string)              {}

func (a *Account) observer() Observer {
	if a.Observer == nil {
		return silent{}
	}
	return a.Observer
}

// ignoreMissing takes a queue that does not exist for an empty one.
func ignoreMissing(err error) error {
	if errors.Is(err, queue.ErrNoQueue) {
		return nil
	}
	return err
}
