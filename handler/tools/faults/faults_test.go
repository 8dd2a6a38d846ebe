//go:build unix

package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"syscall"
	"testing"
	"time"

	"asynccaller/handler/internal/program/demo/target"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/tools/azurite"
	"asynccaller/handler/tools/faults/schedule"
	"asynccaller/handler/tools/storageproxy"
)

// TestContent checks that messages are sent as planned and are recognized again.
func TestContent(t *testing.T) {
	s := &system{}
	var err error
	s.target, err = target.Serve(t.Context(), s.targetHandler())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.target.Close)
	s.script.reset()
	now := time.Now()
	for number := range 50 {
		for _, m := range schedule.New(1, number).Messages {
			content := s.content(m, now)
			s.script.add(m, content)
			if id := s.script.idOf(storage.Base64.Encode(content)); id != m.ID {
				t.Errorf("%+v is recognized as %q", m, id)
			}
			e, err := envelope.Parse(content)
			if (err != nil) != (m.Outcome == schedule.Malformed) {
				t.Errorf("%+v: %v", m, err)
			}
			if err != nil {
				continue
			}
			if (e.Format() == envelope.FormatNexus) != m.Nexus || (e.Callback != nil) != (m.Callbacks != nil) ||
				e.Deadline.Before(now) {
				t.Errorf("%+v is sent as %s", m, content)
			}
		}
	}
}

// TestTableStates checks what the handler's table client meets in each state of the table service.
func TestTableStates(t *testing.T) {
	upstream, err := target.Serve(t.Context(),
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("x-ms-request-id", "1")
			w.Header().Set("x-ms-version", "2019-02-02")
			w.WriteHeader(http.StatusNoContent)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(upstream.Close)
	endpoint := "http://" + upstream.Addr + "/" + azurite.AccountName
	for state, want := range map[tableState]struct {
		err      error
		requests int
	}{
		healthy: {nil, 1}, stopped: {syscall.ECONNREFUSED, 0}, slow: {context.DeadlineExceeded, 1},
		refusing: {storage.ErrDenied, 1},
	} {
		r := &result{messages: io.Discard}
		s := &system{setup: setup{table: state}, result: r, storage: &azurite.Server{TableEndpoint: endpoint}}
		s.tableProxy, err = storageproxy.Open(t.Context(), endpoint, tableWatcher{s})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.tableProxy.Close)
		table := mustOpenTable(t, s.tableEndpoint())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := table.Delete(ctx, []storage.Key{{Partition: "async-caller", ID: "test"}})
		cancel()
		r.mu.Lock() // the proxy may still hold a request
		requests := r.ofTable(state).requests
		r.mu.Unlock()
		if !errors.Is(err, want.err) || requests != want.requests {
			t.Errorf("table %s: %v after %d requests; want %v and %d requests", state, err, requests, want.err,
				want.requests)
		}
	}
}

func mustOpenTable(t *testing.T, endpoint string) *azure.Table {
	t.Helper()
	table, err := azure.OpenTable(azure.Connection{
		TableEndpoint: endpoint, AccountName: azurite.AccountName,
		AccountKey: azurite.AccountKey,
	}, storage.ScheduledTable)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(table.Close)
	return table
}
