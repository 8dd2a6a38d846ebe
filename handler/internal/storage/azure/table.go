package azure

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"asynccaller/handler/internal/storage"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
)

// Table is the record of scheduled messages, or another table of such rows, in Table Storage. Its requests and errors
// are like those of [Queues].
type Table struct {
	name    string
	service *aztables.ServiceClient
	table   *aztables.Client
	clock   *clock
	httpClient
}

var _ storage.Table = (*Table)(nil)

// ErrNoTables means that the settings do not tell where the tables of the account are.
var ErrNoTables = errors.New("the connection has no table service: " +
	"add TableEndpoint to the connection string, or set " + tableServiceURIKey)

// OpenTable returns a table of a connection's account, or [ErrNoTables]. It sends no request. The caller closes the
// table.
func OpenTable(conn Connection, name string) (*Table, error) {
	tables, err := OpenTables(conn)
	if err != nil {
		return nil, err
	}
	return tables.table(name), nil
}

// Tables are the tables of a connection's account, which share their connections.
type Tables struct {
	service *aztables.ServiceClient
	clock   *clock
	httpClient
}

var _ storage.Tables = (*Tables)(nil)

// OpenTables returns the tables of a connection's account, or [ErrNoTables]. It sends no request. The caller closes
// them.
func OpenTables(conn Connection) (*Tables, error) {
	if conn.TableEndpoint == "" {
		return nil, ErrNoTables
	}
	client := newHTTPClient(NewTransport(conn.TableEndpoint))
	shown := &clock{next: origin{client, tableService}}
	service, err := newTableServiceClient(conn, shown)
	if err != nil {
		return nil, describe("open table storage", err)
	}
	return &Tables{service, shown, httpClient{client}}, nil
}

func (t *Tables) table(name string) *Table {
	return &Table{name, t.service, t.service.NewClient(name), t.clock, t.httpClient}
}

// Table implements [storage.Tables].
func (t *Tables) Table(name string) storage.Table { return t.table(name) }

// TableNames implements [storage.Tables].
func (t *Tables) TableNames(ctx context.Context, prefix string) (names []string, err error) {
	options := &aztables.ListTablesOptions{Filter: new(withPrefix("TableName", prefix))}
	pages := t.service.NewListTablesPager(options)
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if t.checked(err) != nil {
			return nil, describe("list tables", err)
		}
		for _, table := range page.Tables {
			names = append(names, value(table.Name))
		}
	}
	return names, nil
}

// Drop implements [storage.Tables].
func (t *Tables) Drop(ctx context.Context, name string) error {
	_, err := t.service.DeleteTable(ctx, name, nil)
	if isMissing(err) || hasCode(err, aztables.TableBeingDeleted) {
		return nil
	}
	return describe("drop table "+name, t.checked(err))
}

// withPrefix returns the condition that a text property begins with a prefix of letters, digits and dots.
func withPrefix(property, prefix string) string {
	return property + " ge '" + prefix + "' and " + property + " lt '" + prefix + "~'"
}

func newTableServiceClient(conn Connection, transport policy.Transporter) (*aztables.ServiceClient, error) {
	options := &aztables.ClientOptions{ClientOptions: clientOptions(transport)}
	switch {
	case conn.AccountKey != "":
		key, err := aztables.NewSharedKeyCredential(conn.AccountName, string(conn.AccountKey))
		if err != nil {
			return nil, fmt.Errorf("account key: %w", err)
		}
		return aztables.NewServiceClientWithSharedKey(conn.TableEndpoint, key, options)
	case conn.SAS != "":
		return aztables.NewServiceClientWithNoCredential(conn.TableEndpoint+"?"+string(conn.SAS), options)
	}
	cred, err := newCredential(conn.Identity)
	if err != nil {
		return nil, err
	}
	return aztables.NewServiceClient(conn.TableEndpoint, advisedCredential{cred, conn.Identity}, options)
}

// do runs an operation, and describes its error.
func (t *Table) do(doing string, run func() error) error {
	return describe(doing+" table "+t.name, t.checked(run()))
}

// Put implements [storage.Table]. One row alone is no transaction: that takes less time, and the answer says why a row
// was refused.
func (t *Table) Put(ctx context.Context, queueName string, rows []storage.Row) error {
	actions := make([]aztables.TransactionAction, len(rows))
	for i, row := range rows {
		encoded, err := json.Marshal(encodeRow(queueName, row))
		if err != nil {
			return fmt.Errorf("encode row %s: %w", row.ID, err)
		}
		actions[i] = aztables.TransactionAction{ActionType: aztables.TransactionTypeInsertReplace, Entity: encoded}
	}
	write := func() error { return t.submit(ctx, actions) }
	if len(actions) == 1 {
		write = func() error { return t.upsert(ctx, actions[0].Entity) }
	}
	return t.do("write", func() error {
		err := write()
		if !isMissing(err) && !errors.Is(err, errTransaction) { // a failed transaction does not say why
			return err
		}
		if err := t.create(ctx); err != nil {
			return err
		}
		return write()
	})
}

func (t *Table) upsert(ctx context.Context, entity []byte) error {
	_, err := t.table.UpsertEntity(ctx, entity, &aztables.UpsertEntityOptions{UpdateMode: aztables.UpdateModeReplace})
	return err
}

// Replace implements [storage.Table].
func (t *Table) Replace(ctx context.Context, queueName string, row storage.Row) (version string, err error) {
	encoded, err := json.Marshal(encodeRow(queueName, row))
	if err != nil {
		return "", fmt.Errorf("encode row %s: %w", row.ID, err)
	}
	err = t.do("write", func() error {
		var err error
		version, err = t.replace(ctx, encoded, row.Version)
		isOther := isMissing(err) || hasCode(err, aztables.EntityAlreadyExists) ||
			hasCode(err, aztables.UpdateConditionNotSatisfied)
		if isOther {
			return nil
		}
		return err
	})
	return version, err
}

// replace updates a version of an entity or, if that is empty, inserts the entity.
func (t *Table) replace(ctx context.Context, entity []byte, version string) (next string, err error) {
	if version != "" {
		response, err := t.table.UpdateEntity(ctx, entity, &aztables.UpdateEntityOptions{
			IfMatch: new(azcore.ETag(version)), UpdateMode: aztables.UpdateModeReplace,
		})
		return string(response.ETag), err
	}
	response, err := t.table.AddEntity(ctx, entity, nil)
	if !isMissing(err) {
		return string(response.ETag), err
	}
	if err := t.create(ctx); err != nil {
		return "", err
	}
	response, err = t.table.AddEntity(ctx, entity, nil)
	return string(response.ETag), err
}

// create creates the table unless it exists.
func (t *Table) create(ctx context.Context) error {
	_, err := t.service.CreateTable(ctx, t.name, nil)
	if hasCode(err, aztables.TableAlreadyExists) {
		return nil
	}
	return err
}

// Delete implements [storage.Table].
func (t *Table) Delete(ctx context.Context, queueName string, keys []storage.Key) error {
	actions := make([]aztables.TransactionAction, len(keys))
	for i, key := range keys {
		encoded, err := json.Marshal(aztables.Entity{PartitionKey: queueName, RowKey: key.ID})
		if err != nil {
			return fmt.Errorf("encode row %s: %w", key.ID, err)
		}
		actions[i] = aztables.TransactionAction{
			ActionType: aztables.TransactionTypeDelete,
			Entity:     encoded,
			IfMatch:    etag(key),
		}
	}
	return t.do("delete from", func() error {
		err := errTransaction
		if len(keys) > 1 {
			err = t.submit(ctx, actions)
		}
		if errors.Is(err, errTransaction) || isMissing(err) { // a row is missing, or has another version
			err = t.deleteEach(ctx, queueName, keys)
		}
		return err
	})
}

func (t *Table) deleteEach(ctx context.Context, queueName string, keys []storage.Key) error {
	for _, key := range keys {
		_, err := t.table.DeleteEntity(ctx, queueName, key.ID, &aztables.DeleteEntityOptions{IfMatch: etag(key)})
		if err != nil && !isMissing(err) && !hasCode(err, aztables.UpdateConditionNotSatisfied) {
			return err
		}
	}
	return nil
}

func etag(key storage.Key) *azcore.ETag {
	return new(azcore.ETag(cmp.Or(key.Version, string(azcore.ETagAny))))
}

// errTransaction means that the service refused a row of a transaction, and with it the others.
var errTransaction = fmt.Errorf("a row of the transaction: %w", storage.ErrRefused)

// submit makes a transaction.
func (t *Table) submit(ctx context.Context, actions []aztables.TransactionAction) (err error) {
	defer func() {
		if recover() != nil { // the SDK takes the answer of a proxy for one of the service
			err = errors.New("unreadable answer to a transaction")
		}
	}()
	_, err = t.table.SubmitTransaction(ctx, actions, nil)
	if response, ok := errors.AsType[*azcore.ResponseError](err); ok && response.StatusCode == http.StatusAccepted {
		return errTransaction
	}
	return err
}

// Get implements [storage.Table].
func (t *Table) Get(ctx context.Context, queueName, id string) (row storage.Row, found bool, err error) {
	err = t.do("read", func() error {
		resp, err := t.table.GetEntity(ctx, queueName, id, nil)
		switch {
		case isMissing(err):
			return nil
		case err == nil:
			row, err = t.decodeRow(resp.Value)
			found = err == nil
		}
		return err
	})
	return row, found, err
}

// selected are the properties of a row without its content.
const selected = "PartitionKey,RowKey,requestId,targetHost,route,reason,status,attempts,createdAt,nextAttemptAt," +
	"deadline,organization,environment,popReceipt,repeated,called,action,writes,reads,at,cause,answer," +
	"app,since,openAt,by,until,Timestamp"

// List implements [storage.Table].
func (t *Table) List(ctx context.Context, q storage.Query, see func(storage.Row) error) error {
	var options aztables.ListEntitiesOptions
	if !q.Content {
		options.Select = new(selected)
	}
	var conditions []string
	if q.Queue != "" {
		conditions = append(conditions, "PartitionKey eq '"+strings.ReplaceAll(q.Queue, "'", "''")+"'")
	}
	if q.IDPrefix != "" {
		conditions = append(conditions, withPrefix("RowKey", q.IDPrefix))
	}
	for comparison, at := range map[string]time.Time{
		"nextAttemptAt lt": q.DueBefore, "Timestamp gt": q.WrittenAfter, "Timestamp lt": q.WrittenBefore,
	} {
		if !at.IsZero() {
			conditions = append(conditions, comparison+" datetime'"+at.UTC().Format(time.RFC3339Nano)+"'")
		}
	}
	if filter := strings.Join(conditions, " and "); filter != "" {
		options.Filter = &filter
	}
	pages := t.table.NewListEntitiesPager(&options)
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if isMissing(err) {
			return nil
		}
		if t.checked(err) != nil {
			return describe("list table "+t.name, err)
		}
		for _, entity := range page.Entities {
			row, err := t.decodeRow(entity)
			if err == nil {
				err = see(row)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// encodeRow returns the entity of a row, with its texts as [storage.RowText] returns them.
func encodeRow(queueName string, row storage.Row) aztables.EDMEntity {
	properties := map[string]any{
		"status": saturate(float64(row.Status)), "attempts": saturate(float64(row.Attempts)),
		"repeated": row.Repeated,
	}
	if row.Content != nil {
		properties["content"] = aztables.EDMBinary(row.Content)
	}
	for name, text := range map[string]string{
		"requestId": row.RequestID, "targetHost": row.TargetHost, "route": row.Route, "reason": row.Reason,
		"organization": row.Organization, "environment": row.Environment, "popReceipt": row.PopReceipt,
		"action": row.Action, "writes": row.Writes, "cause": row.Cause, "answer": row.Answer, "app": row.App,
		"reads": row.Reads, "by": row.By,
	} {
		if text != "" {
			properties[name] = storage.RowText(text)
		}
	}
	if row.Called {
		properties["called"] = true
	}
	for name, at := range map[string]time.Time{
		"createdAt": row.CreatedAt, "nextAttemptAt": row.NextAttemptAt, "deadline": row.Deadline, "at": row.At,
		"since": row.Since, "openAt": row.OpenAt, "until": row.Until,
	} {
		at = at.UTC()
		if at.Year() > minYear && at.Year() <= maxYear { // a sender chooses the times
			properties[name] = aztables.EDMDateTime(at)
		}
	}
	return aztables.EDMEntity{Entity: aztables.Entity{PartitionKey: queueName, RowKey: row.ID}, Properties: properties}
}

// The service stores times after the year 1601.
const minYear, maxYear = 1601, 9999

// decodeRow returns the row of an entity.
func (t *Table) decodeRow(encoded []byte) (storage.Row, error) {
	var entity aztables.EDMEntity
	if err := json.Unmarshal(encoded, &entity); err != nil {
		return storage.Row{}, describe("decode row of table "+t.name, err)
	}
	text := func(name string) string {
		s, _ := entity.Properties[name].(string)
		return s
	}
	number := func(name string) int {
		n, _ := entity.Properties[name].(int32)
		return int(n)
	}
	at := func(name string) time.Time {
		t, _ := entity.Properties[name].(aztables.EDMDateTime)
		return time.Time(t)
	}
	content, _ := entity.Properties["content"].(aztables.EDMBinary)
	repeated, _ := entity.Properties["repeated"].(bool)
	called, _ := entity.Properties["called"].(bool)
	return storage.Row{
		Queue: entity.PartitionKey, ID: entity.RowKey, PopReceipt: text("popReceipt"),
		RequestID: text("requestId"), TargetHost: text("targetHost"), Route: text("route"),
		Reason: text("reason"), Status: number("status"), Attempts: number("attempts"),
		CreatedAt: at("createdAt"), NextAttemptAt: at("nextAttemptAt"), Deadline: at("deadline"),
		Organization: text("organization"), Environment: text("environment"), Repeated: repeated,
		Called: called, Action: text("action"), Writes: text("writes"), At: at("at"),
		Cause: text("cause"), Answer: text("answer"), App: text("app"), Since: at("since"), OpenAt: at("openAt"),
		Reads: text("reads"), By: text("by"), Until: at("until"),
		Content: content, Version: entity.ETag, WrittenAt: time.Time(entity.Timestamp).UTC(),
	}, nil
}

func hasCode(err error, code aztables.TableErrorCode) bool {
	response, ok := errors.AsType[*azcore.ResponseError](err)
	return ok && response.ErrorCode == string(code)
}

// isMissing reports whether the table or the row does not exist.
func isMissing(err error) bool {
	return hasCode(err, aztables.TableNotFound) || hasCode(err, aztables.ResourceNotFound) ||
		hasCode(err, aztables.EntityNotFound)
}
