package call

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
)

// Options say where to look for calls, and which of them to select. A zero field selects all.
type Options struct {
	// Queues are the only queues to look at, with the history.
	Queues []string
	// Tenant is that of the calls. The history finds the ended calls of a tenant only with it.
	Tenant envelope.Tenant
	// Message is the beginning of the id of a message of the call.
	Message string
	// ReadQueues and PeekOnly are those of an [account.Source].
	ReadQueues, PeekOnly bool
}

// selects reports whether a call is one that the options ask for.
func (o Options) selects(c Call) bool {
	isOfTenant := o.Tenant == (envelope.Tenant{}) || o.Tenant == c.tenant()
	return isOfTenant && (o.Message == "" || c.hasMessage(o.Message))
}

// Found are the calls that an ID names.
type Found struct {
	Calls []Call
	// Others is the number of further messages that the ID names.
	Others int
	// OthersEnded is the number of further calls and callbacks in the history.
	OthersEnded int
	// Unread are the parts of the account that could not be looked at.
	Unread []account.UnreadError

	id      string
	options Options
	fronts  []account.Front
	// since is the first table of the history; empty if there is none.
	since string
	at    time.Time
}

// Errors of [Found.One]. Its error has a text of its own.
var (
	// ErrNotFound means that no call has the ID, as far as the account says.
	ErrNotFound = errors.New("not found")
	// ErrNotKnown means that no call was found, and that there may be one, because a part was not looked at.
	ErrNotKnown = errors.New("not found, and not known whether it is there")
	// ErrSeveral means that the ID names several calls.
	ErrSeveral = errors.New("names several calls")
)

// findError is an error of [Found.One].
type findError struct {
	kind, err error
}

func (e *findError) Error() string { return e.err.Error() }

func (e *findError) Unwrap() []error { return []error{e.kind, e.err} }

// Find looks for the calls that an ID names: a request id, or a message id or the beginning of one. The error is that
// of [account.Account.LookUp].
func Find(ctx context.Context, op *operation.Operations, id string, o Options) (Found, error) {
	lookup, err := op.Account.LookUp(ctx, account.LookupQuery{
		Queues: o.Queues, IDs: []string{id, id + envelope.CallbackSuffix}, PeekOnly: o.PeekOnly,
		ReadQueues: o.ReadQueues,
	})
	if err != nil {
		return Found{}, err
	}
	f := Found{
		Others: lookup.Others, Unread: lookup.Unread, id: id, options: o, fronts: lookup.Fronts, at: time.Now(),
	}
	messages := readMessages(ctx, op.Account, lookup, f.at)
	for _, c := range joinCalls(messages, f.readEnds(ctx, op.History, messages), id) {
		if o.selects(c) {
			f.Calls = append(f.Calls, c)
		}
	}
	return f, nil
}

// One returns the only call. The error is an [ErrNotFound], [ErrNotKnown] or [ErrSeveral]; its text is for a person.
func (f Found) One() (Call, error) {
	isChosen := f.options.Message != "" || f.options.Tenant != (envelope.Tenant{})
	switch {
	case len(f.Calls) == 0:
		return Call{}, f.notFound()
	case len(f.Calls) == 1 && (f.Others == 0 || isChosen):
		return f.Calls[0], nil
	}
	return Call{}, &findError{ErrSeveral, fmt.Errorf(
		"%.128q names %s calls: give the whole id of one message, with --queue if it is on two queues, "+
			"or add --message for a call that has ended", f.id, format.Number(len(f.Calls)+f.Others))}
}

// Note says which calls that have ended were not looked at; empty if there are none.
func (f Found) Note() string {
	if f.OthersEnded == 0 {
		return ""
	}
	return fmt.Sprintf("only the newest %d of %s calls and callbacks that have ended were looked at",
		history.MaxFound, format.Number(history.MaxFound+f.OthersEnded))
}

// Summaries returns the pages of the calls without what only [Describe] adds.
func (f Found) Summaries() (pages []Page) {
	for _, c := range f.Calls {
		pages = append(pages, newPage(c, f.Unread))
	}
	return pages
}

// readMessages returns the messages of a lookup. One at the front of its queue that the record has as well is
// scheduled.
func readMessages(ctx context.Context, a *account.Account, l account.Lookup, now time.Time) (messages []finding) {
	presence := l.PresenceCheck(ctx, now)
	for _, m := range l.Scheduled {
		messages = append(messages, newScheduled(a.Rules, m, presence(m.Row), now))
	}
	scheduled := messages
	for _, f := range l.Poison {
		messages = append(messages, newQueued(a.Rules, f, StatePoison, now))
	}
	for _, f := range l.Waiting {
		isSame := func(m finding) bool { return m.Queue == f.Queue && m.ID == f.ID }
		if !slices.ContainsFunc(scheduled, isSame) {
			messages = append(messages, newQueued(a.Rules, f, StateQueued, now))
		}
	}
	return messages
}

// readEnds returns what the history has of calls: those of messages, and the one with the ID and the tenant.
func (f *Found) readEnds(ctx context.Context, tables storage.Tables, messages []finding) (ends []finding) {
	unread := func(err error) []finding {
		f.Unread = append(f.Unread, account.UnreadError{Part: "history", Err: err})
		return ends
	}
	if tables == nil {
		return unread(azure.ErrNoTables)
	}
	ctx, cancel := context.WithTimeout(ctx, account.ReachTimeout)
	defer cancel()
	names, err := tables.TableNames(ctx, history.TablePrefix)
	if err != nil {
		return unread(err)
	}
	if len(names) == 0 {
		return nil
	}
	f.since = names[0]
	read := map[message.RequestKey]bool{}
	named := finding{Summary: Summary{Message: message.Message{
		RequestID: f.id, Organization: f.options.Tenant.Organization, Environment: f.options.Tenant.Environment,
	}}}
	for _, m := range append([]finding{named}, messages...) {
		key, _ := message.KeyOf(m.Message)
		key.RequestID = envelope.WithoutCallbackSuffix(key.RequestID)
		if key.RequestID == "" || read[key] {
			continue
		}
		read[key] = true
		entries, matching, err := history.Find(ctx, tables, m.tenant(), key.RequestID)
		if err != nil {
			return unread(err)
		}
		for _, e := range entries {
			ends = append(ends, newEnd(e))
		}
		f.OthersEnded += matching - len(entries)
	}
	return ends
}

// notFound returns the error that no call has an ID. If a part was not looked at, it is not known whether one has.
func (f Found) notFound() error {
	if len(f.Unread) > 0 {
		err := fmt.Errorf("%.128q: not found, and not known whether it is there, because a part was not looked at%s",
			f.id, message.ShortIDHint(f.id))
		for _, u := range f.Unread {
			err = fmt.Errorf("%w\nnot looked at: %w", err, u)
		}
		return &findError{ErrNotKnown, err}
	}
	if f.Others+f.OthersEnded > 0 {
		return &findError{ErrNotKnown, fmt.Errorf(
			"%.128q: the flags select none of the calls that were looked at, and there are more", f.id)}
	}
	return &findError{ErrNotFound, fmt.Errorf("%.128q: not scheduled, no dead letter, and no end is recorded%s; "+
		"the possibilities, likeliest first:\n%s", f.id, message.ShortIDHint(f.id),
		strings.Join(f.possibilities(), "\n"))}
}

// possibilities says where a call can be that was not found, the likeliest first.
func (f Found) possibilities() (texts []string) {
	where := ""
	if queues := f.options.Queues; len(queues) > 0 {
		where = " of " + strings.Join(queues, " or ")
	}
	waits := "it waits on a queue" + where + " behind the first messages" + waitingText(f.fronts, f.at)
	isLong := slices.ContainsFunc(f.fronts, func(front account.Front) bool { return front.Visible == storage.MaxBatch })
	if isLong {
		texts = append(texts, waits)
	}
	texts = append(texts, "it has ended: "+keptText(f.since))
	if f.since != "" && f.options.Tenant == (envelope.Tenant{}) {
		texts = append(texts, "it is the ended call of a Nexus tenant: give --organization and --environment")
	}
	texts = append(texts, "it is being delivered, or due within "+format.Duration(decision.MinRecordedDelay))
	if !isLong && len(f.fronts) > 0 {
		texts = append(texts, "it has just come to a queue"+where+waitingText(f.fronts, f.at))
	}
	if where != "" {
		texts = append(texts, "it is on another queue")
	}
	return append(texts, "it was never sent, or its id is misspelt")
}

// mostFronts is how many queues a text names.
const mostFronts = 5

// waitingText says how many messages wait on the queues that functions read.
func waitingText(fronts []account.Front, now time.Time) string {
	var parts []string
	for i, f := range fronts {
		if i == mostFronts {
			parts = append(parts, "…")
			break
		}
		n, verb := format.Number(f.Visible), "wait"
		switch f.Visible {
		case 1:
			verb = "waits"
		case storage.MaxBatch:
			n += " or more"
		}
		parts = append(parts, fmt.Sprintf("%s %s on %s, the oldest for %s", n, verb, f.Queue,
			format.Age(now.Sub(f.Since))))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, "; ") + ")"
}

// keptText says what the account keeps of calls that have ended.
func keptText(since string) string {
	text := "the account keeps no history"
	if since != "" {
		text = "the history begins with " + since
	}
	return text + "; the app keeps calls only if its ASYNC_CALLER_HISTORY, or history in its targets.json, is " +
		"outcomes or check, and only for its ASYNC_CALLER_HISTORY_RETENTION"
}
