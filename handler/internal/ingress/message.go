package ingress

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"asynccaller/handler/internal/delivery"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/settle"
)

// invocationBody is the part of the host's POST that is read (host-contract A).
type invocationBody struct {
	// Data has one member, named after the function's binding.
	Data map[string]messageData
	// Metadata is a hint: with dataType "string" a message's body can overwrite it. Any member may be missing, as
	// in a manual run.
	Metadata struct {
		ID             any `json:"Id"`
		DequeueCount   any
		PopReceipt     any
		ExpirationTime any
	}
}

// buffers hold bodies until they are decoded, which is before the call. Without reuse a call of 48 KiB in flight takes
// more than 200 KiB of memory (docs/performance.md).
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// readMessage reads the host's POST for a function whose binding has the given name: the message's content, its id
// and dequeue count and, if the message's body cannot forge it, the lease. It uses go-json-experiment, because
// with encoding/json calls of 48 KiB do not reach 0.55 of a bare forwarder's rate (docs/performance.md).
func readMessage(m *delivery.Message, body io.Reader, binding string) error {
	buffer := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(buffer)
	buffer.Reset()
	if _, err := buffer.ReadFrom(body); err != nil {
		return err
	}
	var in invocationBody
	if err := json.Unmarshal(buffer.Bytes(), &in); err != nil {
		return fmt.Errorf("not JSON in the host's form: %w", err)
	}
	data, ok := in.Data[binding]
	if !ok {
		return fmt.Errorf("no member Data.%s: is %s the name of the binding in function.json?", binding, binding)
	}
	if data.err != nil {
		return fmt.Errorf("member Data.%s: %w", binding, data.err)
	}
	m.Content = data.content
	m.ID, m.DequeueCount = hintText(in.Metadata.ID), hintNumber(in.Metadata.DequeueCount)
	if !data.forgeable {
		expires, _ := time.Parse(time.RFC3339, hintText(in.Metadata.ExpirationTime))
		m.Lease = settle.Lease{
			ID: m.ID, PopReceipt: hintText(in.Metadata.PopReceipt), DequeueCount: m.DequeueCount, ExpiresAt: expires,
		}
	}
	if !envelope.ValidRequestID(m.ID) {
		m.ID = m.InvocationID // the name of a call whose envelope has no request id
	}
	return nil
}

// messageData is the decoded content of a message, or why it cannot be decoded.
type messageData struct {
	content []byte
	// forgeable is true if the message's body can overwrite the metadata.
	forgeable bool
	err       error
}

// UnmarshalJSONFrom decodes a member of Data in the decoder's buffer, because a copy of 64 KiB counts for the limits
// of calls of 48 KiB (docs/performance.md).
func (d *messageData) UnmarshalJSONFrom(decoder *jsontext.Decoder) error {
	value, err := decoder.ReadValue()
	if err == nil {
		d.content, d.forgeable, d.err = decodeContent(value)
	}
	return err
}

// decodeContent returns the message's content. With dataType "binary" the host encodes it as base64. With dataType
// "string" the host writes JSON text, which begins with a quote as base64 never does.
func decodeContent(data jsontext.Value) (content []byte, forgeable bool, err error) {
	if data.Kind() != '"' {
		return nil, false, errors.New("want a string")
	}
	text := data[1 : len(data)-1]
	if bytes.IndexByte(text, '\\') >= 0 { // base64 has no escapes, and unquoting it would cost as much as decoding it
		text, _ = jsontext.AppendUnquote(nil, data) // data is valid
	}
	if bytes.HasPrefix(text, []byte(`"`)) {
		if content, err = jsontext.AppendUnquote(nil, text); err != nil {
			return nil, true, fmt.Errorf("text content is not a JSON string: %w", err)
		}
		return content, true, nil
	}
	content, err = base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		return nil, false, fmt.Errorf(`neither base64 (dataType "binary") nor a JSON string in a string (dataType "string"): %w`, err)
	}
	return content, false, nil
}

// hintText reads a text of Metadata, which the host encodes twice; anything else is "".
func hintText(value any) string {
	text, _ := value.(string)
	var inner string
	if json.Unmarshal([]byte(text), &inner) == nil {
		return inner
	}
	return text
}

// hintNumber reads a number of Metadata, which the host writes as a string and Microsoft documents as a number;
// anything else is 0.
func hintNumber(value any) int64 {
	text := hintText(value)
	if number, ok := value.(float64); ok {
		text = strconv.FormatFloat(number, 'f', -1, 64)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return max(n, 0)
}
