package emulator_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/internal/storage/emulator"
)

// mustTable returns a new table of a client that can do more than Async Caller needs.
func mustTable(t *testing.T, s *emulator.Server) *aztables.Client {
	t.Helper()
	service, err := aztables.NewServiceClientFromConnectionString(s.ConnectionString, nil)
	if err != nil {
		t.Fatal(err)
	}
	table := service.NewClient("things")
	if _, err := table.CreateTable(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return table
}

func mustAdd(t *testing.T, table *aztables.Client, id string, properties map[string]any) azcore.ETag {
	t.Helper()
	encoded, err := json.Marshal(aztables.EDMEntity{
		Entity: aztables.Entity{PartitionKey: "p", RowKey: id}, Properties: properties,
	})
	if err != nil {
		t.Fatal(err)
	}
	added, err := table.AddEntity(t.Context(), encoded, nil)
	if err != nil {
		t.Fatal(err)
	}
	return added.ETag
}

func mustGet(t *testing.T, table *aztables.Client, id string) (entity aztables.EDMEntity) {
	t.Helper()
	got, err := table.GetEntity(t.Context(), "p", id, nil)
	if err == nil {
		err = json.Unmarshal(got.Value, &entity)
	}
	if err != nil {
		t.Fatal(err)
	}
	return entity
}

// TestTypes: an entity has the types of its values, also those that Async Caller does not write.
func TestTypes(t *testing.T) {
	table := mustTable(t, mustStart(t))
	want := map[string]any{
		"long": aztables.EDMInt64(-1 << 63), "guid": aztables.EDMGUID("c9da6455-213d-42c9-9a79-3e9149a57833"),
		"half": 0.5, "large": 1e300, "text": "é🙂'\"", "yes": true,
		"int": int32(-1), "bytes": aztables.EDMBinary{0, 255},
		"at": aztables.EDMDateTime(time.Date(2030, 1, 2, 3, 4, 5, 600, time.UTC)),
	}
	mustAdd(t, table, "r", want)
	got := mustGet(t, table, "r").Properties
	same := cmp.Comparer(func(a, b aztables.EDMDateTime) bool { return time.Time(a).Equal(time.Time(b)) })
	if diff := cmp.Diff(want, got, same); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestMerge: a merge keeps the values that it does not have.
func TestMerge(t *testing.T) {
	table := mustTable(t, mustStart(t))
	first := mustAdd(t, table, "r", map[string]any{"a": "1", "b": "1"})
	encoded := []byte(`{"PartitionKey":"p","RowKey":"r","b":"2","c":"2","a":null}`)
	options := &aztables.UpdateEntityOptions{IfMatch: &first, UpdateMode: aztables.UpdateModeMerge}
	if _, err := table.UpdateEntity(t.Context(), encoded, options); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"a": "1", "b": "2", "c": "2"}
	if diff := cmp.Diff(want, mustGet(t, table, "r").Properties); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFilter: queries select by comparisons of all types, and a missing value by none.
func TestFilter(t *testing.T) {
	table := mustTable(t, mustStart(t))
	mustAdd(t, table, "a", map[string]any{
		"n": int32(1), "long": aztables.EDMInt64(5), "x": 0.5, "yes": true, "bytes": aztables.EDMBinary{1},
		"guid": aztables.EDMGUID("c9da6455-213d-42c9-9a79-3e9149a57833"), "text": "it's",
		"at": aztables.EDMDateTime(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)),
	})
	mustAdd(t, table, "b", map[string]any{"n": int32(2), "yes": false, "text": "other"})
	mustAdd(t, table, "c", map[string]any{})
	for filter, want := range map[string]string{
		"":                                    "abc",
		"n eq 1":                              "a",
		"n ne 1":                              "b",
		"n ge 1 and n le 2":                   "ab",
		"n lt 2 or RowKey eq 'c'":             "ac",
		"not (n gt 1)":                        "ac",
		"not n gt 1 and RowKey lt 'b'":        "a",
		"n eq 9 or n eq 1 and yes eq true":    "a",
		"(n eq 9 or n eq 1) and yes eq false": "",
		"long eq 5L":                          "a",
		"x gt 0.25":                           "a",
		"yes eq false":                        "b",
		"bytes eq X'01'":                      "a",
		"guid eq guid'C9DA6455-213d-42c9-9a79-3e9149a57833'": "a",
		"text eq 'it''s'":                             "a",
		"at lt datetime'2030-01-01T00:00:01Z'":        "a",
		"n eq '1'":                                    "",
		"PartitionKey eq 'p' and missing eq 1":        "",
		"Timestamp gt datetime'2020-01-01T00:00:00Z'": "abc",
	} {
		t.Run(filter, func(t *testing.T) {
			options := &aztables.ListEntitiesOptions{Filter: &filter}
			if got, _ := mustList(t, table, options); got != want {
				t.Errorf("listed %q, want %q", got, want)
			}
		})
	}
}

// mustList returns the row keys of a query, and the number of its pages.
func mustList(t *testing.T, table *aztables.Client, options *aztables.ListEntitiesOptions) (ids string, pages int) {
	t.Helper()
	for pager := table.NewListEntitiesPager(options); pager.More(); pages++ {
		page, err := pager.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, encoded := range page.Entities {
			var entity aztables.EDMEntity
			if err := json.Unmarshal(encoded, &entity); err != nil {
				t.Fatal(err)
			}
			ids += entity.RowKey
		}
	}
	return ids, pages
}

// TestPages: a listing has pages of a number of entities or bytes, and each entity once, whatever its key is.
func TestPages(t *testing.T) {
	table := mustTable(t, mustStart(t))
	want := ""
	for _, id := range []string{"", "a b", "b", "é", "日本"} {
		mustAdd(t, table, id, map[string]any{})
		want += id
	}
	top := int32(2)
	if ids, pages := mustList(t, table, &aztables.ListEntitiesOptions{Top: &top}); ids != want || pages != 3 {
		t.Errorf("listed %q on %d pages, want %q on 3", ids, pages, want)
	}
	large := map[string]any{}
	for i := range 10 {
		large[fmt.Sprint("b", i)] = aztables.EDMBinary(make([]byte, 64<<10))
	}
	for i := range 5 {
		mustAdd(t, table, fmt.Sprintf("日本%d", i), large)
		want += fmt.Sprintf("日本%d", i)
	}
	if ids, pages := mustList(t, table, nil); ids != want || pages != 2 {
		t.Errorf("listed %q on %d pages, want %q on 2, of 4 MiB each", ids, pages, want)
	}
}

// TestQueueDefaults: parameters that a request lacks are those of the service, and an update may leave the text alone.
func TestQueueDefaults(t *testing.T) {
	s := mustStart(t)
	service, err := azqueue.NewServiceClientFromConnectionString(s.ConnectionString, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"aaa", "bbb", "ccc"} {
		if _, err := service.CreateQueue(t.Context(), name, nil); err != nil {
			t.Fatal(err)
		}
	}
	most, names := int32(2), ""
	for pager := service.NewListQueuesPager(&azqueue.ListQueuesOptions{MaxResults: &most}); pager.More(); names += "." {
		page, err := pager.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, queue := range page.Queues {
			names += *queue.Name
		}
	}
	if names != "aaabbb.ccc." {
		t.Errorf("queues %q", names)
	}
	queue := service.NewQueueClient("aaa")
	put, err := queue.EnqueueMessage(t.Context(), "text", nil)
	if err != nil {
		t.Fatal(err)
	}
	if life := put.Messages[0].ExpirationTime.Sub(*put.Messages[0].InsertionTime); life != 7*24*time.Hour {
		t.Errorf("the message expires after %s", life)
	}
	got, err := queue.DequeueMessage(t.Context(), nil)
	if err != nil || len(got.Messages) != 1 {
		t.Fatal(len(got.Messages), err)
	}
	m := got.Messages[0]
	if hidden := time.Until(*m.TimeNextVisible); hidden < 20*time.Second || hidden > 30*time.Second {
		t.Errorf("the message is invisible for %s", hidden)
	}
	path := "/aaa/messages/" + *m.MessageID
	query := "popreceipt=" + *m.PopReceipt + "&visibilitytimeout=0"
	if status := mustSendQueue(t, s, "PUT", path, query); status != 204 {
		t.Errorf("status %d", status)
	}
	got, err = queue.DequeueMessage(t.Context(), nil)
	if err != nil || len(got.Messages) != 1 || *got.Messages[0].MessageText != "text" {
		t.Errorf("%d messages, %v", len(got.Messages), err)
	}
	for _, bad := range []string{"numofmessages=x", "visibilitytimeout=99999999999", "visibilitytimeout=-1"} {
		if status := mustSendQueue(t, s, "GET", "/aaa/messages", bad); status != 400 {
			t.Errorf("%s: status %d", bad, status)
		}
	}
	for _, other := range []string{"/aaa/messages/a/b", "/aaa/other", "/"} {
		if status := mustSendQueue(t, s, "DELETE", other, ""); status != 501 {
			t.Errorf("%s: status %d", other, status)
		}
	}
}

// TestPort: a port that is in use is an error, and leaves nothing behind.
func TestPort(t *testing.T) {
	s := mustStart(t)
	conn := mustConnect(t, s.ConnectionString)
	_, port, _ := strings.Cut(strings.TrimPrefix(conn.Account(), "127.0.0.1"), ":")
	var used int
	if _, err := fmt.Sscan(strings.TrimSuffix(port, "/"+emulator.Account), &used); err != nil {
		t.Fatal(err)
	}
	for _, o := range []emulator.Options{{QueuePort: used}, {TablePort: used}} {
		second, err := emulator.Start(t.Context(), o)
		if err == nil {
			second.Close()
		}
		wantError(t, "start", err, "address already in use")
	}
	if _, err := azure.Reach(t.Context(), conn.Endpoint, "2021-12-02"); err != nil {
		t.Error(err)
	}
	s.Close()
	again, err := emulator.Start(t.Context(), emulator.Options{QueuePort: used})
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

// mustSendQueue sends a request with a SAS to the queue service, and returns the status.
func mustSendQueue(t *testing.T, s *emulator.Server, method, path, query string) int {
	t.Helper()
	conn := mustConnect(t, s.ConnectionString)
	key, err := aztables.NewSharedKeyCredential(conn.AccountName, string(conn.AccountKey))
	if err != nil {
		t.Fatal(err)
	}
	sas, err := aztables.AccountSASSignatureValues{
		ExpiryTime: time.Now().Add(time.Hour), Permissions: "rwdlacup", Services: "q", ResourceTypes: "sco",
	}.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	address := s.QueueEndpoint + path + "?" + sas.Encode() + "&" + query
	request, err := http.NewRequestWithContext(t.Context(), method, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode
}
