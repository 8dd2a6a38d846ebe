package emulator

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"asynccaller/handler/internal/storage"
)

// guid is a value of a table that only clients other than Async Caller write, as int64 and float64.
type guid string

// timeFormat is that of Edm.DateTime.
const timeFormat = "2006-01-02T15:04:05.9999999Z"

// The service's limits on an entity
// (https://learn.microsoft.com/rest/api/storageservices/understanding-the-table-service-data-model).
const (
	maxKey        = 1 << 10
	maxName       = 255
	maxProperties = 252
	maxEntity     = 1 << 20
	minYear       = 1601
)

var (
	errKey      = &failure{http.StatusBadRequest, "OutOfRangeInput", "A key is too long, or has one of / \\ # ?"}
	errProperty = &failure{http.StatusBadRequest, "PropertyValueTooLarge", "A property has more than 64 KiB."}
)

func checkKey(key string) error {
	isBad := strings.ContainsAny(key, `/\#?`) || strings.ContainsFunc(key, unicode.IsControl)
	if isBad || len(key) > maxKey {
		return errKey
	}
	return nil
}

// decodeEntity reads an entity of JSON. A null is no value, and what the service sets is ignored.
func decodeEntity(body []byte) (entity storage.Entity, hasKey bool, err error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var members map[string]any
	if decoder.Decode(&members) != nil || decoder.More() {
		return entity, false, invalid("The entity is not a JSON object.")
	}
	partition, hasPartition := members["PartitionKey"].(string)
	id, hasID := members["RowKey"].(string)
	entity = storage.Entity{Key: storage.Key{Partition: partition, ID: id}, Values: map[string]any{}}
	size := 0
	for name, member := range members {
		if member == nil || isServices(name) {
			continue
		}
		edm, _ := members[name+typeSuffix].(string)
		value, bytes, ok := decodeValue(member, edm)
		if !ok || len(name) > maxName {
			return entity, false, invalid("A property has no value of its type.")
		}
		if bytes > storage.MaxPropertyBytes {
			return entity, false, errProperty
		}
		entity.Values[name] = value
		size += 2*len(name) + bytes
	}
	if size > maxEntity || len(entity.Values) > maxProperties {
		return entity, false, &failure{http.StatusBadRequest, "EntityTooLarge", "The entity is larger than 1 MiB."}
	}
	return entity, hasPartition && hasID, nil
}

const typeSuffix = "@odata.type"

// isServices reports whether a member of an entity is not a property that the client chooses.
func isServices(name string) bool {
	return name == "PartitionKey" || name == "RowKey" || name == "Timestamp" || name == "" ||
		strings.HasPrefix(name, "odata.") || strings.Contains(name, "@")
}

// decodeValue returns a value with a type, and its size.
func decodeValue(member any, edm string) (value any, size int, ok bool) {
	text, isText := member.(string)
	number, isNumber := member.(json.Number)
	switch edm {
	case "":
		boolean, isBool := member.(bool)
		switch {
		case isText:
			return decodeValue(member, "Edm.String")
		case isBool:
			return boolean, 1, true
		case isNumber && !strings.ContainsAny(string(number), ".eE"):
			return decodeValue(member, "Edm.Int32")
		}
		return decodeValue(member, "Edm.Double")
	case "Edm.String":
		return text, 2 * len(utf16.Encode([]rune(text))), isText
	case "Edm.Boolean":
		boolean, isBool := member.(bool)
		return boolean, 1, isBool
	case "Edm.Int32":
		n, err := strconv.ParseInt(string(number), 10, 32)
		return int32(n), 4, err == nil
	case "Edm.Int64":
		n, err := strconv.ParseInt(text+string(number), 10, 64)
		return n, 8, err == nil
	case "Edm.Double": // NaN and Infinity are texts
		x, err := strconv.ParseFloat(text+string(number), 64)
		return x, 8, err == nil
	case "Edm.DateTime":
		at, err := time.Parse(time.RFC3339, text)
		at = at.UTC().Truncate(100 * time.Nanosecond) // as the service does
		return at, 8, err == nil && at.Year() >= minYear && at.Year() <= 9999
	case "Edm.Guid":
		return guid(text), 16, isText && len(text) == 36
	case "Edm.Binary":
		content, err := base64.StdEncoding.DecodeString(text)
		return content, len(content), err == nil && isText
	}
	return nil, 0, false
}

// encodeEntity returns an entity with the selected properties, or all if that is nil.
func encodeEntity(entity storage.Entity, selected map[string]bool) map[string]any {
	members := map[string]any{"odata.etag": etag(entity.Version)}
	add := func(name string, value any, edm string) {
		if selected != nil && !selected[name] {
			return
		}
		members[name] = value
		if edm != "" {
			members[name+typeSuffix] = edm
		}
	}
	add("PartitionKey", entity.Partition, "")
	add("RowKey", entity.ID, "")
	add("Timestamp", entity.WrittenAt.Format(timeFormat), "")
	for name, value := range entity.Values {
		switch v := value.(type) {
		case int64:
			add(name, strconv.FormatInt(v, 10), "Edm.Int64")
		case float64:
			text := strconv.FormatFloat(v, 'g', -1, 64)
			switch {
			case math.IsNaN(v) || math.IsInf(v, 0):
				add(name, strings.TrimPrefix(strings.Replace(text, "Inf", "Infinity", 1), "+"), "Edm.Double")
			case strings.ContainsAny(text, ".e"):
				add(name, json.Number(text), "")
			default:
				add(name, json.Number(text+".0"), "")
			}
		case time.Time:
			add(name, v.Format(timeFormat), "Edm.DateTime")
		case guid:
			add(name, string(v), "Edm.Guid")
		case []byte:
			add(name, base64.StdEncoding.EncodeToString(v), "Edm.Binary")
		default:
			add(name, v, "")
		}
	}
	return members
}

// etag returns the ETag of a version. An answer that has one of another form is not taken for one of a table.
func etag(version string) string { return `W/"` + version + `"` }

// versionOf returns the version of an ETag; it is none if the ETag has another form.
func versionOf(tag string) string {
	version, isTag := strings.CutPrefix(tag, `W/"`)
	version, isQuoted := strings.CutSuffix(version, `"`)
	if tag == "" || tag == "*" {
		return tag
	}
	if !isTag || !isQuoted || version == "" || version == "*" {
		return "none"
	}
	return version
}
