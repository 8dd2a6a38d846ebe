// Package account reads a storage account: which queues it has, what waits on them, which messages are poison messages
// or scheduled messages, and whether the function app runs. It changes nothing, except that a message that is read from
// a long queue is invisible for a moment and its dequeue count increases.
package account

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/plain/socket"
	"asynccaller/handler/internal/storage"
)

// Account is a storage account with poison queues. It is safe for concurrent use, except for the numbers
// of a status.
type Account struct {
	// Store gives access to the account's queues. Name is its queue endpoint without scheme and secrets.
	Store storage.Queues
	Name  string
	// Rules are the handler's.
	Rules message.Rules
	// AppQueues are the queues that function apps are known to read.
	AppQueues []string
	// Table is the record of scheduled messages; nil if it cannot be used.
	Table storage.Table
	// AppTable has the live settings; nil if it cannot be used.
	AppTable storage.Table
	// Sight reads which targets fail, and the numbers per minute; nil if they cannot be used, or are not needed.
	Sight *sight.Reader
	// NoLimits says why the limits of targets.json are not known here; empty if they are.
	NoLimits string
	// Reached, unless nil, becomes true when storage has answered. Until then, reading does not wait for an address at
	// which nothing listens, because a person probably has to start or to correct something.
	Reached *atomic.Bool
	// Unsearched counts the messages that the latest reading with a text in its filter has left out although a part of
	// them could not be searched. Only one goroutine may use such a filter.
	Unsearched int
	// OnScanned, unless nil, is told how many messages of a queue were read, and about how many it has. It may be
	// called from several goroutines.
	OnScanned func(queueName string, seen, total int)
}

// Errors of the methods of [Account].
var (
	// ErrAppQueue means that a function app reads the queue. Taking messages from it would disturb the app.
	ErrAppQueue = errors.New("a function app reads it")
	// ErrNothing means that no message matches.
	ErrNothing = errors.New("no message matches")
	// ErrAmbiguous means that an ID names several messages.
	ErrAmbiguous = errors.New("names several messages")
)

// Scanned reports to OnScanned.
func (a *Account) Scanned(queueName string, seen, total int) {
	if a.OnScanned != nil {
		a.OnScanned(queueName, seen, total)
	}
}

// ReachTimeout is how long a user has to wait for the first answer of storage.
const ReachTimeout = 15 * time.Second

// Reach returns the names of all queues. Every command begins with it. Its timeout is short: a failure usually
// means that the account is wrong or not reachable from this machine.
func (a *Account) Reach(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, ReachTimeout)
	defer cancel()
	all, err := ask(ctx, a, func(ctx context.Context) ([]string, error) { return a.Store.Names(ctx, "") })
	if err != nil && !errors.Is(err, storage.ErrRefused) {
		err = fmt.Errorf("storage cannot be reached: %w; check AzureWebJobsStorage, and whether this machine "+
			"can reach the account", err)
	}
	return all, err
}

// ask asks storage until it answers.
func ask[T any](ctx context.Context, a *Account, try func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return storage.Retry(ctx, func(ctx context.Context) (T, error) {
		answer, err := try(ctx)
		switch {
		case a.Reached == nil:
		case err == nil:
			a.Reached.Store(true)
		case socket.IsRefused(err) && !a.Reached.Load():
			cancel() // this was the last try
		}
		return answer, err
	})
}

// CheckQueue returns an [ErrAppQueue] with advice if a function app seems to read the queue.
func (a *Account) CheckQueue(all []string, name, advice string) error {
	why := "a function of the app has it as its queue"
	if !slices.Contains(a.AppQueues, name) {
		if !slices.Contains(all, name+storage.PoisonSuffix) {
			return nil
		}
		why = "it has a poison queue"
	}
	return fmt.Errorf("queue %s: %w (%s); %s", name, ErrAppQueue, why, advice)
}

// IsRead reports whether a function app seems to read the queue.
func (a *Account) IsRead(all []string, name string) bool { return a.CheckQueue(all, name, "") != nil }

func poisonQueues(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all),
		func(name string) bool { return !strings.HasSuffix(name, storage.PoisonSuffix) })
}

// Count returns the approximate number of messages on a queue. A missing queue has none.
func (a *Account) Count(ctx context.Context, name string) (int, error) {
	total, err := ask(ctx, a, func(ctx context.Context) (int, error) { return a.Store.Count(ctx, name) })
	return total, IgnoreMissing(err)
}

// IgnoreMissing returns nil for the error that a queue does not exist, and any other error unchanged.
func IgnoreMissing(err error) error {
	if errors.Is(err, storage.ErrNoQueue) {
		return nil
	}
	return err
}
