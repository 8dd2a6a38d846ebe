package azure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/storagetest"
)

func TestTableConformance(t *testing.T) {
	t.Parallel()
	conn := mustConnect(t)
	storagetest.RunTable(t, func(t *testing.T) storage.Table {
		t.Helper()
		table, err := OpenTable(conn, storage.ScheduledTable)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(table.Close)
		// A missing table needs no time to vanish on Azurite.
		if _, err := table.service.DeleteTable(t.Context(), table.name, nil); err != nil && !isMissing(err) {
			t.Fatal(err)
		}
		return table
	})
}

func TestTables(t *testing.T) {
	tables, err := OpenTables(mustConnect(t))
	if err != nil {
		t.Fatal(err)
	}
	defer tables.Close()
	storagetest.RunTables(t, tables, "history")
}

// tableServer returns the table of a service that answers like handle, and the number of its requests.
func tableServer(t *testing.T, handle http.HandlerFunc) (*Table, *atomic.Int32) {
	t.Helper()
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		handle(w, r)
	}))
	t.Cleanup(server.Close)
	connection := Connection{TableEndpoint: server.URL + "/account", SAS: "sv=2022-11-02&sig=canarySignature"}
	table, err := OpenTable(connection, storage.ScheduledTable)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(table.Close)
	return table, &requests
}

func answering(status int, code, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("x-ms-error-code", code)
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

// TestTableErrors: errors say what failed and what kind it is, make no second try, and show no secret.
func TestTableErrors(t *testing.T) {
	const canary = "canary"
	entity := storage.Entity{Key: storage.Key{Partition: "main", ID: "1"}, Values: map[string]any{
		"requestId": canary, "content": []byte(canary),
	}}
	for name, test := range map[string]struct {
		handle http.HandlerFunc
		kind   error
		want   string
	}{
		"denied": {
			answering(403, "AuthorizationPermissionMismatch", "{}"), storage.ErrDenied,
			"403 AuthorizationPermissionMismatch",
		},
		"refused":     {answering(400, "InvalidInput", "{}"), storage.ErrRefused, "400 InvalidInput"},
		"busy":        {answering(503, "ServerBusy", "{}"), nil, "503 ServerBusy"},
		"disconnects": {func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }, nil, "EOF"},
		"hangs": {
			func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, context.DeadlineExceeded,
			"deadline exceeded",
		},
	} {
		t.Run(name, func(t *testing.T) {
			table, requests := tableServer(t, test.handle)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			err := table.Put(ctx, []storage.Entity{entity})
			if err == nil || !strings.Contains(err.Error(), "write table asynccallerscheduled: ") ||
				!strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), canary) {
				t.Errorf("error %v", err)
			}
			if test.kind != nil && !errors.Is(err, test.kind) || test.kind == nil &&
				errors.Is(err, storage.ErrRefused) {
				t.Errorf("the kind of error %v is not %v", err, test.kind)
			}
			if n := requests.Load(); n != 1 {
				t.Errorf("%d requests, want 1", n)
			}
		})
	}
}

// TestRefusedRows: an entity that is refused prevents those that are put with it, and the error says so.
func TestRefusedRows(t *testing.T) {
	table, err := OpenTable(mustConnect(t), "refusedrows")
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	entity := func(id string, length int) storage.Entity {
		key := storage.Key{Partition: "main", ID: id}
		return storage.Entity{Key: key, Values: map[string]any{"content": make([]byte, length)}}
	}
	good, bad := entity("good", storage.MaxPropertyBytes), entity("bad", storage.MaxPropertyBytes+1)
	for name, entities := range map[string][]storage.Entity{
		"alone": {bad}, "first": {bad, good}, "last": {good, bad}, "key": {entity("a/b", 1), good},
		"long_key": {entity(strings.Repeat("x", 2_000), 1), good},
	} {
		err := table.Put(t.Context(), entities)
		if !errors.Is(err, storage.ErrRefused) || errors.Is(err, storage.ErrDenied) {
			t.Errorf("%s: error %v", name, err)
		}
		if _, found, err := table.Get(t.Context(), "main", "good"); found || err != nil {
			t.Errorf("%s: written %t, %v", name, found, err)
		}
	}
	if err := table.Put(t.Context(), []storage.Entity{good}); err != nil {
		t.Error(err)
	}
}

func TestNoTableEndpoint(t *testing.T) {
	_, err := OpenTable(Connection{Endpoint: "http://127.0.0.1:1/a", SAS: "sig=x"}, storage.ScheduledTable)
	if !errors.Is(err, ErrNoTables) {
		t.Errorf("error %v", err)
	}
}

// TestTableTransactions: 100 entities of a partition are one request.
func TestTableTransactions(t *testing.T) {
	const accepted = "--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\nContent-Type: " +
		"application/http\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n\r\n--c--\r\n--b--\r\n"
	table, requests := tableServer(t, answering(202, "", accepted))
	entities, keys := make([]storage.Entity, 100), make([]storage.Key, 100)
	for i := range entities {
		keys[i] = storage.Key{Partition: "main", ID: fmt.Sprint(i)}
		entities[i].Key = keys[i]
	}
	for operation, run := range map[string]func() error{
		"put":    func() error { return table.Put(t.Context(), entities) },
		"delete": func() error { return table.Delete(t.Context(), keys) },
	} {
		requests.Store(0)
		if err := run(); err != nil || requests.Load() != 1 {
			t.Errorf("%s: %d requests, %v", operation, requests.Load(), err)
		}
	}
}
