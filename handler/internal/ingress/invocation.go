package ingress

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/settle"
	"asynccaller/handler/internal/strictjson"
)

// invocation is what we take from the host's POST.
type invocation struct {
	// Content is the message's decoded body.
	Content []byte
	// MessageID and DequeueCount come from Metadata. They are a hint: with dataType "string" a message's
	// body can overwrite them. MessageID is empty and DequeueCount 0 when the host gave none, as on a
	// manual run.
	MessageID    string
	DequeueCount int64
	// Lease is zero unless it is wanted and the host vouches for every part of it: a body that could write it
	// could have us overwrite other messages.
	Lease settle.Lease
}

// parseInvocation reads the body of the host's POST for a function whose binding has the given name. What it
// returns shares no memory with the body.
//
// The host hands content over in two ways. With dataType "binary" Data holds plain base64; otherwise it
// holds a string that is itself JSON text, and so begins with a quote, which base64 never does.
func parseInvocation(body []byte, binding string, withLease bool) (invocation, error) {
	p, ok := readParts(body, binding)
	if !ok {
		var err error
		if p, err = readOddParts(body, binding); err != nil {
			return invocation{}, err
		}
	}
	content, dataType, err := parseContent(p.data)
	if err != nil {
		return invocation{}, fmt.Errorf("member Data.%s: %w", binding, err)
	}
	in := invocation{
		Content:      content,
		MessageID:    hintText(p.id),
		DequeueCount: hintNumber(p.dequeueCount),
	}
	if withLease && dataType == functionapp.DataBinary {
		in.Lease = settle.Lease{
			ID:           in.MessageID,
			PopReceipt:   hintText(p.popReceipt),
			DequeueCount: in.DequeueCount,
			ExpiresAt:    hintTime(p.expirationTime),
		}
	}
	return in, nil
}

// parts are what we read of an invocation, as the host wrote it: the binding's member of Data, and members of
// Metadata. Absent ones are nil.
type parts struct {
	data                                         json.RawMessage
	id, dequeueCount, popReceipt, expirationTime json.RawMessage
}

// readParts reads an invocation of just the form that the host gives it, and decodes nothing. It is not ok for
// any other that encoding/json may understand: Data twice, a name in other letter case or with escapes.
func readParts(body []byte, binding string) (p parts, ok bool) {
	var data, metadata bool
	ok = strictjson.Read(body, func(name, value []byte) bool {
		switch {
		case string(name) == `"Data"` && !data:
			data = true
			return strictjson.Each(value, func(name, value []byte) bool { return p.setData(name, value, binding) })
		case string(name) == `"Metadata"` && !metadata:
			metadata = true
			return strictjson.Each(value, p.setMetadata)
		}
		return !escaped(name) && !bytes.EqualFold(name, []byte(`"Data"`)) && !bytes.EqualFold(name, []byte(`"Metadata"`))
	})
	return p, ok && p.data != nil
}

func (p *parts) setData(name, value []byte, binding string) bool {
	if string(name[1:len(name)-1]) == binding {
		p.data = value
	}
	return !escaped(name)
}

func (p *parts) setMetadata(name, value []byte) bool {
	switch string(name) {
	case `"Id"`:
		p.id = value
	case `"DequeueCount"`:
		p.dequeueCount = value
	case `"PopReceipt"`:
		p.popReceipt = value
	case `"ExpirationTime"`:
		p.expirationTime = value
	}
	return !escaped(name)
}

func escaped(name []byte) bool { return bytes.IndexByte(name, '\\') >= 0 }

// readOddParts reads whatever encoding/json takes for an invocation. Its errors tell what is wrong with one.
func readOddParts(body []byte, binding string) (parts, error) {
	var request struct {
		Data     map[string]json.RawMessage
		Metadata map[string]json.RawMessage
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return parts{}, fmt.Errorf("the invocation is not JSON of the host's form: %w", err)
	}
	data, ok := request.Data[binding]
	if !ok {
		return parts{}, fmt.Errorf("the invocation has no member Data.%s: is %s the name of the binding in function.json?", binding, binding)
	}
	m := request.Metadata
	return parts{data, m["Id"], m["DequeueCount"], m["PopReceipt"], m["ExpirationTime"]}, nil
}

// parseContent returns the message's body, and the mode in which the host handed it over.
func parseContent(data json.RawMessage) ([]byte, functionapp.DataType, error) {
	if content, ok := plainBase64(data); ok {
		return content, functionapp.DataBinary, nil
	}
	if inner, ok := plainText(data); ok {
		return inner, functionapp.DataString, nil
	}
	text, err := strictjson.String(data)
	if !utf8.Valid(data) {
		err = json.Unmarshal(data, &text)
	}
	if err != nil {
		return nil, "", err
	}
	if len(text) > 0 && text[0] == '"' {
		var inner string
		if err := json.Unmarshal([]byte(text), &inner); err != nil {
			return nil, "", fmt.Errorf("text content is not a JSON string: %w", err)
		}
		return []byte(inner), functionapp.DataString, nil
	}
	content, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, "", fmt.Errorf(`neither base64 (dataType "binary") nor a JSON string in a string (dataType "string"): %w`, err)
	}
	return content, functionapp.DataBinary, nil
}

// shortText is the length of the longest text that the host itself writes into Metadata, and some more.
const shortText = 128

// hintText reads a metadata value that the host encodes twice, or "" when it is anything else.
func hintText(value json.RawMessage) string {
	if value == nil {
		return ""
	}
	var outer, inner [shortText]byte // none of them is longer, as the host writes them
	if once, ok := strictjson.AppendUnquoted(outer[:0], value); ok {
		if twice, ok := strictjson.AppendUnquoted(inner[:0], once); ok {
			return string(twice)
		}
		if len(once) > 0 && strings.IndexByte("\"n \t\r\n", once[0]) < 0 { // not a string, not null
			return string(once)
		}
	}
	var once, twice string
	if json.Unmarshal(value, &once) != nil {
		return ""
	}
	if json.Unmarshal([]byte(once), &twice) != nil {
		return once
	}
	return twice
}

// hintNumber reads a metadata number, which the host writes as a string, or 0.
func hintNumber(value json.RawMessage) int64 {
	text := hintText(value)
	if text == "" {
		text = string(value) // a plain number, as Microsoft's documentation shows it
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// hintTime reads a metadata time, or the zero time when it is anything else.
func hintTime(value json.RawMessage) time.Time {
	t, err := time.Parse(time.RFC3339, hintText(value))
	if err != nil {
		return time.Time{}
	}
	return t
}

// callID is what names a call whose envelope has no request id: the message's id or, where the host did not
// say a usable one, the invocation's.
func callID(messageID, invocationID string) string {
	if envelope.ValidRequestID(messageID) {
		return messageID
	}
	return invocationID
}
