package ingress

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/rules/envelope"
)

// buffers hold bodies until they are decoded, which is before the call. Without reuse a call of 48 KiB in flight takes
// more than 200 KiB of memory (docs/performance.md).
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// readMessage reads the host's POST for a function whose binding has the given name: the message's content, its id and
// dequeue count and, if the message's body cannot forge it, the lease. Metadata is a hint: with dataType "string" a
// message's body can overwrite it (docs/host.md, "Forgeable metadata"), and any member may be missing, as in a manual
// run (docs/host.md, "Metadata").
func readMessage(m *delivery.Message, body io.Reader, binding string) error {
	buffer := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(buffer)
	buffer.Reset()
	if _, err := buffer.ReadFrom(body); err != nil {
		return err
	}
	invocation, err := strictjson.Object(buffer.Bytes())
	if err != nil {
		return err
	}
	data, dataErr := membersOf(invocation, "Data")
	metadata, metadataErr := membersOf(invocation, "Metadata")
	if err := cmp.Or(dataErr, metadataErr); err != nil {
		return err
	}
	value := find(data, binding).Value
	if value == nil {
		return fmt.Errorf("no member Data.%s: is %s the name of the binding in function.json?", binding, binding)
	}
	content, forgeable, err := decodeContent(value)
	if err != nil {
		return fmt.Errorf("member Data.%s: %w", binding, err)
	}
	m.Content = content
	m.ID, m.DequeueCount = hintText(metadata, "Id"), hintNumber(metadata, "DequeueCount")
	if !forgeable {
		expires, _ := time.Parse(time.RFC3339, hintText(metadata, "ExpirationTime"))
		inserted, _ := time.Parse(time.RFC3339, hintText(metadata, "InsertionTime"))
		m.Lease = settle.Lease{
			ID: m.ID, PopReceipt: hintText(metadata, "PopReceipt"), DequeueCount: m.DequeueCount,
			InsertedAt: inserted, ExpiresAt: expires,
		}
	}
	if !envelope.ValidRequestID(m.ID) {
		m.ID = m.InvocationID // the name of a call whose envelope has no request id
	}
	return nil
}

// membersOf returns the members of an object in the invocation; none if it is missing or null.
func membersOf(invocation []strictjson.Member, name string) ([]strictjson.Member, error) {
	member := find(invocation, name)
	if member.Value == nil || strictjson.IsNull(member.Value) {
		return nil, nil
	}
	members, err := member.Object()
	return members, strictjson.In(name, err)
}

// find returns the member of a name, or one without a value.
func find(members []strictjson.Member, name string) strictjson.Member {
	for _, m := range members {
		if m.Name == name {
			return m
		}
	}
	return strictjson.Member{}
}

// decodeContent returns the message's content. With dataType "binary" the host encodes it as base64. With dataType
// "string" the host writes JSON text, which begins with a quote as base64 never does (docs/host.md, "Message content").
func decodeContent(data json.RawMessage) (content []byte, forgeable bool, err error) {
	if data[0] != '"' {
		return nil, false, errors.New("want a string")
	}
	text := data[1 : len(data)-1]
	if bytes.IndexByte(text, '\\') >= 0 { // base64 has no escapes, and unquoting it would cost as much as decoding it
		text, _ = jsontext.AppendUnquote(nil, data) // data is valid
	}
	if bytes.HasPrefix(text, []byte(`"`)) {
		content, err = jsontext.AppendUnquote(nil, text)
		if err != nil {
			return nil, true, fmt.Errorf("text content is not a JSON string: %w", err)
		}
		return content, true, nil
	}
	content = make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(content, text)
	if err != nil {
		const problem = `neither base64 (dataType "binary") nor a JSON string in a string (dataType "string")`
		return nil, false, fmt.Errorf("%s: %w", problem, err)
	}
	return content[:n], false, nil
}

// hintText reads a text of Metadata, which the host encodes twice. It returns "" for anything else.
func hintText(metadata []strictjson.Member, name string) string {
	value := find(metadata, name).Value
	if value == nil {
		return ""
	}
	text, _ := strictjson.Bytes(value)
	if bytes.HasPrefix(text, []byte(`"`)) {
		if inner, err := jsontext.AppendUnquote(nil, text); err == nil {
			return string(inner)
		}
	}
	return string(text)
}

// hintNumber reads a number of Metadata, which the host writes as a string and Microsoft documents as a number. It
// returns 0 for anything else.
func hintNumber(metadata []strictjson.Member, name string) int64 {
	text := cmp.Or(hintText(metadata, name), string(find(metadata, name).Value))
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return max(n, 0)
}
