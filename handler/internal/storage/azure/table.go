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

	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/storage"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
)

// Table is a table in Table Storage. Its requests and errors
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

// Put implements [storage.Table]. One entity alone is no transaction: that takes less time, and the answer says why it
// was refused.
func (t *Table) Put(ctx context.Context, entities []storage.Entity) error {
	actions := actionsOf(aztables.TransactionTypeInsertReplace, entities)
	write := func() error { return t.submit(ctx, actions) }
	if len(actions) == 1 {
		write = func() error { return t.upsert(ctx, actions[0].Entity) }
	}
	return t.write(ctx, write)
}

// Insert implements [storage.Table].
func (t *Table) Insert(ctx context.Context, entities []storage.Entity) error {
	actions := actionsOf(aztables.TransactionTypeAdd, entities)
	return t.write(ctx, func() error {
		err := errTransaction
		if len(actions) > 1 {
			err = t.submit(ctx, actions)
		}
		if errors.Is(err, errTransaction) { // there is one of them
			err = t.insertEach(ctx, actions)
		}
		return err
	})
}

func (t *Table) insertEach(ctx context.Context, actions []aztables.TransactionAction) error {
	for _, action := range actions {
		_, err := t.table.AddEntity(ctx, action.Entity, nil)
		if err != nil && !hasCode(err, aztables.EntityAlreadyExists) {
			return err
		}
	}
	return nil
}

func actionsOf(kind aztables.TransactionType, entities []storage.Entity) []aztables.TransactionAction {
	actions := make([]aztables.TransactionAction, len(entities))
	for i, entity := range entities {
		actions[i] = aztables.TransactionAction{ActionType: kind, Entity: encode(entity)}
	}
	return actions
}

// write writes entities, and creates the table if it is missing.
func (t *Table) write(ctx context.Context, write func() error) error {
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
func (t *Table) Replace(ctx context.Context, entity storage.Entity) (version string, err error) {
	err = t.do("write", func() error {
		var err error
		version, err = t.replace(ctx, encode(entity), entity.Version)
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
func (t *Table) Delete(ctx context.Context, keys []storage.Key) error {
	actions := make([]aztables.TransactionAction, len(keys))
	for i, key := range keys {
		actions[i] = aztables.TransactionAction{
			ActionType: aztables.TransactionTypeDelete, Entity: encode(storage.Entity{Key: key}), IfMatch: etag(key),
		}
	}
	return t.do("delete from", func() error {
		err := errTransaction
		if len(keys) > 1 {
			err = t.submit(ctx, actions)
		}
		if errors.Is(err, errTransaction) || isMissing(err) { // an entity is missing, or has another version
			err = t.deleteEach(ctx, keys)
		}
		return err
	})
}

func (t *Table) deleteEach(ctx context.Context, keys []storage.Key) error {
	for _, key := range keys {
		_, err := t.table.DeleteEntity(ctx, key.Partition, key.ID, &aztables.DeleteEntityOptions{IfMatch: etag(key)})
		if err != nil && !isMissing(err) && !hasCode(err, aztables.UpdateConditionNotSatisfied) {
			return err
		}
	}
	return nil
}

func etag(key storage.Key) *azcore.ETag {
	return new(azcore.ETag(cmp.Or(key.Version, string(azcore.ETagAny))))
}

// errTransaction means that the service refused an entity of a transaction, and with it the others.
var errTransaction = fmt.Errorf("an entity of the transaction: %w", storage.ErrRefused)

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
func (t *Table) Get(ctx context.Context, partition, id string) (entity storage.Entity, found bool, err error) {
	err = t.do("read", func() error {
		resp, err := t.table.GetEntity(ctx, partition, id, nil)
		switch {
		case isMissing(err):
			return nil
		case err == nil:
			entity, err = t.decode(resp.Value)
			found = err == nil
		}
		return err
	})
	return entity, found, err
}

// List implements [storage.Table].
func (t *Table) List(ctx context.Context, q storage.Query, see func(storage.Entity) error) error {
	var options aztables.ListEntitiesOptions
	if q.Select != nil {
		keys := []string{"PartitionKey", "RowKey", "Timestamp"}
		options.Select = new(strings.Join(append(keys, q.Select...), ","))
	}
	var conditions []string
	if q.Partition != "" {
		conditions = append(conditions, "PartitionKey eq '"+strings.ReplaceAll(q.Partition, "'", "''")+"'")
	}
	if q.IDPrefix != "" {
		conditions = append(conditions, withPrefix("RowKey", q.IDPrefix))
	}
	comparisons := map[string]time.Time{"Timestamp gt": q.WrittenAfter, "Timestamp lt": q.WrittenBefore}
	for name, at := range q.Before {
		comparisons[name+" lt"] = at
	}
	for comparison, at := range comparisons {
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
		for _, encoded := range page.Entities {
			entity, err := t.decode(encoded)
			if err == nil {
				err = see(entity)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// encode returns an entity as JSON.
func encode(entity storage.Entity) []byte {
	properties := map[string]any{"PartitionKey": entity.Partition, "RowKey": entity.ID}
	for name, value := range entity.Values {
		properties[name] = value
		switch v := value.(type) {
		case time.Time:
			properties[name], properties[name+"@odata.type"] = aztables.EDMDateTime(v.UTC()), "Edm.DateTime"
		case []byte:
			properties[name+"@odata.type"] = "Edm.Binary"
		}
	}
	encoded, _ := strictjson.Line(properties) // texts, numbers and times that JSON can write
	return encoded
}

// decode returns an entity of JSON.
func (t *Table) decode(encoded []byte) (storage.Entity, error) {
	var decoded aztables.EDMEntity
	if err := json.Unmarshal(encoded, &decoded); err != nil {
		return storage.Entity{}, describe("decode entity of table "+t.name, err)
	}
	values := decoded.Properties
	for name, value := range values {
		switch v := value.(type) {
		case string, int32, bool:
		case aztables.EDMDateTime:
			values[name] = time.Time(v)
		case aztables.EDMBinary:
			values[name] = []byte(v)
		default: // of another type
			delete(values, name)
		}
	}
	return storage.Entity{Values: values, Key: storage.Key{
		Partition: decoded.PartitionKey, ID: decoded.RowKey,
		Version: decoded.ETag, WrittenAt: time.Time(decoded.Timestamp).UTC(),
	}}, nil
}

func hasCode(err error, code aztables.TableErrorCode) bool {
	response, ok := errors.AsType[*azcore.ResponseError](err)
	return ok && response.ErrorCode == string(code)
}

// isMissing reports whether the table or the entity does not exist.
func isMissing(err error) bool {
	return hasCode(err, aztables.TableNotFound) || hasCode(err, aztables.ResourceNotFound) ||
		hasCode(err, aztables.EntityNotFound)
}
