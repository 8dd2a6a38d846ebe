package emulator

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// tables is the table service.
type tables struct {
	mu    sync.RWMutex // held by an operation on entities for reading, by one on tables for writing
	store memory.Tables
	// names has the names of the tables that exist, by the names in lower case.
	names map[string]string
}

func newTables() *tables { return &tables{names: map[string]string{}} }

const jsonType = "application/json"

// The forms of paths. Package memory has a table for each name in lower case.
var (
	tableName  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{2,62}$`)
	tablePath  = regexp.MustCompile(`^Tables\('([A-Za-z0-9]*)'\)$`)
	entityPath = regexp.MustCompile(`^([A-Za-z0-9]+)\(PartitionKey='((?:[^']|'')*)', ?RowKey='((?:[^']|'')*)'\)$`)
)

// The refusals of operations on tables and entities.
var (
	errNoTable   = &failure{http.StatusNotFound, "TableNotFound", "The table specified does not exist."}
	errNoEntity  = &failure{http.StatusNotFound, "ResourceNotFound", "The specified resource does not exist."}
	errIsTable   = &failure{http.StatusConflict, "TableAlreadyExists", "The table specified already exists."}
	errIsEntity  = &failure{http.StatusConflict, "EntityAlreadyExists", "The specified entity already exists."}
	errCondition = &failure{
		http.StatusPreconditionFailed, "UpdateConditionNotSatisfied",
		"The update condition specified in the request was not satisfied.",
	}
	errNoKey = &failure{http.StatusBadRequest, "PropertiesNeedValue", "The values are not specified for all keys."}
)

// describe implements [api].
func (*tables) describe(f *failure) ([]byte, string) {
	message := map[string]string{"lang": "en-US", "value": f.message}
	return encodeJSON(map[string]any{"odata.error": map[string]any{"code": f.code, "message": message}}), jsonType
}

func encodeJSON(document any) []byte {
	encoded, _ := json.Marshal(document) // all of them can be encoded
	return encoded
}

// do implements [api].
func (t *tables) do(r *request) (reply, error) {
	named := tablePath.FindStringSubmatch(r.path)
	if r.path == "Tables" || named != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
	}
	switch {
	case r.path == "Tables" && r.Method == http.MethodGet:
		return t.list(r)
	case r.path == "Tables" && r.Method == http.MethodPost:
		return t.create(r)
	case named != nil && r.Method == http.MethodDelete:
		return t.drop(r, named[1])
	case r.path == "$batch" && r.Method == http.MethodPost:
		return t.transact(r)
	}
	keys := entityPath.FindStringSubmatch(r.path)
	name := strings.TrimSuffix(r.path, "()")
	switch {
	case tableName.MatchString(name) && r.Method == http.MethodGet && !r.query.Has("comp"):
		return t.query(r, name)
	case keys != nil && r.Method == http.MethodGet:
		return t.get(r, keys[1], unquote(keys[2]), unquote(keys[3]))
	}
	return t.write(r)
}

func unquote(text string) string { return strings.ReplaceAll(text, "''", "'") }

// list lists tables.
func (t *tables) list(r *request) (reply, error) {
	selects, err := parseFilter(r.query.Get("$filter"))
	if err == nil {
		err = r.grant.check(need{service: tableService, resourceType: "c", oneOf: "l"})
	}
	if err != nil {
		return reply{}, err
	}
	limit, err := number(r, "$top", maxPage)
	if err != nil || limit < 1 {
		return reply{}, invalid("$top is not a number from 1 on.")
	}
	first := r.query.Get("NextTableName")
	listed := []map[string]string{}
	for _, name := range slices.Sorted(maps.Values(t.names)) {
		if name < first || !selects(storage.Entity{Key: storage.Key{ID: name}}) {
			continue
		}
		if len(listed) == min(limit, maxPage) {
			r.header.Set("X-Ms-Continuation-Nexttablename", name)
			break
		}
		listed = append(listed, map[string]string{"TableName": name})
	}
	return r.json(http.StatusOK, "Tables", map[string]any{"value": listed}), nil
}

func (t *tables) create(r *request) (reply, error) {
	if err := r.grant.check(need{service: tableService, resourceType: "c", oneOf: "cw"}); err != nil {
		return reply{}, err
	}
	var table struct{ TableName string }
	if json.Unmarshal(r.content, &table) != nil || !tableName.MatchString(table.TableName) ||
		strings.EqualFold(table.TableName, "tables") {
		return reply{}, &failure{http.StatusBadRequest, "InvalidResourceName", "The name is not one of a table."}
	}
	lower := strings.ToLower(table.TableName)
	if t.names[lower] != "" {
		return reply{}, errIsTable
	}
	t.names[lower] = table.TableName
	return r.created("Tables/@Element", map[string]any{"TableName": table.TableName}), nil
}

func (t *tables) drop(r *request, name string) (reply, error) {
	if err := r.grant.check(need{service: tableService, resourceType: "c", oneOf: "d"}); err != nil {
		return reply{}, err
	}
	lower := strings.ToLower(name)
	if t.names[lower] == "" {
		return reply{}, errNoEntity
	}
	delete(t.names, lower)
	return reply{status: http.StatusNoContent}, t.store.Drop(context.WithoutCancel(r.Context()), lower)
}

// open returns a table that exists, if the credential permits an operation on its entities.
func (t *tables) open(r *request, name, oneOf string) (*memory.Table, error) {
	n := need{service: tableService, resourceType: "o", oneOf: oneOf, resource: name}
	if err := r.grant.check(n); err != nil {
		return nil, err
	}
	lower := strings.ToLower(name)
	if t.names[lower] == "" {
		return nil, errNoTable
	}
	return t.store.Open(lower), nil
}

func (t *tables) get(r *request, name, partition, id string) (reply, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	table, err := t.open(r, name, "r")
	if err != nil {
		return reply{}, err
	}
	entity, found, err := table.Get(r.Context(), partition, id)
	if !found && err == nil {
		err = errNoEntity
	}
	if err != nil {
		return reply{}, err
	}
	r.header.Set("Etag", etag(entity.Version))
	return r.json(http.StatusOK, name+"/@Element", encodeEntity(entity, r.selected())), nil
}

// The limits of a page, which are those of the service. One entity is listed in any case.
const (
	maxPage      = 1000
	maxPageBytes = 4 << 20
)

// query lists entities in their order.
func (t *tables) query(r *request, name string) (reply, error) {
	selects, err := parseFilter(r.query.Get("$filter"))
	if err != nil {
		return reply{}, err
	}
	limit, err := number(r, "$top", maxPage)
	if err != nil || limit < 1 {
		return reply{}, invalid("$top is not a number from 1 on.")
	}
	partition, err := base64.RawURLEncoding.DecodeString(r.query.Get("NextPartitionKey"))
	id, err2 := base64.RawURLEncoding.DecodeString(r.query.Get("NextRowKey"))
	if err != nil || err2 != nil {
		return reply{}, invalid("The continuation is not one of the emulator.")
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	table, err := t.open(r, name, "r")
	if err != nil {
		return reply{}, err
	}
	rows, size := []json.RawMessage{}, 0
	selected := r.selected()
	err = table.List(r.Context(), storage.Query{}, func(entity storage.Entity) error {
		order := cmp.Or(cmp.Compare(entity.Partition, string(partition)), cmp.Compare(entity.ID, string(id)))
		if order < 0 || !selects(entity) {
			return nil
		}
		row := encodeJSON(encodeEntity(entity, selected))
		if len(rows) == min(limit, maxPage) || size > 0 && size+len(row) > maxPageBytes {
			encode := base64.RawURLEncoding.EncodeToString
			r.header.Set("X-Ms-Continuation-Nextpartitionkey", encode([]byte(entity.Partition)))
			r.header.Set("X-Ms-Continuation-Nextrowkey", encode([]byte(entity.ID)))
			return errPageEnds
		}
		rows, size = append(rows, row), size+len(row)
		return nil
	})
	if err != nil && !errors.Is(err, errPageEnds) {
		return reply{}, err
	}
	return r.json(http.StatusOK, name, map[string]any{"value": rows}), nil
}

// errPageEnds ends the listing of a page.
var errPageEnds = errors.New("the page ends")

// write makes one change outside of a transaction.
func (t *tables) write(r *request) (reply, error) {
	name, change, err := changeOf(r)
	if err != nil {
		return reply{}, err
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	versions, _, err := t.change(r, name, []memory.Change{change})
	if err != nil {
		return reply{}, err
	}
	if versions[0] != "" {
		r.header.Set("Etag", etag(versions[0]))
	}
	if change.Effect != memory.Insert {
		return reply{status: http.StatusNoContent}, nil
	}
	entity, _, err := t.store.Open(strings.ToLower(name)).Get(r.Context(), change.Partition, change.ID)
	return r.created(name+"/@Element", encodeEntity(entity, nil)), err
}

// change makes changes of one table that the credential permits.
func (t *tables) change(r *request, name string, changes []memory.Change) (versions []string, failed int, err error) {
	var table *memory.Table
	for i, change := range changes {
		for _, permission := range permissions(change) {
			table, err = t.open(r, name, permission)
			if err != nil {
				return nil, i, err
			}
		}
	}
	versions, failed, err = table.Change(r.Context(), changes)
	switch {
	case errors.Is(err, memory.ErrExists):
		err = errIsEntity
	case errors.Is(err, memory.ErrMissing):
		err = errNoEntity
	case errors.Is(err, memory.ErrVersion):
		err = errCondition
	}
	return versions, failed, err
}

// permissions returns all permissions that a change needs.
func permissions(change memory.Change) []string {
	switch {
	case change.Effect == memory.Insert:
		return []string{"a"}
	case change.Effect == memory.Remove:
		return []string{"d"}
	case change.Version == "":
		return []string{"a", "u"}
	}
	return []string{"u"}
}

// changeOf returns what a request to write an entity changes.
func changeOf(r *request) (table string, change memory.Change, err error) {
	keys := entityPath.FindStringSubmatch(r.path)
	effect, isWrite := map[string]memory.Effect{
		http.MethodPut: memory.Replace, http.MethodPatch: memory.Merge, "MERGE": memory.Merge,
		http.MethodDelete: memory.Remove,
	}[r.Method]
	isInsert := tableName.MatchString(r.path) && r.Method == http.MethodPost
	if !isInsert && (keys == nil || !isWrite) || r.query.Has("comp") {
		return "", change, errUnsupported
	}
	if isInsert {
		entity, hasKey, err := decodeEntity(r.content)
		if err == nil && !hasKey {
			err = errNoKey
		}
		change = memory.Change{Effect: memory.Insert, Entity: entity}
		return r.path, change, errorsOf(err, entity.Key)
	}
	if effect != memory.Remove {
		change.Entity, _, err = decodeEntity(r.content)
	}
	change.Effect = effect
	version := versionOf(r.Header.Get("If-Match"))
	if effect == memory.Remove && version == "" {
		return "", change, &failure{http.StatusBadRequest, "MissingRequiredHeader", "If-Match is missing."}
	}
	change.Key = storage.Key{Partition: unquote(keys[2]), ID: unquote(keys[3]), Version: version}
	return keys[1], change, errorsOf(err, change.Key)
}

// errorsOf returns an error, or what is wrong with a key.
func errorsOf(err error, key storage.Key) error {
	if err == nil {
		err = checkKey(key.Partition)
	}
	if err == nil {
		err = checkKey(key.ID)
	}
	return err
}

// selected returns the names of $select; nil means all.
func (r *request) selected() map[string]bool {
	names := r.query.Get("$select")
	if names == "" || names == "*" {
		return nil
	}
	selected := map[string]bool{}
	for name := range strings.SplitSeq(names, ",") {
		selected[strings.TrimSpace(name)] = true
	}
	return selected
}

// json returns an answer with a document, and adds what it is. The types of values are those of minimal metadata,
// whatever the client accepts.
func (r *request) json(status int, what string, members map[string]any) reply {
	members["odata.metadata"] = r.base + "/$metadata#" + what
	return reply{status, jsonType + ";odata=minimalmetadata;charset=utf-8", encodeJSON(members)}
}

// created returns the answer to a creation, with what was created if the client wants it.
func (r *request) created(what string, members map[string]any) reply {
	if r.Header.Get("Prefer") == "return-no-content" {
		r.header.Set("Preference-Applied", "return-no-content")
		return reply{status: http.StatusNoContent}
	}
	return r.json(http.StatusCreated, what, members)
}
