package azure

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/tools/storageproxy"
)

const webPage = "<!DOCTYPE html><html><head><title>canary</title></head><body>Sign in<br></body></html>"

// foreign are answers that storage does not give. The request did not reach it.
var foreign = map[string]storageproxy.Order{
	"html_200":       {Status: 200, Body: webPage},
	"empty_200":      {Status: 200},
	"empty_204":      {Status: 204},
	"redirect_302":   {Status: 302, Header: http.Header{"Location": {"http://127.0.0.1:1/elsewhere"}}, Body: webPage},
	"login_401":      {Status: 401, Header: http.Header{"Www-Authenticate": {`Basic realm="canary"`}}},
	"forbidden_403":  {Status: 403, Body: webPage},
	"not_found_404":  {Status: 404, Body: webPage},
	"proxy_407":      {Status: 407, Header: http.Header{"Proxy-Authenticate": {"Basic"}}},
	"gateway_502":    {Status: 502, Body: webPage},
	"busy_503":       {Status: 503},
	"xhtml_200":      {Status: 200, Body: "<html><body/></html>"},
	"json_200":       {Status: 200, Body: `{"value":[]}`},
	"json_error_404": {Status: 404, Body: `{"error":{"code":"QueueNotFound","message":"canary"}}`},
	"blobs_200":      {Status: 200, Body: "<EnumerationResults><Containers/><NextMarker/></EnumerationResults>"},
	"blob_404":       {Status: 404, Code: "ContainerNotFound", Body: "<Error><Code>ContainerNotFound</Code></Error>"},
	"long_200":       {Status: 200, Body: strings.Repeat("x", 1<<20)},
	"etag_204":       {Status: 204, Header: http.Header{"Etag": {`"33a64df5"`}}},
	"version_204":    {Status: 204, Header: http.Header{"Etag": {`"33a64df5"`}, "X-Ms-Version": {"2025-01-05"}}},
	"request_id_201": {Status: 201, Header: http.Header{"X-Ms-Request-Id": {"1"}}},
	"file_404": {
		Status: 404, Code: "ResourceNotFound", Body: "<Error><Code>ResourceNotFound</Code></Error>",
		Header: http.Header{"Server": {"Windows-Azure-File/1.0 Microsoft-HTTPAPI/2.0"}, "X-Ms-Request-Id": {"1"}},
	},
}

// interference gives the same order for each request, or for each answer.
type interference struct {
	before, after atomic.Pointer[storageproxy.Order]
}

func (i *interference) Before(storageproxy.Request) storageproxy.Order { return value(i.before.Load()) }

func (i *interference) After(storageproxy.Request, storageproxy.Answer) storageproxy.Order {
	return value(i.after.Load())
}

// mustBeForeign checks the error of an operation that another server has answered.
func mustBeForeign(t *testing.T, operation string, err error) {
	t.Helper()
	if !errors.Is(err, storage.ErrForeign) {
		t.Errorf("%s: error %v, want that another server has answered", operation, err)
		return
	}
	for _, kind := range kinds {
		if errors.Is(err, kind) {
			t.Errorf("%s: error %q is %q", operation, err, kind)
		}
	}
	mustHideSecrets(t, err)
}

// mustProxy starts a proxy before one endpoint of an Azurite, and returns the connection that leads through it and the
// one that does not.
func mustProxy(t *testing.T, endpoint func(*Connection) *string) (conn, direct Connection, watcher *interference) {
	t.Helper()
	direct = mustConnect(t)
	watcher, conn = &interference{}, direct
	proxy, err := storageproxy.Open(t.Context(), *endpoint(&direct), watcher)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	*endpoint(&conn) = proxy.Through(*endpoint(&direct))
	return conn, direct, watcher
}

// queueOperations are those of a queue that has the message.
func queueOperations(s *Queues, name string, m storage.Message) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"create": func(ctx context.Context) error { return s.Create(ctx, name+"-new") },
		"put": func(ctx context.Context) error {
			_, err := s.Put(ctx, name, storage.Item{Text: canaryText})
			return err
		},
		"update": func(ctx context.Context) error {
			_, err := s.Update(ctx, name, m.ID, m.PopReceipt, canaryText, time.Hour)
			return err
		},
		"delete": func(ctx context.Context) error { return s.Delete(ctx, name, m.ID, m.PopReceipt) },
		"receive": func(ctx context.Context) error {
			_, err := s.Receive(ctx, name, 1, time.Second)
			return err
		},
		"peek": func(ctx context.Context) error {
			_, err := s.Peek(ctx, name, 1)
			return err
		},
		"count": func(ctx context.Context) error {
			_, err := s.Count(ctx, name)
			return err
		},
		"names": func(ctx context.Context) error {
			_, err := s.Names(ctx, "")
			return err
		},
	}
}

// TestForeignAnswersToQueues: what another server answers in the place of Queue Storage is a temporary error, and never
// a result, for each operation. Storage's own answers stay results.
func TestForeignAnswersToQueues(t *testing.T) {
	conn, direct, watcher := mustProxy(t, func(c *Connection) *string { return &c.Endpoint })
	through, account := mustOpen(t, conn), mustOpen(t, direct)
	const name = "async-caller"
	if err := account.Create(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	m, err := account.Put(t.Context(), name, storage.Item{Text: "text", Delay: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := account.Put(t.Context(), name, storage.Item{Text: "text"}); err != nil {
		t.Fatal(err)
	}
	for kind, order := range foreign {
		t.Run(kind, func(t *testing.T) {
			watcher.before.Store(&order)
			defer watcher.before.Store(nil)
			for operation, run := range queueOperations(through, name, m) {
				mustBeForeign(t, operation, run(t.Context()))
			}
		})
	}
	t.Run("no_message_201", func(t *testing.T) {
		watcher.before.Store(&storageproxy.Order{Status: 201, Body: "<QueueMessagesList/>"})
		defer watcher.before.Store(nil)
		mustBeForeign(t, "put", putError(t.Context(), through))
	})
	t.Run("broken_200", func(t *testing.T) {
		watcher.before.Store(&storageproxy.Order{
			Status: 200, Body: "<QueueMessagesList><QueueMessage></QueueMessagesList>",
		})
		defer watcher.before.Store(nil)
		for _, operation := range []string{"receive", "peek"} {
			err := queueOperations(through, name, m)[operation](t.Context())
			if err == nil || errors.Is(err, storage.ErrRefused) || errors.Is(err, storage.ErrNoQueue) {
				t.Errorf("%s: error %v, want a temporary one", operation, err)
			}
		}
	})
	t.Run("cut_off", func(t *testing.T) {
		watcher.after.Store(&storageproxy.Order{Cut: true})
		defer watcher.after.Store(nil)
		for _, operation := range []string{"put", "receive", "peek", "names"} {
			mustBeForeign(t, operation, queueOperations(through, name, m)[operation](t.Context()))
		}
	})
	t.Run("storage", func(t *testing.T) {
		operations := queueOperations(through, name, m)
		for _, operation := range []string{"create", "put", "receive", "peek", "count", "names", "delete"} {
			if err := operations[operation](t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// tableOperations are those of a table that has the entity.
func tableOperations(tables *Tables, name string, key storage.Key) map[string]func(context.Context) error {
	table := tables.table(name)
	entity := func(id string) storage.Entity { return storage.Entity{Key: storage.Key{Partition: "main", ID: id}} }
	known := storage.Entity{Key: key}
	entities, keys := []storage.Entity{known, entity("other")}, []storage.Key{entity(key.ID).Key, entity("other").Key}
	return map[string]func(context.Context) error{
		"put":         func(ctx context.Context) error { return table.Put(ctx, entities[:1]) },
		"transaction": func(ctx context.Context) error { return table.Put(ctx, entities) },
		"insert": func(ctx context.Context) error {
			_, err := table.Replace(ctx, entity("new"))
			return err
		},
		"replace": func(ctx context.Context) error {
			_, err := table.Replace(ctx, known)
			return err
		},
		"delete":     func(ctx context.Context) error { return table.Delete(ctx, keys[:1]) },
		"delete_all": func(ctx context.Context) error { return table.Delete(ctx, keys) },
		"get": func(ctx context.Context) error {
			_, _, err := table.Get(ctx, key.Partition, key.ID)
			return err
		},
		"list": func(ctx context.Context) error {
			return table.List(ctx, storage.Query{}, func(storage.Entity) error { return nil })
		},
		"names": func(ctx context.Context) error {
			_, err := tables.TableNames(ctx, "a")
			return err
		},
		"create": table.create,
		"drop":   func(ctx context.Context) error { return tables.Drop(ctx, name) },
	}
}

// TestForeignAnswersToTables is TestForeignAnswersToQueues for Table Storage.
func TestForeignAnswersToTables(t *testing.T) {
	conn, _, watcher := mustProxy(t, func(c *Connection) *string { return &c.TableEndpoint })
	tables, err := OpenTables(conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tables.Close)
	const name = "asynccallertest"
	key := storage.Key{Partition: "main", ID: "row"}
	key.Version, err = tables.table(name).Replace(t.Context(), storage.Entity{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]storageproxy.Order{
		"no_table_404": {Status: 404, Code: "TableNotFound", Body: webPage},
		"no_row_404":   {Status: 404, Code: "ResourceNotFound", Body: "<Error><Code>ResourceNotFound</Code></Error>"},
		"no_parts_202": {Status: 202, Body: "--b\r\n\r\n--b--\r\n"},
		"dash_202":     {Status: 202, Body: "-"},
		"messages_200": {Status: 200, Body: "<QueueMessagesList/>"},
		"null_200":     {Status: 200, Body: "null"},
		"metadata_200": {Status: 200, Body: `{"odata.metadata":"x"}`},
		"json_404":     {Status: 404, Body: `{"odata.error":{"code":"TableNotFound"}}`},
	}
	maps.Copy(kinds, foreign)
	for kind, order := range kinds {
		t.Run(kind, func(t *testing.T) {
			watcher.before.Store(&order)
			defer watcher.before.Store(nil)
			for operation, run := range tableOperations(tables, name, key) {
				err := run(t.Context())
				mustBeForeign(t, operation, err)
				if err != nil && !strings.Contains(err.Error(), "the answer is not Table Storage's") {
					t.Errorf("error %q does not name the service", err)
				}
			}
		})
	}
	t.Run("blob_204", func(t *testing.T) {
		watcher.before.Store(&storageproxy.Order{Status: 204, Header: http.Header{
			"Etag": {`"0x8D4BCC2E4835CD0"`}, "X-Ms-Version": {"2025-01-05"}, "X-Ms-Request-Id": {"1"},
		}})
		defer watcher.before.Store(nil)
		for _, operation := range []string{"put", "insert", "replace"} {
			mustBeForeign(t, operation, tableOperations(tables, name, key)[operation](t.Context()))
		}
	})
	t.Run("cut_off", func(t *testing.T) {
		watcher.after.Store(&storageproxy.Order{Cut: true})
		defer watcher.after.Store(nil)
		for _, operation := range []string{"transaction", "get", "list", "names"} {
			mustBeForeign(t, operation, tableOperations(tables, name, key)[operation](t.Context()))
		}
	})
	t.Run("storage", func(t *testing.T) {
		operations := tableOperations(tables, name, key)
		for _, operation := range []string{
			"transaction", "put", "insert", "replace", "get", "list", "names", "create", "delete", "delete_all", "drop",
		} {
			if err := operations[operation](t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestEndpointOfAnotherService: an endpoint that leads to another service of the account is named as such, for each
// operation.
func TestEndpointOfAnotherService(t *testing.T) {
	conn := mustConnect(t)
	m := storage.Message{ID: "6f1bbb3e-8a0c-4a5c-a7c6-2a4b5b1f0f57", PopReceipt: "canary-receipt"}
	for service, endpoint := range map[string]string{"blobs": conn.BlobEndpoint, "tables": conn.TableEndpoint} {
		t.Run("queues_at_"+service, func(t *testing.T) {
			wrong := conn
			wrong.Endpoint = endpoint
			for operation, run := range queueOperations(mustOpen(t, wrong), "async-caller", m) {
				mustBeForeign(t, operation, run(t.Context()))
			}
			if _, err := Reach(t.Context(), endpoint, apiVersion); !errors.Is(err, storage.ErrForeign) {
				t.Errorf("Reach: error %v", err)
			}
		})
	}
	for service, endpoint := range map[string]string{"blobs": conn.BlobEndpoint, "queues": conn.Endpoint} {
		t.Run("tables_at_"+service, func(t *testing.T) {
			wrong := conn
			wrong.TableEndpoint = endpoint
			tables, err := OpenTables(wrong)
			if err != nil {
				t.Fatal(err)
			}
			defer tables.Close()
			key := storage.Key{Partition: "main", ID: "r", Version: "v"}
			for operation, run := range tableOperations(tables, "asynccallertest", key) {
				mustBeForeign(t, operation, run(t.Context()))
			}
		})
	}
	if _, err := Reach(t.Context(), conn.Endpoint, apiVersion); err != nil {
		t.Error(err)
	}
	wrong := conn
	wrong.BlobEndpoint = conn.TableEndpoint
	if err := ProbeBlobs(t.Context(), wrong); !errors.Is(err, storage.ErrForeign) {
		t.Errorf("blobs at tables: error %v", err)
	}
}

// TestReachBehindAProxy: a proxy that removes the name of the service does not make its answer another server's.
func TestReachBehindAProxy(t *testing.T) {
	upstream, err := url.Parse(mustConnect(t).Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	address := startServer(t, (&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = upstream.Scheme, upstream.Host },
		ModifyResponse: func(r *http.Response) error {
			r.Header.Del("Server")
			return nil
		},
	}).ServeHTTP)
	for _, end := range []string{"", "/"} {
		if _, err := Reach(t.Context(), address+upstream.Path+end, apiVersion); err != nil {
			t.Error(err)
		}
	}
}

// messages returns the answer to a receive of messages with texts of a size.
func messages(count, size int) []byte {
	const message = "<QueueMessage><MessageId>6f1bbb3e-8a0c-4a5c-a7c6-2a4b5b1f0f57</MessageId>" +
		"<InsertionTime>Fri, 27 Nov 2026 12:00:00 GMT</InsertionTime>" +
		"<ExpirationTime>Fri, 04 Dec 2026 12:00:00 GMT</ExpirationTime><PopReceipt>AgAAAAMAAAAAAAAA</PopReceipt>" +
		"<TimeNextVisible>Fri, 27 Nov 2026 12:10:00 GMT</TimeNextVisible><DequeueCount>1</DequeueCount><MessageText>"
	text := message + strings.Repeat("A", size) + "</MessageText></QueueMessage>"
	return []byte("\ufeff<?xml version=\"1.0\" encoding=\"utf-8\"?><QueueMessagesList>" +
		strings.Repeat(text, count) + "</QueueMessagesList>")
}

// TestLists: a list of messages has the root element and its end; whatever else is no list, also no empty one.
func TestLists(t *testing.T) {
	request := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/account/queue/messages"}}
	gave := func(body string) bool {
		answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"X-Ms-Request-Id": {"1"}}}
		return queueService.gave(request, answer, []byte(body))
	}
	for _, list := range []string{
		"<QueueMessagesList/>", "<QueueMessagesList />", "<QueueMessagesList></QueueMessagesList>",
		"\ufeff<?xml version=\"1.0\" encoding=\"utf-8\"?><QueueMessagesList />",
		"<?xml version=\"1.0\" encoding=\"utf-8\" standalone=\"yes\"?>\n<QueueMessagesList>\n</QueueMessagesList>\r\n",
		"<!-- c --><QueueMessagesList/>", string(messages(2, 10)),
	} {
		if !gave(list) {
			t.Errorf("no list: %q", list)
		}
	}
	whole := string(messages(2, 10))
	for n := range len(whole) {
		if gave(whole[:n]) {
			t.Errorf("a list: %q", whole[:n])
		}
	}
	for _, other := range []string{
		webPage, "<html/>", "<QueueMessagesList", "<QueueMessagesList>", "<QueueMessagesList><a/>",
		"</QueueMessagesList>", "<html><QueueMessagesList/></html>", "<QueueMessagesList/><html/>",
		"<!-- <QueueMessagesList></QueueMessagesList>", `{"a":"</QueueMessagesList>"}`, "<QueueMessagesList2/>",
		"<QueueMessagesList></QueueMessagesList><!--",
	} {
		if gave(other) {
			t.Errorf("a list: %q", other)
		}
	}
}

// TestReachFollowsNoRedirect: the address in a redirect is not asked, whatever it would answer.
func TestReachFollowsNoRedirect(t *testing.T) {
	elsewhere := startServer(t, func(w http.ResponseWriter, _ *http.Request) {
		t.Error("a redirect was followed")
		w.Header().Set("x-ms-request-id", "1")
		w.WriteHeader(http.StatusBadRequest)
	})
	for _, status := range []int{302, 307} {
		url := startServer(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere, status)
		})
		if _, err := Reach(t.Context(), url, apiVersion); !errors.Is(err, storage.ErrForeign) {
			t.Errorf("%d: error %v", status, err)
		}
	}
}

// TestTableBeingDeleted: rows wait until storage has deleted the table, and a table that is being deleted is dropped.
func TestTableBeingDeleted(t *testing.T) {
	table, _ := tableServer(t, answering(409, "TableBeingDeleted", "{}"))
	err := table.Put(t.Context(), []storage.Entity{{Key: storage.Key{Partition: "main", ID: "1"}}})
	if err == nil || errors.Is(err, storage.ErrRefused) ||
		!strings.HasSuffix(err.Error(), "409 TableBeingDeleted: storage is deleting the table; try again in a minute") {
		t.Errorf("error %v", err)
	}
	tables := &Tables{table.service, table.clock, table.httpClient}
	if err := tables.Drop(t.Context(), table.name); err != nil {
		t.Errorf("drop: %v", err)
	}
}
