// Package reconcile says of many calls at once what became of them. It reads rows and peeks at queues, and receives
// nothing. Whoever can write to the tables can make it say that a call was delivered.
package reconcile

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
)

const (
	// maxPlaces is how many places of an id are kept: a sender can use it any number of times.
	maxPlaces = 5
	// readers is how many requests to the history are made at once. 10,000 ids and the four months of the usual
	// retention need 40,000 requests of some 10 ms.
	readers = storage.MaxConnections / 2
	// maxText limits a text of the history, whose rows anyone who can write to the tables may have written.
	maxText = 64
)

// Query says which calls to look for.
type Query struct {
	IDs    []string
	Tenant envelope.Tenant
	// Since, unless zero, limits the history to calls that were created since.
	Since time.Time
	// OnRead is told how many of the requests to the history are made. It must not be nil.
	OnRead func(done, total int)
}

// Result says what became of the call of an id, and not of its callback.
type Result struct {
	RequestID string  `json:"requestId"`
	State     string  `json:"state"`
	Places    []Place `json:"places"`
	// More says that there are further places, which are not listed.
	More bool `json:"more,omitempty"`
}

// Report is what was found.
type Report struct {
	// Results are those of the ids, in their order.
	Results []Result
	// Tables are those of the history for the time of the calls. Without any, no call is known as delivered.
	Tables []string
	// Unread are the parts of the account that could not be read. A call that is only there is not known.
	Unread []account.UnreadError

	query Query
	index map[string]*Result
}

// Verdict reports whether some calls can still be delivered or are not known, and whether some were not delivered. If
// neither, all were.
func (r Report) Verdict() (isOpen, hasFailed bool) {
	isOpen = len(r.Unread) > 0 || len(r.Tables) == 0
	for _, result := range r.Results {
		isOpen = isOpen || result.State == Unknown || result.More
		for _, p := range result.Places {
			isOpen = isOpen || p.State == Scheduled || p.Doubt != ""
			hasFailed = hasFailed || p.State == Poison || p.State == Ended
		}
	}
	return isOpen, hasFailed
}

// Run looks for the calls. The error means that the account cannot be reached, or that ctx has ended.
//
// A call moves while it is read: from a queue to the record, from there to a poison queue or to the history, and from a
// poison queue, if it is retried, to the record. The places are read in the order poison queues, record, history, so
// that a call that a person retries, or that is delivered, is found where it was or where it is. It is missed, and not
// known, if it is in flight while the record is read and its end is not written when the history is read, which a
// handler does some 5 s after the call.
func Run(ctx context.Context, op *operation.Operations, q Query) (Report, error) {
	r := Report{Results: make([]Result, len(q.IDs)), query: q, index: map[string]*Result{}}
	for i, id := range q.IDs {
		r.Results[i].RequestID = id
		r.index[id] = &r.Results[i]
	}
	if err := r.readPoison(ctx, op.Account); err != nil {
		return Report{}, err
	}
	presence := op.Account.PresenceCheck(ctx, time.Now())
	_, err := op.Account.ListScheduled(ctx, account.Source{}, false, func(m message.Recorded) error {
		m.Unseen = presence(m.Row) != record.Expected
		r.addMessage(m, Scheduled, m.Row.NextAttemptAt)
		return nil
	})
	r.addUnread("scheduled calls", err)
	r.readHistory(ctx, op.History)
	for i, result := range r.Results {
		r.Results[i].State, r.Results[i].Places = settle(result.Places)
		if result.More {
			r.Results[i].State = Several
		}
	}
	return r, ctx.Err()
}

// addUnread adds a part with an error.
func (r *Report) addUnread(part string, err error) {
	if err != nil {
		r.Unread = append(r.Unread, account.UnreadError{Part: part, Err: err})
	}
}

// addMessage adds the place of a message that has one of the ids, and the tenant.
func (r *Report) addMessage(m message.Recorded, state string, at time.Time) {
	result := r.index[m.RequestID]
	if result == nil || r.query.Tenant != (envelope.Tenant{Organization: m.Organization, Environment: m.Environment}) {
		return
	}
	p := Place{
		State: state, At: at.UTC(), Status: m.Status, Attempts: m.Attempts, Reason: m.Reason, Queue: m.Queue, ID: m.ID,
		createdAt: m.Row.CreatedAt,
	}
	if m.Unseen {
		p.Doubt = "recorded, and not seen on its queue: in flight, received by another command, or gone"
	}
	result.add(p)
}

// add adds a place, if there is room.
func (r *Result) add(p Place) {
	r.More = r.More || len(r.Places) == maxPlaces
	if !r.More {
		r.Places = append(r.Places, p)
	}
}

// readPoison looks at the dead letters of all poison queues.
func (r *Report) readPoison(ctx context.Context, a *account.Account) error {
	names, err := a.QueuesOf(ctx, account.Source{})
	if err != nil && !errors.Is(err, storage.ErrDenied) { // otherwise the tables may be readable
		return err
	}
	r.addUnread("queues", err)
	for _, name := range names {
		source := account.Source{Queues: []string{name}, PeekOnly: true}
		listed, err := a.Look(ctx, source, func(m message.Recorded) error {
			r.addMessage(m, Poison, m.Since)
			return nil
		})
		if err == nil && listed.Lacks() > 0 {
			err = errors.New(listed.Views[0].Text())
		}
		r.addUnread("queue "+name, err)
	}
	return nil
}

// readHistory looks up each id in each table of the history. Point reads take the same time however many calls the
// history has, and only what is found takes memory.
func (r *Report) readHistory(ctx context.Context, tables storage.Tables) {
	if tables == nil {
		r.addUnread("history", azure.ErrNoTables)
		return
	}
	names, err := retry(ctx, func(ctx context.Context) ([]string, error) {
		return history.TablesSince(ctx, tables, r.query.Since)
	})
	r.Tables = names
	r.addUnread("history", err)
	for i, name := range names {
		// a request that has failed, although it was repeated, ends the others, which would wait as long
		group, reading := errgroup.WithContext(ctx)
		group.SetLimit(readers)
		for n := range r.Results {
			group.Go(func() error { return r.readEnds(reading, tables.Table(name), &r.Results[n]) })
			r.query.OnRead(i*len(r.Results)+n+1, len(names)*len(r.Results))
		}
		r.addUnread(name, group.Wait())
	}
}

// readEnds adds the ends that a table of the history has of an id.
func (r *Report) readEnds(ctx context.Context, table storage.Table, result *Result) error {
	found, err := retry(ctx, func(ctx context.Context) ([]history.Entry, error) {
		return history.FindIn(ctx, table, r.query.Tenant, result.RequestID, r.query.Since, maxPlaces+1)
	})
	if err != nil {
		return err
	}
	for _, e := range found {
		state := Ended
		if e.Reason == history.Delivered {
			state = Delivered
		}
		result.add(Place{
			State: state, At: e.EndedAt.UTC(), Status: e.Status, Attempts: e.Attempts,
			Reason: text.Line(e.Reason, maxText), Queue: text.Line(e.Queue, maxText),
			ID: text.Line(e.MessageID, maxText), createdAt: e.CreatedAt, call: e.CallKey(),
			trace: text.Line(e.TraceID, maxText), toPoison: e.Action == string(decision.DeadLetter),
		})
	}
	return nil
}

// retry repeats a request for as long as a person should wait.
func retry[T any](ctx context.Context, request func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, account.ReachTimeout)
	defer cancel()
	return storage.Retry(ctx, request)
}
