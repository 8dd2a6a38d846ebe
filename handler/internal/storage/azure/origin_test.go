package azure

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/storage"
)

const webPage = "<!DOCTYPE html><html><head><title>canary</title></head><body>Sign in<br></body></html>"

// reply is an answer to every request.
type reply struct {
	status int
	body   string
	header map[string]string
}

func (r reply) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	for name, value := range r.header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(r.status)
	_, _ = io.WriteString(w, r.body)
}

// The headers of another service of Azure, and of a file service.
var (
	otherService = map[string]string{"Etag": `"33a64df5"`, "X-Ms-Request-Id": "1"}
	fileService  = map[string]string{
		"Server": "Windows-Azure-File/1.0 Microsoft-HTTPAPI/2.0", "X-Ms-Request-Id": "1",
		"X-Ms-Error-Code": "ResourceNotFound",
	}
)

// foreign are answers that storage does not give. The request did not reach it.
var foreign = map[string]reply{
	"html_200":       {200, webPage, nil},
	"long_200":       {200, strings.Repeat("x", 1<<20), nil},
	"empty_200":      {200, "", nil},
	"xhtml_200":      {200, "<html><body/></html>", nil},
	"json_200":       {200, `{"value":[]}`, nil},
	"blobs_200":      {200, "<EnumerationResults><Containers/><NextMarker/></EnumerationResults>", nil},
	"request_id_201": {201, "", otherService},
	"empty_204":      {204, "", nil},
	"etag_204":       {204, "", map[string]string{"Etag": `"33a64df5"`, "X-Ms-Version": "2025-01-05"}},
	"redirect_302":   {302, webPage, map[string]string{"Location": "http://127.0.0.1:1/elsewhere"}},
	"login_401":      {401, "", map[string]string{"Www-Authenticate": `Basic realm="canary"`}},
	"forbidden_403":  {403, webPage, nil},
	"not_found_404":  {404, webPage, nil},
	"json_error_404": {404, `{"error":{"code":"QueueNotFound","message":"canary"}}`, nil},
	"blob_404":       {404, "<Error/>", map[string]string{"X-Ms-Error-Code": "ContainerNotFound"}},
	"file_404":       {404, "<Error><Code>ResourceNotFound</Code></Error>", fileService},
	"proxy_407":      {407, "", map[string]string{"Proxy-Authenticate": "Basic"}},
	"busy_503":       {503, "", nil},
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
// a result, for each operation. The conformance tests hold that storage's own answers stay results.
func TestForeignAnswersToQueues(t *testing.T) {
	operations := func(r reply) map[string]func(context.Context) error {
		m := storage.Message{ID: "6f1bbb3e-8a0c-4a5c-a7c6-2a4b5b1f0f57", PopReceipt: "canary-receipt"}
		return queueOperations(mustOpen(t, connections(startServer(t, r.ServeHTTP))["key"]), "async-caller", m)
	}
	for kind, r := range foreign {
		t.Run(kind, func(t *testing.T) {
			for operation, run := range operations(r) {
				mustBeForeign(t, operation, run(t.Context()))
			}
		})
	}
	const noReceipt = "<QueueMessagesList><QueueMessage><MessageId>1</MessageId></QueueMessage></QueueMessagesList>"
	for _, body := range []string{"<QueueMessagesList/>", noReceipt} {
		mustBeForeign(t, "put of "+body, operations(reply{201, body, nil})["put"](t.Context()))
	}
	broken := operations(reply{200, "<QueueMessagesList><QueueMessage></QueueMessagesList>", nil})
	for _, operation := range []string{"receive", "peek"} {
		err := broken[operation](t.Context())
		if err == nil || errors.Is(err, storage.ErrRefused) || errors.Is(err, storage.ErrNoQueue) {
			t.Errorf("%s: error %v, want a temporary one", operation, err)
		}
	}
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
	operations := func(r reply) map[string]func(context.Context) error {
		tables, err := OpenTables(Connection{TableEndpoint: startServer(t, r.ServeHTTP) + "/account", SAS: canarySAS})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(tables.Close)
		return tableOperations(tables, "asynccallertest", storage.Key{Partition: "main", ID: "row", Version: `W/"1"`})
	}
	coded := func(code string) map[string]string { return map[string]string{"X-Ms-Error-Code": code} }
	const batch = "--b\r\nContent-Type: application/http\r\n\r\nHTTP/1.1 204 No Content\r\n"
	kinds := map[string]reply{
		"no_table_404": {404, webPage, coded("TableNotFound")},
		"no_row_404":   {404, "<Error><Code>ResourceNotFound</Code></Error>", coded("ResourceNotFound")},
		"json_404":     {404, `{"odata.error":{"code":"TableNotFound"}}`, nil},
		"no_parts_202": {202, "--b\r\n\r\n--b--\r\n", nil},
		"cut_202":      {202, batch, nil},
		"dash_202":     {202, "-", nil},
		"messages_200": {200, "<QueueMessagesList/>", nil},
		"null_200":     {200, "null", nil},
		"metadata_200": {200, `{"odata.metadata":"x"}`, nil},
		"cut_200":      {200, `{"odata.metadata":"x","value":[{`, nil},
	}
	maps.Copy(kinds, foreign)
	for kind, r := range kinds {
		t.Run(kind, func(t *testing.T) {
			for operation, run := range operations(r) {
				err := run(t.Context())
				mustBeForeign(t, operation, err)
				if err != nil && !strings.Contains(err.Error(), "the answer is not Table Storage's") {
					t.Errorf("error %q does not name the service", err)
				}
			}
		})
	}
	written := operations(reply{204, "", map[string]string{
		"Etag": `"0x8D4BCC2E4835CD0"`, "X-Ms-Version": "2025-01-05", "X-Ms-Request-Id": "1",
	}})
	for _, operation := range []string{"put", "insert", "replace"} {
		mustBeForeign(t, operation, written[operation](t.Context()))
	}
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

// messages is the answer to a receive of two messages.
var messages = "\ufeff<?xml version=\"1.0\" encoding=\"utf-8\"?><QueueMessagesList>" + strings.Repeat("<QueueMessage>"+
	"<MessageId>6f1bbb3e-8a0c-4a5c-a7c6-2a4b5b1f0f57</MessageId><PopReceipt>AgAAAAMAAAAAAAAA</PopReceipt>"+
	"<InsertionTime>Fri, 27 Nov 2026 12:00:00 GMT</InsertionTime><DequeueCount>1</DequeueCount>"+
	"<MessageText>AAAAAAAAAA</MessageText></QueueMessage>", 2) + "</QueueMessagesList>"

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
		"<!-- c --><QueueMessagesList/>", messages,
	} {
		if !gave(list) {
			t.Errorf("no list: %q", list)
		}
	}
	for n := range len(messages) {
		if gave(messages[:n]) {
			t.Errorf("a list: %q", messages[:n])
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
