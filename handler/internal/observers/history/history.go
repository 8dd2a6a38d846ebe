// Package history keeps what became of calls, in tables of the storage account, one for the calls of each month. A row
// says how a call ended. It is written in the background or, if a call must not be repeated, before the host may delete
// the message, and read before the call. Deliveries never depend on the tables: without an answer the call is made.
package history

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/logs"
	"asynccaller/handler/internal/observers/background"
	"asynccaller/handler/internal/plain/fold"
	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// TablePrefix begins the names of the tables; a year and a month follow.
const TablePrefix = "asynccallerhistory"

const month = "200601"

const (
	// partitions is the number of partitions of a table. A partition takes some 2,000 rows a second, and a transaction
	// only rows of one.
	partitions = 8
	// presentBytes is the memory that the rows may take while they wait for the table of the present month, and
	// pastBytes for one of the past. They wait for many rows of each partition.
	presentBytes = 2 << 20
	pastBytes    = 64 << 10
	gatherTime   = 5 * time.Second
	// AnswerTime is how long a call waits for the table. Without an answer, the table is not asked for awayTime.
	AnswerTime = 2 * time.Second
	awayTime   = 3 * time.Second
	// reportInterval is the shortest time between two log lines about calls that were not checked.
	reportInterval = time.Minute
)

// Delivered is the reason of a call that must not be made again.
const Delivered = string(decision.Delivered)

// Entry says how a call ended. Members with a tag for rows are values of its row. Others, apart from the last ones, are
// in the content of the row.
type Entry struct {
	RequestID    string `json:"requestId" row:"requestId"`
	Organization string `json:"organization,omitempty" row:"organization"`
	Environment  string `json:"environment,omitempty" row:"environment"`
	Queue        string `json:"queue"`
	MessageID    string `json:"messageId"`
	TargetHost   string `json:"host" row:"targetHost"`
	// MovedTo is the host that was called instead; empty if the target has not moved.
	MovedTo string `json:"movedTo,omitempty" row:"movedTo"`
	// PathPattern is the path of the call without ids and numbers.
	PathPattern string    `json:"pathPattern" row:"route"`
	CreatedAt   time.Time `json:"createdAt" row:"createdAt"`
	EndedAt     time.Time `json:"endedAt" row:"at"`
	Attempts    int       `json:"attempts" row:"attempts"`
	// Action, Reason and Status are those of the last decision.
	Action string              `json:"action" row:"action"`
	Reason string              `json:"reason" row:"reason"`
	Status envelope.StatusCode `json:"status" row:"status"`
	// OriginalRequestID is that of a Nexus callback: the id of the request that it reports on.
	OriginalRequestID string    `json:"originalRequestId,omitempty"`
	TraceID           string    `json:"traceId"`
	Trail             []Attempt `json:"trail"`
	// Table, Partition and Row say where [Find] has found it.
	Table     string `json:"table"`
	Partition string `json:"partition"`
	Row       string `json:"row"`

	key key
}

// entryRow is the row of an entry.
type entryRow struct {
	storage.Key
	Entry
	// Content is a [details] as JSON.
	Content []byte `row:"content"`
}

// IsCallback reports whether the call reports the outcome of another one.
func (e Entry) IsCallback() bool {
	return e.OriginalRequestID != "" || strings.HasSuffix(e.RequestID, envelope.CallbackSuffix)
}

// CallKey returns what the rows of one call in a table have in common: that of its delivery and that of another end.
func (e Entry) CallKey() string { return strings.TrimSuffix(e.Row, otherSuffix) }

// Attempt is one call of an entry.
type Attempt struct {
	At     time.Time     `json:"at"`
	Status int           `json:"status,omitempty"`
	Error  string        `json:"error,omitempty"`
	Took   time.Duration `json:"-"`
	TookMs int64         `json:"tookMs"`
}

// key identifies a call: two calls have the same key only if all of the sender's text that decides what the target
// receives, and who is told, is the same.
type key struct{ table, subject, call string }

func (k key) partition() string {
	first, _ := hex.DecodeString(k.subject[:2]) // it is hexadecimal
	return strconv.Itoa(int(first[0]) % partitions)
}

func (k key) row() string { return k.subject + "." + k.call }

// keyOf returns the key of an envelope. Names of tables follow from the month of its creation: one that is out of the
// retention counts as at its nearest end, so that a sender cannot choose the number of tables.
func (h *History) keyOf(e *envelope.Envelope, now time.Time) key {
	created := e.CreatedAt
	if earliest := now.Add(-h.retention); created.Before(earliest) {
		created = earliest
	}
	if created.After(now) {
		created = now
	}
	call := sha256.Sum256(fmt.Appendf(nil, "%q %x", e.RequestID, e.Fingerprint()))
	return key{
		table:   tableOf(created),
		subject: subjectOf(e.Tenant, envelope.WithoutCallbackSuffix(e.RequestID)),
		call:    hex.EncodeToString(call[:16]),
	}
}

func tableOf(created time.Time) string { return TablePrefix + created.UTC().Format(month) }

// subjectOf returns the beginning of the row keys of a tenant's request id, and of its callback. Quoted texts have no
// separator that an id could contain.
func subjectOf(t envelope.Tenant, requestID string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", t.Organization, t.Environment, requestID))
	return hex.EncodeToString(sum[:16])
}

// History writes and reads the rows. It is safe for concurrent use.
type History struct {
	tables    storage.Tables
	retention time.Duration
	log       zerolog.Logger

	mu      sync.Mutex
	writers map[string]*background.Writer
	// off says that the credential has no permission. Until awayUntil the table is not asked.
	off       bool
	awayUntil time.Time
	// missed counts the calls whose row was not read or written since the latest report.
	missed     int
	reportedAt time.Time
	droppedAt  time.Time
}

// New returns a history in the tables of an account, whose rows are kept for the retention.
func New(tables storage.Tables, retention time.Duration, log zerolog.Logger) *History {
	return &History{tables: tables, retention: retention, log: log, writers: map[string]*background.Writer{}}
}

// Close writes the rows that wait.
func (h *History) Close(timeout time.Duration) {
	if h == nil {
		return
	}
	h.mu.Lock()
	writers := h.writers
	h.writers, h.off = nil, true
	h.mu.Unlock()
	var closing sync.WaitGroup
	for _, writer := range writers {
		closing.Go(func() { writer.Close(timeout) })
	}
	closing.Wait()
}

// WasDelivered returns when the call of an envelope was delivered. It returns false if it was not, or if that is not
// known.
func (h *History) WasDelivered(ctx context.Context, e *envelope.Envelope, now time.Time) (at time.Time, ok bool) {
	k := h.keyOf(e, now)
	var row entryRow
	h.ask(ctx, now, func(ctx context.Context) (err error) {
		row, _, err = rows.Get[entryRow](ctx, h.tables.Table(k.table), k.partition(), k.row())
		return err
	})
	return row.EndedAt, row.Reason == Delivered
}

// NewEntry returns the entry of an envelope, for the caller to complete with how the call ended.
func (h *History) NewEntry(e *envelope.Envelope, now time.Time) Entry {
	return Entry{
		RequestID: e.RequestID, Organization: e.Tenant.Organization, Environment: e.Tenant.Environment,
		TargetHost: targets.Host(e.Call.Target), PathPattern: fold.Path(e.Call.Target.EscapedPath()),
		CreatedAt: e.CreatedAt, OriginalRequestID: e.OriginalRequestID, TraceID: e.Trace.ID, EndedAt: now,
		key: h.keyOf(e, now),
	}
}

// Acknowledge writes an entry, and returns when the table has it, or has not answered in time.
func (h *History) Acknowledge(ctx context.Context, entry Entry, now time.Time) {
	h.ask(context.WithoutCancel(ctx), now, func(ctx context.Context) error {
		return rows.Put(ctx, h.tables.Table(entry.key.table), rowOf(entry))
	})
	h.recordOriginal(entry) //nolint:contextcheck // Close ends the writer
}

// Record writes an entry in the background.
func (h *History) Record(entry Entry) {
	h.record(entry)
	h.recordOriginal(entry)
}

// Withdraw removes the row that says that the call of an entry has ended with the entry's reason, because it goes on.
// Another end of the call stays.
func (h *History) Withdraw(ctx context.Context, entry Entry) error {
	keys := []key{entry.key}
	if entry.OriginalRequestID != "" {
		keys = append(keys, entry.originalKey())
	}
	for _, k := range keys {
		entry.key = k
		table, written := h.tables.Table(k.table), rowOf(entry)
		row, found, err := rows.Get[entryRow](ctx, table, written.Key.Partition, written.ID)
		if err == nil && found && row.Reason == entry.Reason {
			err = table.Delete(ctx, []storage.Key{row.Key})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// originalKey returns the key of the row for the id that a Nexus callback reports on.
func (e Entry) originalKey() key {
	k, tenant := e.key, envelope.Tenant{Organization: e.Organization, Environment: e.Environment}
	k.subject = subjectOf(tenant, e.OriginalRequestID)
	return k
}

// recordOriginal writes the entry of a Nexus callback, whose id nobody knows, also for the id that it reports on.
func (h *History) recordOriginal(entry Entry) {
	if entry.OriginalRequestID != "" {
		entry.key = entry.originalKey()
		h.record(entry)
	}
}

func (h *History) record(entry Entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.off {
		return
	}
	name := entry.key.table
	writer := h.writers[name]
	if writer == nil {
		bytes := pastBytes // a sender can choose any month of the retention
		if name == tableOf(entry.EndedAt) {
			bytes = presentBytes
		}
		writer = background.New(background.Config{
			Table: h.tables.Table(name), Rows: "ends of calls", Setting: "ASYNC_CALLER_HISTORY",
			Bytes: bytes, Gather: gatherTime, Log: h.log,
		})
		h.writers[name] = writer
	}
	writer.Put(rowOf(entry))
}

// ask makes one request for a call, unless the table is away.
func (h *History) ask(ctx context.Context, now time.Time, request func(context.Context) error) {
	h.mu.Lock()
	off, isAway := h.off, now.Before(h.awayUntil)
	h.mu.Unlock()
	if off {
		return
	}
	err := errAway
	if !isAway {
		ctx, cancel := context.WithTimeout(ctx, AnswerTime)
		defer cancel()
		err = request(ctx)
	}
	if err == nil || ctx.Err() != nil { // the handler stops, which says nothing about the table
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case errors.Is(err, storage.ErrDenied):
		h.turnOff(err)
		return
	case !isAway && !errors.Is(err, storage.ErrRefused): // that a row is refused says nothing about the others
		h.awayUntil = now.Add(AnswerTime + awayTime)
	}
	h.missed++
	if now.Sub(h.reportedAt) >= reportInterval {
		h.log.Warn().Err(err).Int(logs.Messages, h.missed).
			Msg("history was not read or written for calls: the table is slow or away, or has refused their rows, " +
				"and a call may be repeated")
		h.missed, h.reportedAt = 0, now
	}
}

// turnOff ends the history, because the credential has no permission. The caller holds mu.
func (h *History) turnOff(err error) {
	if h.off {
		return
	}
	h.off = true
	h.log.Warn().Err(err).Msg("history is off until a restart: assign the role " + storage.TableRole +
		" to the identity, or set ASYNC_CALLER_HISTORY=off; deliveries do not depend on it")
}

var errAway = errors.New("the table is away")

// details is what a row has in its content.
type details struct {
	Queue     string    `json:"queue"`
	MessageID string    `json:"messageId"`
	Original  string    `json:"original,omitempty"`
	TraceID   string    `json:"traceId"`
	Trail     []Attempt `json:"trail"`
}

// otherSuffix ends the row key of a call that ended without being delivered. If one message of the call is delivered
// and its duplicate expires, both have a row.
const otherSuffix = ".other"

// maxTextOfDetails limits each id in the content of a row. The trail has at most 100 attempts with errors of 100 bytes,
// so that a content has far less than the 64 KiB that a table accepts.
const maxTextOfDetails = 256

func rowOf(e Entry) entryRow {
	id := e.key.row()
	if e.Reason != Delivered {
		id += otherSuffix
	}
	d := details{e.Queue, e.MessageID, e.OriginalRequestID, e.TraceID, slices.Clone(e.Trail)}
	for _, id := range []*string{&d.Queue, &d.MessageID, &d.Original, &d.TraceID} {
		*id = rows.Text(text.Clip(*id, maxTextOfDetails))
	}
	for i := range d.Trail {
		d.Trail[i].Error = rows.Text(d.Trail[i].Error)
	}
	content, _ := strictjson.Line(d) // texts, numbers and times that JSON can write
	return entryRow{storage.Key{Partition: e.key.partition(), ID: id}, e, content}
}

// maxYear is the last year that JSON can write.
const maxYear = 9999

// TrailOf returns the attempts of an envelope's state.
func TrailOf(trail []envelope.Attempt) []Attempt {
	attempts := make([]Attempt, len(trail))
	for i, a := range trail {
		attempts[i] = Attempt{Status: a.Status, Error: a.Error, Took: a.Took, TookMs: logs.Millis(a.Took)}
		at := a.At.UTC()
		if at.Year() >= 0 && at.Year() <= maxYear { // a sender chooses it
			attempts[i].At = at
		}
	}
	return attempts
}

// MaxFound is the largest number of calls and callbacks that [Find] returns: a sender can use an id any number of
// times.
const MaxFound = 100

// Find returns the entries of a request id and of its callback, the newest first, and the number of all. The id can be
// that of the callback.
func Find(
	ctx context.Context, tables storage.Tables, tenant envelope.Tenant, requestID string,
) (found []Entry, all int, err error) {
	names, err := tables.TableNames(ctx, TablePrefix)
	if err != nil {
		return nil, 0, err
	}
	for _, name := range slices.Backward(names) {
		err := listSubject(ctx, tables.Table(name), subjectOf(tenant, envelope.WithoutCallbackSuffix(requestID)),
			func(row entryRow) {
				all++
				found = append(found, row.entry(name))
				if len(found) == 2*MaxFound {
					found = newest(found, MaxFound)
				}
			})
		if err != nil {
			return nil, 0, err
		}
	}
	return newest(found, MaxFound), all, nil
}

// TablesSince returns the names of the tables that can have calls created since a time, in the order of their months.
func TablesSince(ctx context.Context, tables storage.Tables, since time.Time) ([]string, error) {
	names, err := tables.TableNames(ctx, TablePrefix)
	return slices.DeleteFunc(names, func(name string) bool { return name < tableOf(since) }), err
}

// FindIn returns the entries of a request id, without those of its callback, that one table has of calls created since
// a time, at most a number of them.
func FindIn(
	ctx context.Context, table storage.Table, tenant envelope.Tenant, requestID string, since time.Time, most int,
) (found []Entry, err error) {
	subject := subjectOf(tenant, envelope.WithoutCallbackSuffix(requestID))
	err = listSubject(ctx, table, subject, func(row entryRow) {
		if row.RequestID == requestID && !row.CreatedAt.Before(since) && len(found) < most {
			found = append(found, row.entry(""))
		}
	})
	return found, err
}

// newest sorts entries, and returns the first ones.
func newest(entries []Entry, limit int) []Entry {
	slices.SortStableFunc(entries, func(a, b Entry) int { return b.EndedAt.Compare(a.EndedAt) })
	return entries[:min(len(entries), limit)]
}

// entry returns the entry of a row of a table.
func (r entryRow) entry(table string) Entry {
	var d details
	_ = json.Unmarshal(r.Content, &d) // what cannot be read is missing
	for i := range d.Trail {
		d.Trail[i].Took = time.Duration(d.Trail[i].TookMs) * time.Millisecond
	}
	e := r.Entry
	e.Queue, e.MessageID, e.OriginalRequestID, e.TraceID, e.Trail = d.Queue, d.MessageID, d.Original, d.TraceID, d.Trail
	e.Table, e.Partition, e.Row = table, r.Key.Partition, r.ID
	return e
}

const (
	// dropInterval is how often tables are dropped at most.
	dropInterval = time.Hour
	// retentions is the partition of a table with a row for each app that keeps it.
	retentions = "retention"
)

// retentionRow says until when an app keeps a table.
type retentionRow struct {
	storage.Key

	App   string    `row:"app"`
	Until time.Time `row:"until"`
}

// LongestRetention is the longest retention that the settings allow.
const LongestRetention = 10 * 365 * 24 * time.Hour

// DropOld drops the tables whose last call is older than the retention, unless another app of the account keeps them
// longer, and returns their number. It does so once an hour. In the tables that this app keeps, it says how long.
func (h *History) DropOld(ctx context.Context, app string, now time.Time) (dropped int, err error) {
	h.mu.Lock()
	skip := h.off || now.Sub(h.droppedAt) < dropInterval
	h.mu.Unlock()
	if skip {
		return 0, nil
	}
	names, err := h.tables.TableNames(ctx, TablePrefix)
	for _, name := range names {
		begin, malformed := time.Parse(month, strings.TrimPrefix(name, TablePrefix))
		if malformed != nil {
			continue
		}
		isDropped, tableErr := h.keepOrDrop(ctx, name, begin.AddDate(0, 1, 0), app, now)
		err = errors.Join(err, tableErr)
		if isDropped {
			dropped++
		}
	}
	isDenied := errors.Is(err, storage.ErrDenied)
	if err != nil && !isDenied {
		return dropped, fmt.Errorf("drop tables of the history: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.droppedAt = now
	if isDenied { // reading and writing rows needs another permission
		h.log.Warn().Err(err).Msg("old tables of the history are not dropped: assign the role " + storage.TableRole +
			" to the identity, or drop them by hand; reading and writing the history goes on")
	}
	return dropped, nil
}

// keepOrDrop handles one table, whose month has an end.
func (h *History) keepOrDrop(
	ctx context.Context, name string, end time.Time, app string, now time.Time,
) (dropped bool, err error) {
	table := h.tables.Table(name)
	id := sha256.Sum256([]byte(app)) // a key cannot have every character
	key := storage.Key{Partition: retentions, ID: hex.EncodeToString(id[:16])}
	own := retentionRow{key, app, end.Add(h.retention)}
	if own.Until.After(now) {
		return false, rows.Put(ctx, table, own)
	}
	isKept := false
	err = rows.List(ctx, table, storage.Query{Partition: retentions}, func(row retentionRow) error {
		isPossible := !row.Until.After(end.Add(LongestRetention)) // anyone who writes to the table can write a row
		isKept = isKept || row.ID != own.ID && row.Until.After(now) && isPossible
		return nil
	})
	if err != nil || isKept {
		return false, err
	}
	err = h.tables.Drop(ctx, name)
	return err == nil, err
}
