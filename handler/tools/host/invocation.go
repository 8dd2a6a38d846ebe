package host

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/storage"
)

// hostVersion is the version of the real host that this one imitates.
const hostVersion = "4.1052.200.0"

const (
	// metadataTime is the format of a DateTimeOffset: whole seconds, with UTC as an offset.
	metadataTime = "2006-01-02T15:04:05+00:00"
	// sysTime is the format of sys.UtcNow.
	sysTime = "2006-01-02T15:04:05.0000000Z"
	// timerTime is the format of a DateTime in UTC by Newtonsoft.Json: no trailing zeros in the fraction, and
	// the offset in digits.
	timerTime = "2006-01-02T15:04:05.9999999-07:00"
	// invariantTime is .NET's DateTime.ToString in the invariant culture.
	invariantTime = "01/02/2006 15:04:05"
	// maxParseDepth is how deeply nested JSON the real host's parser accepts.
	maxParseDepth = 64
)

// maxTime is .NET's DateTimeOffset.MaxValue, the expiration time of a message that never expires.
var maxTime = time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)

var errNotText = errors.New("the message is not valid UTF-8, which text mode cannot carry: use dataType binary")

// invocation is one POST to the handler.
type invocation struct {
	function string
	reason   string          // why it runs, for the log
	message  storage.Message // for the log; zero in a timer's invocation
	body     []byte
	err      error // the reason why there is no body
}

// object is a JSON object.
type object map[string]json.RawMessage

// messageInvocation encodes a message as sections A.2 and A.3 of the Functions host contract say.
func messageInvocation(fn functionapp.Function, msg storage.Message, content []byte, now time.Time, randGUID string) invocation {
	inv := invocation{function: fn.Name, reason: "New queue message detected on '" + fn.Queue + "'.", message: msg}
	expires := msg.ExpiresAt
	if expires.IsZero() {
		expires = maxTime
	}
	metadata := object{
		"DequeueCount":    quote(strconv.FormatInt(msg.DequeueCount, 10)),
		"ExpirationTime":  quote(expires.UTC().Format(metadataTime)),
		"Id":              doubleQuote(msg.ID),
		"InsertionTime":   quote(msg.InsertedAt.UTC().Format(metadataTime)),
		"NextVisibleTime": quote(msg.NextVisibleAt.UTC().Format(metadataTime)),
		"PopReceipt":      doubleQuote(msg.PopReceipt),
		"sys":             sysMetadata(fn.Name, now, randGUID),
	}
	data := quote(base64.StdEncoding.EncodeToString(content))
	if fn.DataType != functionapp.DataBinary {
		if !utf8.Valid(content) {
			inv.err = errNotText
			return inv
		}
		data = doubleQuote(string(content))
		metadata.merge(content)
	}
	inv.body = encode(map[string]object{"Data": {fn.Binding: data}, "Metadata": metadata})
	return inv
}

// scheduleStatus is the state that the real host stores for a timer.
type scheduleStatus struct {
	last time.Time // when the latest run began; zero before the first
	next time.Time // when the next run is due, or the current one was
}

// timerInvocation encodes a timer run; status is nil for a timer whose state the host does not store. A local timer is
// never past due.
func timerInvocation(timer functionapp.Timer, status *scheduleStatus, now time.Time, randGUID string) invocation {
	run := map[string]any{"Schedule": map[string]bool{"AdjustForDST": true}, "ScheduleStatus": nil, "IsPastDue": false}
	if status != nil {
		last := status.last.UTC().Format(timerTime)
		run["ScheduleStatus"] = map[string]string{"Last": last, "Next": status.next.UTC().Format(timerTime), "LastUpdated": last}
	}
	return invocation{
		function: timer.Name,
		reason:   "Timer fired at " + now.UTC().Format(timerTime),
		body:     encode(map[string]object{"Data": {timer.Binding: encode(run)}, "Metadata": {"sys": sysMetadata(timer.Name, now, randGUID)}}),
	}
}

// sysMetadata is the part of the metadata that all triggers have.
func sysMetadata(function string, now time.Time, randGUID string) json.RawMessage {
	return encode(map[string]string{"MethodName": function, "UtcNow": now.UTC().Format(sysTime), "RandGuid": randGUID})
}

// merge lets the content of a text mode message overwrite the metadata, as the real host does: section A.4
// of the Functions host contract. A name that exists in another case keeps its spelling. Content other than
// a JSON object changes nothing.
func (o object) merge(content []byte) {
	var properties object
	if json.Unmarshal(content, &properties) != nil || depth(content) > maxParseDepth {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		value := metadataValue(properties[name])
		// The host leaves out names that end in trigger.
		if value == nil || strings.HasSuffix(strings.ToLower(name), "trigger") {
			continue
		}
		for known := range o {
			if strings.EqualFold(known, name) {
				name = known
				break
			}
		}
		o[name] = value
	}
}

// metadataValue converts the value of a property by the rules of .NET; nulls and arrays become nil. In an object,
// the last of several members with the same name counts.
func metadataValue(value json.RawMessage) json.RawMessage {
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber()
	var parsed any
	if err := decoder.Decode(&parsed); err != nil {
		return nil
	}
	switch parsed := parsed.(type) {
	case map[string]any:
		return encode(parsed)
	case bool:
		return doubleQuote(map[bool]string{true: "True", false: "False"}[parsed])
	case json.Number:
		return doubleQuote(parsed.String())
	case string:
		return doubleQuote(convertDate(parsed))
	}
	return nil
}

// convertDate prints an ISO date like .NET, because Newtonsoft.Json parses it. The offset becomes local time, which
// is UTC in Azure.
func convertDate(text string) string {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC().Format(invariantTime)
		}
	}
	return text
}

// depth returns how deeply objects and arrays are nested in valid JSON.
func depth(text []byte) (deepest int) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	level := 0
	for {
		token, err := decoder.Token()
		if err != nil {
			return deepest
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			level++
			deepest = max(deepest, level)
		case json.Delim('}'), json.Delim(']'):
			level--
		}
	}
}

// quote returns s as a JSON string.
func quote(s string) json.RawMessage { return encode(s) }

// doubleQuote returns s as a JSON string inside a JSON string.
func doubleQuote(s string) json.RawMessage { return encode(string(encode(s))) }

// encode returns the value as JSON with the escapes of Newtonsoft.Json: quotes, backslashes, control
// characters and the three line separators of Unicode, nothing else.
func encode(value any) json.RawMessage {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err) // the values are strings, maps and valid JSON
	}
	return bytes.ReplaceAll(bytes.TrimSuffix(b.Bytes(), []byte("\n")), []byte("\u0085"), []byte(`\u0085`))
}
