//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/tools/azurite"
	"asynccaller/handler/tools/faults/judge"
	"asynccaller/handler/tools/faults/schedule"
	"asynccaller/handler/tools/storageproxy"
)

// tableState is the state of the table service of a system. No result may depend on it.
type tableState string

const (
	healthy  tableState = "healthy"
	stopped  tableState = "stopped"  // connections are refused
	slow     tableState = "slow"     // every request takes 5 s longer
	refusing tableState = "refusing" // every request is answered as if the identity had no permission
)

var tableStates = []tableState{healthy, stopped, slow, refusing}

// parseTable returns the states that the flag -table names.
func parseTable(text string) ([]tableState, error) {
	switch t := tableState(text); {
	case text == "all":
		return tableStates, nil
	case slices.Contains(tableStates, t):
		return []tableState{t}, nil
	}
	return nil, fmt.Errorf("want all or one of %v", tableStates)
}

// nobody is a table endpoint at which nothing listens.
const nobody = "http://127.0.0.1:1/" + azurite.AccountName

// tableEndpoint is the table service as the handler sees it.
func (s *system) tableEndpoint() string {
	if s.table == stopped {
		return nobody
	}
	return s.tableProxy.Through(s.storage.TableEndpoint)
}

// tableWatcher makes the table service slow, or refuses its requests.
type tableWatcher struct{ *system }

// Before implements [storageproxy.Watcher].
func (s tableWatcher) Before(storageproxy.Request) storageproxy.Order {
	s.result.useTable(s.table, tableUse{requests: 1})
	if order, out := s.outage.active(); out {
		return order
	}
	switch s.table {
	case slow:
		return storageproxy.Order{Hold: 5 * time.Second}
	case refusing:
		return storageproxy.Order{Status: http.StatusForbidden, Code: "AuthorizationPermissionMismatch"}
	case healthy, stopped:
	}
	return storageproxy.Order{}
}

// entities finds the rows in the body of a request, a line each.
var entities = regexp.MustCompile(`(?m)^\{.*\}`)

// delivered returns the ids of the calls of which a request writes to the history that they were delivered.
func delivered(body string) (ids []string) {
	for _, text := range entities.FindAllString(body, -1) {
		var row struct {
			Reason, RequestID string
			Content           []byte
		}
		if json.Unmarshal([]byte(text), &row) != nil || row.Reason != history.Delivered {
			continue
		}
		var details struct{ Original string }
		_ = json.Unmarshal(row.Content, &details) // another row of this table has no such content
		if details.Original != "" {               // a Nexus callback, whose id is a GUID
			row.RequestID = details.Original + schedule.CallbackSuffix
		}
		ids = append(ids, row.RequestID)
	}
	return ids
}

// After implements [storageproxy.Watcher].
func (s tableWatcher) After(r storageproxy.Request, a storageproxy.Answer) storageproxy.Order {
	// A slow table does not answer a handler that asks for the row, which then makes the call.
	if a.Done() && s.table == healthy {
		for _, id := range delivered(r.Text) {
			s.note(judge.Event{Kind: judge.Kept, ID: id})
		}
	}
	return storageproxy.Order{Reset: a.Status == 0}
}

// tableUse says how much a table was used.
type tableUse struct {
	// delays counts the messages that were rescheduled by 30 s or more, requests those that reached the table
	// service, and lost the changes that handlers could not record, unless they were killed before they said so.
	// Lived counts the handlers that rescheduled a message like that and lived for recordTime after it.
	delays, requests, lost, lived int
}

// recordTime is how long a handler lives, at least, until a delay shows: as a request, which a handler sends
// within seconds, or in its log, where it reports once a minute what it could not record.
var recordTime = map[tableState]time.Duration{
	healthy: 15 * time.Second, slow: 15 * time.Second, refusing: 15 * time.Second, stopped: 90 * time.Second,
}

// recorders are the handlers, by process id, that have rescheduled a message by 30 s or more, and when they first did.
type recorders struct {
	mu    sync.Mutex
	first map[int]time.Time
}

// delayed notes that a handler has rescheduled a message.
func (r *recorders) delayed(handler int, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first == nil {
		r.first = map[int]time.Time{}
	}
	if _, known := r.first[handler]; !known {
		r.first[handler] = now
	}
}

// lived reports, once for each handler, that one that is alive has lived for so long since its first delay.
func (r *recorders) lived(handler int, now time.Time, atLeast time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	first, known := r.first[handler]
	lived := known && !first.IsZero() && now.Sub(first) > atLeast
	if lived {
		r.first[handler] = time.Time{}
	}
	return lived
}

// noteDelay counts a write of a handler for [result.checkTables].
func (s *system) noteDelay(delay time.Duration) {
	handler, alive := s.processes.current()
	isDelay := delay >= decision.MinRecordedDelay && delay <= minHeld
	var use tableUse
	if isDelay {
		use.delays = 1
	}
	if isDelay && alive {
		s.recorders.delayed(handler, time.Now())
	}
	if alive && s.recorders.lived(handler, time.Now(), recordTime[s.table]) {
		use.lived = 1
	}
	s.result.useTable(s.table, use)
}

// lostChanges reads how many changes handlers could not record from their log.
func lostChanges(log []byte) (sum int) {
	for line := range bytes.Lines(log) {
		var fields struct {
			Message  string
			Messages int
		}
		if json.Unmarshal(line, &fields) == nil &&
			strings.HasPrefix(fields.Message, "calls that wait were not recorded") {
			sum += fields.Messages
		}
	}
	return sum
}

// tableResult is the part of a result that belongs to a state of the table service.
type tableResult struct {
	tableUse

	schedules int
	verdict   judge.Verdict
}

// ofTable returns the part of a state. The caller holds the lock.
func (r *result) ofTable(t tableState) *tableResult {
	if r.tables == nil {
		r.tables = map[tableState]*tableResult{}
	}
	if r.tables[t] == nil {
		r.tables[t] = &tableResult{}
	}
	return r.tables[t]
}

// useTable adds to the use of a table.
func (r *result) useTable(t tableState, u tableUse) {
	r.mu.Lock()
	defer r.mu.Unlock()
	part := r.ofTable(t)
	part.delays += u.delays
	part.requests += u.requests
	part.lost += u.lost
	part.lived += u.lived
}

// checkTables checks that messages were rescheduled by 30 s or more, and that the handlers tried to record them:
// otherwise the state of the table did not matter. Handlers that were all killed before they could show it prove
// nothing.
func (r *result) checkTables() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delays := 0
	var err error
	for t, part := range r.tables {
		delays += part.delays
		if part.lived > 0 && part.requests == 0 && part.lost == 0 {
			err = errors.Join(err, fmt.Errorf("table %s: %d delays of 30 s or more, and no sign of an attempt "+
				"to record one", t, part.delays))
		}
	}
	if delays == 0 {
		err = errors.New("no message was rescheduled by 30 s or more, so that no table was used")
	}
	return err
}

func (r *result) printTables(out io.Writer) {
	for _, t := range tableStates {
		if part := r.tables[t]; part != nil && part.delays > 0 {
			fmt.Fprintf(out, "table       %s: %d schedules, %d messages, %d lost, %d unexplained, %s of calls "+
				"repeated; %d delays to record, %d requests, %d changes not recorded\n",
				t, part.schedules, part.verdict.Messages, len(part.verdict.Lost), len(part.verdict.Unexplained),
				percent(part.verdict.Calls),
				part.delays, part.requests, part.lost)
		}
	}
}
