package host

import (
	"encoding/base64"
	"strconv"
	"time"

	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/queue"
)

// hostVersion is the version of the real host that this one resembles.
const hostVersion = "4.1052.200.0"

const (
	// metadataTime is how a DateTimeOffset arrives: whole seconds, and UTC written as an offset.
	metadataTime = "2006-01-02T15:04:05+00:00"
	// sysTime is how sys.UtcNow arrives.
	sysTime = "2006-01-02T15:04:05.0000000Z"
)

// maxTime is .NET's DateTimeOffset.MaxValue, which stands for never.
var maxTime = time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)

// invocation is everything that goes into the body of one POST to the handler.
type invocation struct {
	function functionapp.Function
	message  queue.Message
	content  []byte // what the message's text says, decoded
	now      time.Time
	randGUID string
}

// body encodes the invocation as sections A.2 and A.3 of the Functions host contract say. Text mode
// content must be valid UTF-8.
func (i invocation) body() []byte {
	metadata := i.metadata()
	var data []byte
	if i.function.DataType == functionapp.DataBinary {
		data = appendString(nil, base64.StdEncoding.EncodeToString(i.content))
	} else {
		data = doubleEncoded(string(i.content))
		metadata.forge(i.content)
	}

	b := append([]byte(nil), `{"Data":{`...)
	b = appendString(b, i.function.Binding)
	b = append(b, ':')
	b = append(b, data...)
	b = append(b, `},"Metadata":{`...)
	for n, m := range metadata {
		if n > 0 {
			b = append(b, ',')
		}
		b = appendString(b, m.name)
		b = append(b, ':')
		b = append(b, m.value...)
	}
	return append(b, `}}`...)
}

// metadata returns what the host itself knows about the message, in the host's order.
func (i invocation) metadata() metadata {
	expires := i.message.ExpiresAt
	if expires.IsZero() {
		expires = maxTime
	}
	return metadata{
		{"DequeueCount", appendString(nil, strconv.FormatInt(i.message.DequeueCount, 10))},
		{"ExpirationTime", appendTime(expires)},
		{"Id", doubleEncoded(i.message.ID)},
		{"InsertionTime", appendTime(i.message.InsertedAt)},
		{"NextVisibleTime", appendTime(i.message.NextVisibleAt)},
		{"PopReceipt", doubleEncoded(i.message.PopReceipt)},
		{"sys", sysMetadata(i.function.Name, i.now, i.randGUID)},
	}
}

// sysMetadata is what the host says about every invocation, whatever triggers it.
func sysMetadata(function string, now time.Time, randGUID string) []byte {
	b := appendString([]byte(`{"MethodName":`), function)
	b = appendString(append(b, `,"UtcNow":`...), now.UTC().Format(sysTime))
	b = appendString(append(b, `,"RandGuid":`...), randGUID)
	return append(b, '}')
}

func appendTime(t time.Time) []byte {
	return appendString(nil, t.UTC().Format(metadataTime))
}

// doubleEncoded returns s as a JSON string inside a JSON string.
func doubleEncoded(s string) []byte {
	return appendString(nil, string(appendString(nil, s)))
}

// appendString appends s as a JSON string, escaped as Newtonsoft.Json does by default: quotes,
// backslashes, control characters and the three line separators of Unicode, nothing else.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	short := map[rune]byte{'\b': 'b', '\t': 't', '\n': 'n', '\f': 'f', '\r': 'r', '"': '"', '\\': '\\'}
	b = append(b, '"')
	for _, r := range s {
		if c, ok := short[r]; ok {
			b = append(b, '\\', c)
			continue
		}
		switch {
		case r < ' ', r == '\u0085', r == '\u2028', r == '\u2029':
			b = append(b, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
		default:
			b = append(b, string(r)...)
		}
	}
	return append(b, '"')
}
