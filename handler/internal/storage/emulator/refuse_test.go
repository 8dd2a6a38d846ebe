package emulator_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/sas"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/internal/storage/emulator"
)

const queueName = "async-caller"

// accessQueue reads a queue of a connection, and writes to it.
func accessQueue(t *testing.T, conn azure.Connection) (create, put, count error) {
	t.Helper()
	store, err := azure.Open(conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	create = store.Create(t.Context(), queueName)
	_, put = store.Put(t.Context(), queueName, storage.Item{Text: "x"})
	_, count = store.Count(t.Context(), queueName)
	return create, put, count
}

// TestSAS: signatures of the clients are accepted, and permit what they say.
func TestSAS(t *testing.T) {
	s := mustStart(t)
	owner := mustConnect(t, s.ConnectionString)
	if create, put, _ := accessQueue(t, owner); create != nil || put != nil {
		t.Fatal(create, put)
	}
	queueKey, err := azqueue.NewSharedKeyCredential(owner.AccountName, string(owner.AccountKey))
	if err != nil {
		t.Fatal(err)
	}
	tableKey, err := aztables.NewSharedKeyCredential(owner.AccountName, string(owner.AccountKey))
	if err != nil {
		t.Fatal(err)
	}
	type values = aztables.AccountSASSignatureValues
	account := func(change func(*values)) string {
		expires := time.Now().Add(time.Hour)
		v := values{ExpiryTime: expires, Permissions: "rwdlacup", Services: "qt", ResourceTypes: "sco"}
		change(&v)
		signed, err := v.Sign(tableKey)
		if err != nil {
			t.Fatal(err)
		}
		return signed.Encode()
	}
	service := func(queue, permissions string) string {
		expires := time.Now().Add(time.Hour)
		v := sas.QueueSignatureValues{ExpiryTime: expires, QueueName: queue, Permissions: permissions}
		signed, err := v.SignWithSharedKey(queueKey)
		if err != nil {
			t.Fatal(err)
		}
		return signed.Encode()
	}
	all, denied := account(func(*values) {}), strings.Repeat("AuthenticationFailed ", 3)
	for name, test := range map[string]struct {
		sas  string
		want string // parts of the errors of create, put and count; none: -
	}{
		"all":         {all, "- - -"},
		"newer":       {account(func(v *values) { v.Version = "2019-12-12" }), "- - -"},
		"read":        {account(func(v *values) { v.Permissions = "r" }), "PermissionMismatch PermissionMismatch -"},
		"object":      {account(func(v *values) { v.ResourceTypes = "o" }), "ResourceTypeM - ResourceTypeMismatch"},
		"tables":      {account(func(v *values) { v.Services = "t" }), "ServiceM ServiceM ServiceM"},
		"https":       {account(func(v *values) { v.Protocol = "https" }), "Protocol Protocol Protocol"},
		"elsewhere":   {account(func(v *values) { v.IPRange.Start = net.IPv4(10, 0, 0, 1) }), "Source Source Source"},
		"here":        {account(func(v *values) { v.IPRange.Start = net.IPv4(127, 0, 0, 1) }), "- - -"},
		"late":        {account(func(v *values) { v.ExpiryTime = time.Now().Add(-time.Second) }), denied},
		"early":       {account(func(v *values) { v.StartTime = time.Now().Add(time.Hour) }), denied},
		"address":     {all + "&sip=10.0.0.1", denied}, // which is not signed
		"more":        {strings.Replace(all, "srt=sco", "srt=oc", 1), denied},
		"queue":       {service(queueName, "ra"), "AuthorizationFailure - -"},
		"queue_read":  {service(queueName, "r"), "AuthorizationFailure PermissionMismatch -"},
		"other_queue": {service("other", "raup"), denied},
	} {
		t.Run(name, func(t *testing.T) {
			conn := mustConnect(t, "QueueEndpoint="+s.QueueEndpoint+";SharedAccessSignature="+test.sas)
			create, put, count := accessQueue(t, conn)
			want := strings.Fields(test.want)
			wantError(t, "create", create, want[0])
			wantError(t, "put", put, want[1])
			wantError(t, "count", count, want[2])
		})
	}
	t.Run("table", func(t *testing.T) { testTableSAS(t, s, tableKey, all) })
}

// wantError checks that an error contains a text; - means that there is none.
func wantError(t *testing.T, operation string, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "-") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%s: error %v, want %q", operation, err, want)
	}
}

// testTableSAS checks a SAS of a table, also in transactions, and one of the account.
func testTableSAS(t *testing.T, s *emulator.Server, key *aztables.SharedKeyCredential, all string) {
	open := func(signature string) storage.Tables {
		t.Helper()
		tables, err := azure.OpenTables(mustConnect(t, "QueueEndpoint="+s.QueueEndpoint+
			";TableEndpoint="+s.TableEndpoint+";SharedAccessSignature="+signature))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(tables.Close)
		return tables
	}
	entities := []storage.Entity{
		{Key: storage.Key{Partition: "main", ID: "1"}}, {Key: storage.Key{Partition: "main", ID: "2"}},
	}
	if err := open(all).Table("Mine").Put(t.Context(), entities); err != nil {
		t.Fatal(err)
	}
	values := aztables.SASSignatureValues{ExpiryTime: time.Now().Add(time.Hour), TableName: "Mine", Permissions: "ra"}
	signature, err := values.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	limited := open(signature)
	mine := limited.Table("mine")
	if _, found, err := mine.Get(t.Context(), "main", "1"); !found || err != nil {
		t.Errorf("found %t, %v", found, err)
	}
	for operation, err := range map[string]error{
		"put":    mine.Put(t.Context(), entities), // also needs u
		"delete": mine.Delete(t.Context(), []storage.Key{entities[0].Key}),
		"other":  limited.Table("other").Insert(t.Context(), entities[:1]),
	} {
		if !errors.Is(err, storage.ErrRefused) {
			t.Errorf("%s: error %v", operation, err)
		}
	}
	if _, err := limited.TableNames(t.Context(), ""); !errors.Is(err, storage.ErrDenied) {
		t.Errorf("names: error %v", err)
	}
}

// TestKeys: only the key of this start is accepted, which has 64 bytes.
func TestKeys(t *testing.T) {
	s, other := mustStart(t), mustStart(t)
	conn, wrong := mustConnect(t, s.ConnectionString), mustConnect(t, other.ConnectionString)
	key, err := base64.StdEncoding.DecodeString(string(conn.AccountKey))
	if err != nil || len(key) != 64 || conn.AccountKey == wrong.AccountKey {
		t.Errorf("a key of %d bytes, %v, which may be that of another start", len(key), err)
	}
	conn.AccountKey = wrong.AccountKey
	create, put, count := accessQueue(t, conn)
	tables, err := azure.OpenTables(conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tables.Close)
	_, names := tables.TableNames(t.Context(), "")
	for operation, err := range map[string]error{"create": create, "put": put, "count": count, "names": names} {
		if !errors.Is(err, storage.ErrDenied) {
			t.Errorf("%s: error %v", operation, err)
		}
	}
}

// TestSchemes: the signatures of tables are SharedKey and SharedKeyLite, of the last quarter of an hour.
func TestSchemes(t *testing.T) {
	s := mustStart(t)
	now := time.Now().UTC()
	const path = "/demo/demo/Tables"
	for name, test := range map[string]struct {
		scheme, header string
		at             time.Time
		text           string // what is signed before the date
		want           int
	}{
		"key":       {"SharedKey", "X-Ms-Date", now, "GET\n\nx/y\n", 200},
		"date":      {"SharedKey", "Date", now, "GET\n\nx/y\n", 200},
		"lite":      {"SharedKeyLite", "X-Ms-Date", now, "", 200},
		"lite_date": {"SharedKeyLite", "Date", now, "", 200},
		"method":    {"SharedKey", "X-Ms-Date", now, "PUT\n\nx/y\n", 403},
		"old":       {"SharedKey", "X-Ms-Date", now.Add(-16 * time.Minute), "GET\n\nx/y\n", 403},
		"future":    {"SharedKeyLite", "X-Ms-Date", now.Add(16 * time.Minute), "", 403},
		"undated":   {"SharedKeyLite", "X-Other", now, "", 403},
		"unknown":   {"Bearer", "X-Ms-Date", now, "", 403},
	} {
		t.Run(name, func(t *testing.T) {
			status, answer := send(t, s, "GET", "/Tables", "x/y", nil, func(r *http.Request, key []byte) {
				at := test.at.Format(http.TimeFormat)
				r.Header.Set(test.header, at)
				r.Header.Set("Authorization", test.scheme+" demo:"+signature(key, test.text+at+"\n"+path))
			})
			if status != test.want {
				t.Errorf("status %d, want %d: %s", status, test.want, answer)
			}
		})
	}
	for name, sign := range map[string]func(*http.Request, []byte){
		"none":    func(*http.Request, []byte) {},
		"empty":   func(r *http.Request, _ []byte) { r.Header.Set("Authorization", "SharedKey demo:") },
		"no_text": func(r *http.Request, key []byte) { r.Header.Set("Authorization", "x demo:"+signature(key, "")) },
		"query":   func(r *http.Request, _ []byte) { r.URL.RawQuery = "a;b" },
	} {
		status, _ := send(t, s, "GET", "/Tables", "", nil, sign)
		if status/100 != 4 {
			t.Errorf("%s: status %d", name, status)
		}
	}
}

// TestForeign: what a browser could send is refused even with a valid signature.
func TestForeign(t *testing.T) {
	s := mustStart(t)
	for name, change := range map[string]func(*http.Request){
		"origin":    func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1") },
		"empty":     func(r *http.Request) { r.Header["Origin"] = []string{""} },
		"fetch":     func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "none") },
		"host":      func(r *http.Request) { r.Host = "rebound.example" },
		"localhost": func(r *http.Request) { r.Host = strings.Replace(r.URL.Host, "127.0.0.1", "localhost", 1) },
		"no_port":   func(r *http.Request) { r.Host = "127.0.0.1" },
	} {
		t.Run(name, func(t *testing.T) {
			create := []byte(`{"TableName":"mine"}`)
			status, answer := send(t, s, "POST", "/Tables", "", create, func(r *http.Request, key []byte) {
				sign(r, key)
				change(r)
			})
			if status != 403 || !strings.Contains(answer, "AuthorizationFailure") {
				t.Errorf("status %d: %s", status, answer)
			}
		})
	}
	if status, answer := mustSend(t, s, "GET", "/Tables", "", nil); status != 200 || strings.Contains(answer, "mine") {
		t.Errorf("status %d, tables %s", status, answer)
	}
}

// mustSend sends a signed request to the table service.
func mustSend(t *testing.T, s *emulator.Server, method, path, contentType string, body []byte) (int, string) {
	t.Helper()
	return send(t, s, method, path, contentType, body, sign)
}

func sign(r *http.Request, key []byte) {
	now := time.Now().UTC().Format(http.TimeFormat)
	r.Header.Set("X-Ms-Date", now)
	r.Header.Set("Authorization", "SharedKeyLite demo:"+signature(key, now+"\n/demo"+r.URL.EscapedPath()))
}

func send(
	t *testing.T, s *emulator.Server, method, path, contentType string, body []byte, sign func(*http.Request, []byte),
) (status int, answer string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, s.TableEndpoint+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", contentType)
	key, err := base64.StdEncoding.DecodeString(string(mustConnect(t, s.ConnectionString).AccountKey))
	if err != nil {
		t.Fatal(err)
	}
	sign(request, key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil || response.Header.Get("Server") != emulator.Name {
		t.Errorf("Server is %q, error %v", response.Header.Get("Server"), err)
	}
	return response.StatusCode, string(content)
}

func signature(key []byte, text string) string {
	sum := hmac.New(sha256.New, key)
	sum.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(sum.Sum(nil))
}

// hostile is what a client with the key sends, and the answer.
type hostile struct {
	method, path, contentType, body string
	status                          int
	want                            string // part of the answer
}

// TestHostile: whatever a client with the key sends, the answer is a refusal, and the next request is answered.
func TestHostile(t *testing.T) {
	s := mustStart(t)
	check := func(name string, test hostile) {
		t.Run(name, func(t *testing.T) {
			status, answer := mustSend(t, s, test.method, test.path, test.contentType, []byte(test.body))
			if status != test.status || !strings.Contains(answer, test.want) {
				t.Errorf("status %d, want %d with %q: %.300s", status, test.status, test.want, answer)
			}
		})
	}
	check("create", hostile{method: "POST", path: "/Tables", body: `{"TableName":"mine"}`, status: 201})
	for name, test := range hostileEntities() {
		check(name, hostile{"POST", "/mine", "application/json", test[0], 400, test[1]})
	}
	for name, test := range hostileRequests() {
		check(name, test)
	}
	for name, test := range hostileTransactions(s.TableEndpoint) {
		check(name, test)
	}
	check("rest", hostile{method: "GET", path: "/mine()?$select=RowKey", status: 200, want: `"value":[]`})
}

// hostileEntities returns entities, and the codes of their refusals.
func hostileEntities() map[string][2]string {
	with := func(member string) string { return `{"PartitionKey":"p","RowKey":"r",` + member + `}` }
	of := func(id string) string { return `{"PartitionKey":"p","RowKey":"` + id + `"}` }
	many := `"p":1`
	for i := range 252 {
		many += fmt.Sprintf(`,"p%d":1`, i)
	}
	large := `"p":1`
	for i := range 17 {
		large += fmt.Sprintf(`,"p%d":"%s"`, i, strings.Repeat("x", 32<<10))
	}
	return map[string][2]string{
		"not_json":        {"{", "InvalidInput"},
		"null":            {"null", "PropertiesNeedValue"},
		"array":           {"[]", "InvalidInput"},
		"two":             {of("r") + "{}", "InvalidInput"},
		"deep":            {strings.Repeat(`{"a":`, 100_000), "InvalidInput"},
		"no_key":          {`{"PartitionKey":"p"}`, "PropertiesNeedValue"},
		"number_as_key":   {`{"PartitionKey":"p","RowKey":1}`, "PropertiesNeedValue"},
		"control":         {of(`\u0000`), "OutOfRangeInput"},
		"slash":           {of("a/b"), "OutOfRangeInput"},
		"long_key":        {of(strings.Repeat("x", 1025)), "OutOfRangeInput"},
		"nested":          {with(`"a":{}`), "InvalidInput"},
		"unknown_type":    {with(`"a":1,"a@odata.type":"x"`), "InvalidInput"},
		"wrong_type":      {with(`"a":"x","a@odata.type":"Edm.Int64"`), "InvalidInput"},
		"large_number":    {with(`"a":4294967296`), "InvalidInput"},
		"early":           {with(`"a":"1600-01-01T00:00:00Z","a@odata.type":"Edm.DateTime"`), "InvalidInput"},
		"large_text":      {with(`"a":"` + strings.Repeat("x", 32<<10+1) + `"`), "PropertyValueTooLarge"},
		"long_name":       {with(`"` + strings.Repeat("x", 256) + `":1`), "InvalidInput"},
		"many_properties": {with(many), "EntityTooLarge"},
		"large_entity":    {with(large), "EntityTooLarge"},
	}
}

func hostileRequests() map[string]hostile {
	get := func(path string, status int, want string) hostile {
		return hostile{method: "GET", path: path, status: status, want: want}
	}
	filter := func(text string) string { return "/mine()?$filter=" + url.PathEscape(text) }
	post := func(path, body string, status int, want string) hostile {
		return hostile{"POST", path, "application/json", body, status, want}
	}
	return map[string]hostile{
		"large_body":    post("/mine", strings.Repeat(" ", 4<<20+1), 413, "RequestBodyTooLarge"),
		"missing_table": post("/other", `{"PartitionKey":"p","RowKey":"r"}`, 404, "TableNotFound"),
		"bad_name":      post("/Tables", `{"TableName":"a/b"}`, 400, "InvalidResourceName"),
		"same_name":     post("/Tables", `{"TableName":"MINE"}`, 409, "TableAlreadyExists"),
		"no_condition": {
			method: "DELETE", path: "/mine(PartitionKey='p',RowKey='r')", status: 400, want: "MissingRequiredHeader",
		},
		"path":         get("/../x", 501, "NotImplemented"),
		"quote":        get("/mine(PartitionKey='a'b',RowKey='r')", 501, "NotImplemented"),
		"filter":       get(filter("a eq"), 400, "InvalidInput"),
		"filter_quote": get(filter("a eq 'x"), 400, "InvalidInput"),
		"filter_deep":  get("/mine()?$filter="+strings.Repeat("(", 30_000), 400, "InvalidInput"),
		"filter_not":   get(filter(strings.Repeat("not ", 5_000)+"a eq 1"), 200, "value"),
		"top":          get("/mine()?$top=-1", 400, "InvalidInput"),
		"continuation": get("/mine()?NextPartitionKey=%00", 400, "InvalidInput"),
	}
}

// hostileTransactions returns transactions of which nothing is written.
func hostileTransactions(endpoint string) map[string]hostile {
	const mixed = "multipart/mixed; boundary=b"
	send := func(body string, status int, want string) hostile {
		return hostile{"POST", "/$batch", mixed, body, status, want}
	}
	batch := func(parts ...string) string {
		text := "--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n"
		for _, part := range parts {
			text += "--c\r\nContent-Type: application/http\r\n\r\n" + part + "\r\n"
		}
		return text + "--c--\r\n--b--\r\n"
	}
	insert := func(table, id string) string {
		return "POST " + endpoint + "/" + table + " HTTP/1.1\r\n\r\n" +
			`{"PartitionKey":"p","RowKey":"` + id + `"}`
	}
	var many []string
	for i := range 101 {
		many = append(many, insert("mine", fmt.Sprint(i)))
	}
	update := "PUT " + endpoint + "/mine(PartitionKey='p',RowKey='r') HTTP/1.1\r\nIf-Match: *\r\n\r\n{}"
	deletion := "DELETE " + endpoint + "/Tables('mine') HTTP/1.1\r\nIf-Match: *\r\n\r\n"
	return map[string]hostile{
		"batch_empty":     send(batch(), 400, "InvalidInput"),
		"batch_text":      send("x", 400, "InvalidInput"),
		"batch_type":      {"POST", "/$batch", "text/plain", batch(insert("mine", "3")), 400, "InvalidInput"},
		"batch_garbage":   send(batch("\x00\xff"), 400, "InvalidInput"),
		"batch_cut":       send(batch(insert("mine", "3"))[:100], 400, "InvalidInput"),
		"batch_elsewhere": send(batch("POST http://example.com/other/mine HTTP/1.1\r\n\r\n{}"), 400, "InvalidInput"),
		"batch_tables":    send(batch(deletion), 202, "NotImplemented"),
		"batch_itself":    send(batch("POST "+endpoint+"/$batch HTTP/1.1\r\n\r\n"), 202, "NotImplemented"),
		"batch_two":       send(batch(insert("mine", "4"), insert("other", "5")), 202, "1:All commands"),
		"batch_twice":     send(batch(insert("mine", "4"), insert("mine", "4")), 202, "InvalidDuplicateRow"),
		"batch_many":      send(batch(many...), 202, "more than 100"),
		"batch_missing":   send(batch(insert("mine", "4"), update), 202, "1:The specified resource"),
	}
}
