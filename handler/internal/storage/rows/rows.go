// Package rows converts rows, which are structs, to entities of tables and back. The struct is the only declaration of
// its row: it embeds [storage.Key], and the tag `row:"name"` of an exported member names the value of the entity. A
// member of an embedded struct counts, too. One without a tag is not stored. The types are:
//
//   - string: at most [MaxText] bytes, as [Text] returns it
//   - int: from 0 to 2^31-1, others become the nearest of these
//   - bool
//   - time.Time: of the years 1602 to 9999, others are left out
//   - []byte: at most [storage.MaxPropertyBytes]; only in a listing by [ListWhole]
//
// Zero values are left out. A value that is missing, or has another type, is read as zero. A row with less than ten
// []byte members is never larger than the 1 MiB that storage takes.
package rows

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"asynccaller/handler/internal/storage"
)

// MaxText is the length of the longest text of a row in bytes. What is longer is cut off.
const MaxText = 1 << 10

// Text returns a text as a row has it: at most [MaxText] bytes, without the characters that tables refuse. It shares no
// memory with the text, which may be a small part of a large message.
func Text(text string) string {
	return strings.Clone(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r >= unicode.ReplacementChar && r <= '\uffff' {
			return -1
		}
		return r
	}, text[:min(len(text), MaxText)]))
}

// KeyOf returns a text that a key can hold, and that is different for different texts. It is the text itself if that
// consists of letters, digits, dots, hyphens and underscores.
func KeyOf(text string) string {
	var escaped strings.Builder
	for i := range len(text) {
		c := text[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '-', c == '_':
			escaped.WriteByte(c)
		default:
			fmt.Fprintf(&escaped, "=%02X", c)
		}
	}
	return escaped.String()
}

// The service stores times after the year 1601.
const minYear, maxYear = 1602, 9999

// keyName is the name of the embedded [storage.Key].
const keyName = "Key"

// member is a member of a row.
type member struct {
	name  string
	index []int
	large bool
}

// layouts has the []member of each type of row.
var layouts sync.Map

// layout returns the members of a type.
func layout(row reflect.Type) []member {
	if known, ok := layouts.Load(row); ok {
		members, _ := known.([]member)
		return members
	}
	var members []member
	for _, field := range reflect.VisibleFields(row) {
		if name := field.Tag.Get("row"); name != "" {
			members = append(members, member{name, field.Index, field.Type == reflect.TypeFor[[]byte]()})
		}
	}
	layouts.Store(row, members)
	return members
}

// Encode returns the entity of a row. It shares no memory with the row. The error is an [storage.ErrRefused] that names
// the member that is too large.
func Encode(row any) (storage.Entity, error) {
	v := reflect.ValueOf(row)
	key, _ := reflect.TypeAssert[storage.Key](v.FieldByName(keyName))
	key.Partition, key.ID, key.Version = strings.Clone(key.Partition), strings.Clone(key.ID), strings.Clone(key.Version)
	members := layout(v.Type())
	entity := storage.Entity{Key: key, Values: make(map[string]any, len(members))}
	for _, m := range members {
		value, err := encode(v.FieldByIndex(m.index))
		if err != nil {
			return storage.Entity{}, fmt.Errorf("row %s: %s %w", key.ID, m.name, err)
		}
		if value != nil {
			entity.Values[m.name] = value
		}
	}
	return entity, nil
}

// encode returns the value of a member; nil if it is left out. It panics if no row can have its type.
func encode(v reflect.Value) (any, error) {
	if v.IsZero() {
		return nil, nil
	}
	switch {
	case v.Kind() == reflect.String:
		return Text(v.String()), nil
	case v.CanInt():
		return int32(min(max(v.Int(), 0), math.MaxInt32)), nil
	}
	switch value := v.Interface().(type) {
	case time.Time:
		value = value.UTC()
		if value.Year() < minYear || value.Year() > maxYear { // a sender chooses it
			return nil, nil
		}
		return value, nil
	case []byte:
		if n := len(value); n > storage.MaxPropertyBytes {
			return nil, fmt.Errorf("has %d bytes, more than %d: %w", n, storage.MaxPropertyBytes, storage.ErrRefused)
		}
		return bytes.Clone(value), nil
	case bool:
		return value, nil
	default:
		panic(fmt.Sprintf("a row has a %T", value))
	}
}

// Decode returns the row of an entity.
func Decode[T any](entity storage.Entity) (row T) {
	v := reflect.ValueOf(&row).Elem()
	v.FieldByName(keyName).Set(reflect.ValueOf(entity.Key))
	for _, m := range layout(v.Type()) {
		value := reflect.ValueOf(entity.Values[m.name])
		target := v.FieldByIndex(m.index)
		switch {
		case !value.IsValid():
		case value.Type() == target.Type():
			target.Set(value)
		case target.CanInt() && value.CanInt():
			target.SetInt(value.Int())
		}
	}
	return row
}

// Put writes rows of one partition, as [storage.Table] does.
func Put[T any](ctx context.Context, table storage.Table, rows ...T) error {
	return write(ctx, table.Put, rows)
}

// Insert writes rows of one partition that are not there, as [storage.Table] does.
func Insert[T any](ctx context.Context, table storage.Table, rows ...T) error {
	return write(ctx, table.Insert, rows)
}

func write[T any](ctx context.Context, write func(context.Context, []storage.Entity) error, rows []T) error {
	entities := make([]storage.Entity, len(rows))
	for i, row := range rows {
		entity, err := Encode(row)
		if err != nil {
			return err
		}
		entities[i] = entity
	}
	return write(ctx, entities)
}

// maxDeleted is how many rows of a partition a table deletes at once.
const maxDeleted = 100

// Delete deletes any number of rows of one partition, and repeats what gets no answer. Deleted is the number of those
// whose deletion was acknowledged, or which were not there.
func Delete(ctx context.Context, table storage.Table, keys []storage.Key) (deleted int, err error) {
	for chunk := range slices.Chunk(keys, maxDeleted) {
		_, err := storage.Retry(ctx, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, table.Delete(ctx, chunk)
		})
		if err != nil {
			return deleted, err
		}
		deleted += len(chunk)
	}
	return deleted, nil
}

// Replace writes a row under the condition of its version, as [storage.Table] does.
func Replace(ctx context.Context, table storage.Table, row any) (version string, err error) {
	entity, err := Encode(row)
	if err != nil {
		return "", err
	}
	return table.Replace(ctx, entity)
}

// Get returns a row, as [storage.Table] does.
func Get[T any](ctx context.Context, table storage.Table, partition, id string) (row T, found bool, err error) {
	entity, found, err := table.Get(ctx, partition, id)
	return Decode[T](entity), found, err
}

// ErrStop ends a listing that returns it from see. The listing then returns no error.
var ErrStop = errors.New("stop the listing")

// List shows the selected rows without their []byte members, as [storage.Table] does.
func List[T any](ctx context.Context, table storage.Table, q storage.Query, see func(T) error) error {
	q.Select = []string{}
	for _, m := range layout(reflect.TypeFor[T]()) {
		if !m.large {
			q.Select = append(q.Select, m.name)
		}
	}
	return ListWhole(ctx, table, q, see)
}

// ListWhole shows the selected rows.
func ListWhole[T any](ctx context.Context, table storage.Table, q storage.Query, see func(T) error) error {
	err := table.List(ctx, q, func(entity storage.Entity) error { return see(Decode[T](entity)) })
	if errors.Is(err, ErrStop) {
		return nil
	}
	return err
}
