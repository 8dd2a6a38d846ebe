package invoke

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"asynccaller/handler/envelope"
	"asynccaller/handler/functionapp"
	"asynccaller/handler/settle"
	"asynccaller/handler/strictjson"
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
	// Lease is zero unless the host vouches for every part of it: a body that could write it could have
	// us overwrite other messages.
	Lease settle.Lease
}

// parseInvocation reads the body of the host's POST for a function whose binding has the given name. What it
// returns shares no memory with the body.
//
// The host hands content over in two ways. With dataType "binary" Data holds plain base64; otherwise it
// holds a string that is itself JSON text, and so begins with a quote, which base64 never does.
func parseInvocation(body []byte, binding string) (invocation, error) {
	data, metadata, err := dataAndMetadata(body, binding)
	if err != nil {
		return invocation{}, err
	}
	content, dataType, err := parseContent(data)
	if err != nil {
		return invocation{}, fmt.Errorf("member Data.%s: %w", binding, err)
	}
	in := invocation{
		Content:      content,
		MessageID:    hintText(metadata.get("Id")),
		DequeueCount: hintNumber(metadata.get("DequeueCount")),
	}
	if dataType == functionapp.DataBinary {
		in.Lease = settle.Lease{
			ID:           in.MessageID,
			PopReceipt:   hintText(metadata.get("PopReceipt")),
			DequeueCount: in.DequeueCount,
			ExpiresAt:    hintTime(metadata.get("ExpirationTime")),
		}
	}
	return in, nil
}

// hints are the members of Metadata.
type hints []strictjson.Member

// get returns nil where there is none of that name.
func (h hints) get(name string) json.RawMessage {
	for _, m := range h {
		if m.Name == name {
			return m.Value
		}
	}
	return nil
}

// dataAndMetadata returns the JSON of the binding's member of Data, and the members of Metadata.
func dataAndMetadata(body []byte, binding string) (data json.RawMessage, metadata hints, err error) {
	if content, rest, ok := liftContent(body, binding); ok {
		if data, metadata, ok := members(rest, binding); ok && string(data) == placeholder {
			return content, metadata, nil
		}
	}
	var request struct {
		Data     map[string]json.RawMessage
		Metadata map[string]json.RawMessage
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, nil, fmt.Errorf("the invocation is not JSON of the host's form: %w", err)
	}
	data, ok := request.Data[binding]
	if !ok {
		return nil, nil, fmt.Errorf("the invocation has no member Data.%s: is %s the name of the binding in function.json?", binding, binding)
	}
	for name, value := range request.Metadata {
		metadata = append(metadata, strictjson.Member{Name: name, Value: value})
	}
	return data, metadata, nil
}

// members reads an invocation of just the form that the host gives it. It is not ok for any other that
// encoding/json may understand: names in other letter case, a name twice.
func members(body []byte, binding string) (data json.RawMessage, metadata hints, ok bool) {
	all, err := strictjson.Object(body)
	if err != nil {
		return nil, nil, false
	}
	for _, m := range all {
		switch {
		case m.Name == "Data":
			inner, err := strictjson.Members(m.Value)
			if err != nil {
				return nil, nil, false
			}
			data = hints(inner).get(binding)
		case m.Name == "Metadata":
			if metadata, err = strictjson.Members(m.Value); err != nil {
				return nil, nil, false
			}
		case strings.EqualFold(m.Name, "Data"), strings.EqualFold(m.Name, "Metadata"):
			return nil, nil, false
		}
	}
	return data, metadata, data != nil
}

// parseContent returns the message's body, and the mode in which the host handed it over. The data may be
// anything that looks like one JSON value.
func parseContent(data json.RawMessage) ([]byte, functionapp.DataType, error) {
	if content, ok := plainBase64(data); ok {
		return content, functionapp.DataBinary, nil
	}
	if inner, ok := plainText(data); ok {
		return inner, functionapp.DataString, nil
	}
	if !json.Valid(data) {
		return nil, "", errors.New("not JSON")
	}
	text, err := strictjson.String(data)
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

// hintText reads a metadata value that the host encodes twice, or "" when it is anything else.
func hintText(value json.RawMessage) string {
	if once, ok := strictjson.Unquote(value); ok {
		if twice, ok := strictjson.Unquote(once); ok {
			return string(twice)
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
