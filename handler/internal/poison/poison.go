// Package poison handles messages that could not be delivered: it lists the messages on the poison queues of an
// account with their reasons, requeues, moves, deletes, exports and imports them, and undoes these changes. The
// command line uses it; another front end could use it as well.
//
// A change of messages is a run of package run. An operation maps each selected message to a step of the run, or
// refuses it; each has a file of its own, such as requeue.go.
package poison

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/reading"
)

// Account is a storage account with poison queues. It is safe for concurrent use.
type Account struct {
	// Store gives access to the account's queues. Name is its queue endpoint without scheme and secrets.
	Store storage.Queues
	Name  string
	// Rules are the handler's.
	Rules message.Rules
	// Runs is the folder of journals.
	Runs journal.Folder
	// AppQueues are the queues that function apps are known to read.
	AppQueues []string
	// Observer follows the work; it may be nil.
	Observer Observer
	// Table is the record of scheduled messages, and Outcomes the table of what becomes of messages of runs; nil if
	// they cannot be used.
	Table, Outcomes storage.Table
	// Operator is who works on the account; the zero value for nobody.
	Operator journal.Operator
}

// Errors of the methods of [Account].
var (
	// ErrAppQueue means that a function app reads the queue. Taking messages from it would disturb the app.
	ErrAppQueue = errors.New("a function app reads it")
	// ErrOtherQueue means that the queue is none of the app, and may belong to another one.
	ErrOtherQueue = errors.New("it is not a poison queue of the app")
	// ErrNothing means that no message matches.
	ErrNothing = errors.New("no message matches")
	// ErrAmbiguous means that an ID names several messages.
	ErrAmbiguous = errors.New("names several messages")
)

// Observer follows the progress of an operation. Its methods may be called from several goroutines.
type Observer interface {
	run.Observer
	// Scanned reports how many messages of a queue were read, and about how many it has.
	Scanned(queueName string, seen, total int)
}

// silent is an observer that ignores all reports.
type silent struct{}

func (silent) Scanned(string, int, int) {}
func (silent) Advanced(int, int)        {}
func (silent) Note(string)              {}

func (a *Account) observer() Observer { return cmp.Or[Observer](a.Observer, silent{}) }

// Source selects messages.
type Source struct {
	// Queues are the queues to read; empty means every poison queue of the account.
	Queues []string
	// IDs, unless empty, limit the messages, as [message.MatchID] does; Filter limits them further.
	IDs    []string
	Filter message.Filter
	// Limit is the largest number of messages; 0 for all.
	Limit int
	// Force allows queues that a function app reads.
	Force bool

	// expiring limits the messages to those that storage will delete.
	expiring bool
}

// Found is a message with its content. Its JSON form is a line of an export: the description and the text, byte for
// byte as on the queue.
type Found struct {
	message.Message
	// Text is the message's text on the queue, Content the decoded text, as far as it can be decoded.
	Text    string `json:"text"`
	Content []byte `json:"-"`
}

// read inspects a message, and reports whether the source selects it.
func (a *Account) read(s Source, queueName string, m storage.Message) (Found, bool) {
	if s.expiring && !m.Expires() {
		return Found{}, false
	}
	found := Found{Message: message.Read(a.Rules, queueName, m), Text: m.Text, Content: a.Rules.Content(m.Text)}
	named := len(s.IDs) == 0 || slices.ContainsFunc(s.IDs, func(id string) bool { return message.MatchID(found.Message, id) })
	return found, named && s.Filter.Match(found.Message, found.Content)
}

// queues returns the names of the source's queues. It refuses a queue that a function app reads, because a message
// that is read is invisible for a moment, and its dequeue count increases.
func (a *Account) queues(ctx context.Context, s Source) ([]string, error) {
	all, err := a.reach(ctx)
	if err != nil {
		return nil, err
	}
	if len(s.Queues) == 0 {
		return slices.DeleteFunc(poisonQueues(all), func(name string) bool { return a.isRead(all, name) }), nil
	}
	for _, name := range s.Queues {
		if !slices.Contains(all, name) {
			poisoned := strings.Join(poisonQueues(all), ", ")
			return nil, fmt.Errorf("queue %s: %w; the poison queues of %s are: %s", name, storage.ErrNoQueue, a.Name, cmp.Or(poisoned, "none"))
		}
		advice := "its poison queue is " + name + storage.PoisonSuffix + "; use --force to take messages from it nevertheless"
		if err := a.checkQueue(all, name, advice); err != nil && !s.Force {
			return nil, err
		}
	}
	return s.Queues, nil
}

// reachTimeout is how long a user has to wait for the first answer of storage.
const reachTimeout = 15 * time.Second

// reach returns the names of all queues. Every command begins with it. Its timeout is short: a failure usually
// means that the account is wrong or not reachable from this machine.
func (a *Account) reach(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	all, err := a.names(ctx)
	if err != nil && !errors.Is(err, storage.ErrRefused) {
		err = fmt.Errorf("storage cannot be reached: %w; check AzureWebJobsStorage, and whether this machine can reach the account", err)
	}
	return all, err
}

func (a *Account) names(ctx context.Context) ([]string, error) {
	return storage.Retry(ctx, func(ctx context.Context) ([]string, error) { return a.Store.Names(ctx, "") })
}

// checkQueue returns an [ErrAppQueue] with advice if a function app seems to read the queue.
func (a *Account) checkQueue(all []string, name, advice string) error {
	why := "a function of the app has it as its queue"
	if !slices.Contains(a.AppQueues, name) {
		if !slices.Contains(all, name+storage.PoisonSuffix) {
			return nil
		}
		why = "it has a poison queue"
	}
	return fmt.Errorf("queue %s: %w (%s); %s", name, ErrAppQueue, why, advice)
}

// isRead reports whether a function app seems to read the queue.
func (a *Account) isRead(all []string, name string) bool { return a.checkQueue(all, name, "") != nil }

func poisonQueues(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return !strings.HasSuffix(name, storage.PoisonSuffix) })
}

// count returns the approximate number of messages on a queue. A missing queue has none.
func (a *Account) count(ctx context.Context, name string) (int, error) {
	total, err := storage.Retry(ctx, func(ctx context.Context) (int, error) { return a.Store.Count(ctx, name) })
	return total, ignoreMissing(err)
}

// peek returns the first visible messages of a queue. A missing queue has none.
func (a *Account) peek(ctx context.Context, name string) ([]storage.Message, error) {
	batch, err := storage.Retry(ctx, func(ctx context.Context) ([]storage.Message, error) {
		return a.Store.Peek(ctx, name, storage.MaxBatch)
	})
	return batch, ignoreMissing(err)
}

func ignoreMissing(err error) error {
	if errors.Is(err, storage.ErrNoQueue) {
		return nil
	}
	return err
}

// scan shows every visible message of a queue, and returns how many messages are hidden.
func (a *Account) scan(ctx context.Context, name string, see func(storage.Message)) (hidden int, err error) {
	total, err := a.count(ctx, name)
	if err != nil {
		return 0, err
	}
	seen := 0
	err = reading.Show(ctx, a.Store, name, total, func(m storage.Message) {
		seen++
		a.observer().Scanned(name, seen, total)
		see(m)
	})
	return max(total-seen, 0), ignoreMissing(err)
}

// QueueSummary describes a poison queue, or another queue that has dead letters.
type QueueSummary struct {
	Queue string `json:"queue"`
	// Main is the queue that a poison queue belongs to.
	Main string `json:"main,omitempty"`
	// Moved says that it is not a poison queue: somebody has moved dead letters to it, and no function of the app reads it.
	Moved bool `json:"moved,omitempty"`
	// Messages is the number of messages. Hidden is how many of them are invisible, because another client has received
	// them or they are delayed.
	Messages int `json:"messages"`
	Hidden   int `json:"hidden,omitempty"`
	// Oldest and Newest are when the first and the last message arrived; zero for an empty queue.
	Oldest time.Time `json:"oldest,omitzero"`
	Newest time.Time `json:"newest,omitzero"`
	// Expiring is how many messages storage will delete, the first of them at NextExpiry. These are the messages
	// that the host moved, 7 days after it wrote them; see [Keeper].
	Expiring   int       `json:"expiring,omitempty"`
	NextExpiry time.Time `json:"nextExpiry,omitzero"`
	// Reasons counts the messages by reason, the most frequent first.
	Reasons []ReasonCount `json:"reasons"`
}

// ReasonCount is the number of messages with a reason.
type ReasonCount struct {
	Reason string `json:"reason"`
	Count  int    `json:"count"`
}

// Queues describes the account's poison queues, and then the other queues that no function reads and that have a dead letter
// among their first messages.
func (a *Account) Queues(ctx context.Context) ([]QueueSummary, error) {
	all, err := a.reach(ctx)
	if err != nil {
		return nil, err
	}
	names := poisonQueues(all)
	for _, name := range all {
		if strings.HasSuffix(name, storage.PoisonSuffix) || a.isRead(all, name) {
			continue
		}
		hasDeadLetter, err := a.hasDeadLetter(ctx, name)
		if err != nil {
			return nil, err
		}
		if hasDeadLetter {
			names = append(names, name)
		}
	}
	summaries := make([]QueueSummary, len(names))
	for i, name := range names {
		if summaries[i], err = a.summarize(ctx, name); err != nil {
			return nil, err
		}
	}
	return summaries, nil
}

// summarize describes one queue.
func (a *Account) summarize(ctx context.Context, name string) (QueueSummary, error) {
	s := QueueSummary{Queue: name, Reasons: []ReasonCount{}}
	if main := mainQueue(name); main != name {
		s.Main = main
	}
	s.Moved = s.Main == ""
	reasons := message.NewGroups(message.ByReason)
	hidden, err := a.scan(ctx, name, func(m storage.Message) {
		message := message.Read(a.Rules, name, m)
		s.add(message)
		reasons.Add(message)
	})
	s.Hidden = hidden
	s.Messages += hidden
	for _, row := range reasons.Result() {
		s.Reasons = append(s.Reasons, ReasonCount{Reason: row.Key, Count: row.Count})
	}
	return s, err
}

// hasDeadLetter reports whether a dead letter is among the first messages of a queue. It only peeks, because the queue may
// belong to another program.
func (a *Account) hasDeadLetter(ctx context.Context, name string) (bool, error) {
	first, err := a.peek(ctx, name)
	return slices.ContainsFunc(first, func(m storage.Message) bool {
		e, err := envelope.Parse(a.Rules.Content(m.Text))
		return err == nil && e.DeadLetter != nil
	}), err
}

func (s *QueueSummary) add(m message.Message) {
	s.Messages++
	s.Oldest = earliest(s.Oldest, m.InsertedAt)
	if m.InsertedAt.After(s.Newest) {
		s.Newest = m.InsertedAt
	}
	if !m.ExpiresAt.IsZero() {
		s.Expiring++
		s.NextExpiry = earliest(s.NextExpiry, m.ExpiresAt)
	}
}

// mainQueue returns the queue that a poison queue belongs to, and any other name unchanged.
func mainQueue(name string) string { return strings.TrimSuffix(name, storage.PoisonSuffix) }

// Listed is the number of messages of a list. Hidden messages could not be read, because another client has received
// them or they are delayed.
type Listed struct{ Matched, Hidden int }

// List shows every message of the source, in the order of the queues, and keeps none in memory.
func (a *Account) List(ctx context.Context, s Source, see func(Found)) (listed Listed, err error) {
	names, err := a.queues(ctx, s)
	if err != nil {
		return Listed{}, err
	}
	for _, name := range names {
		hidden, err := a.scan(ctx, name, func(m storage.Message) {
			if s.Limit > 0 && listed.Matched == s.Limit {
				return
			}
			if found, ok := a.read(s, name, m); ok {
				listed.Matched++
				see(found)
			}
		})
		listed.Hidden += hidden
		if err != nil {
			return listed, err
		}
	}
	return listed, nil
}

// Find returns the one message with the given ID: its own, the beginning of its own, or its request ID.
func (a *Account) Find(ctx context.Context, s Source, id string) (Found, error) {
	s.IDs, s.Limit = []string{id}, 2
	var matches []Found
	listed, err := a.List(ctx, s, func(f Found) { matches = append(matches, f) })
	switch {
	case err != nil:
		return Found{}, err
	case len(matches) == 1:
		return matches[0], nil
	case len(matches) > 1:
		return Found{}, fmt.Errorf("%.80q %w: %s on %s, and %s on %s; give the whole ID of one", id, ErrAmbiguous,
			matches[0].ID, matches[0].Queue, matches[1].ID, matches[1].Queue)
	case listed.Hidden > 0:
		return Found{}, fmt.Errorf("%.80q: %w; %d messages cannot be seen now, because somebody has taken them", id, ErrNothing, listed.Hidden)
	}
	return Found{}, fmt.Errorf("%.80q: %w", id, ErrNothing)
}
