package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strconv"
	"time"
	"unicode/utf8"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/storage"
)

// hostVersion is the version of the real host that this one imitates.
const hostVersion = "4.1052.200.0"

const (
	// metadataTime is the format of a DateTimeOffset: whole seconds, with UTC as an offset.
	metadataTime = "2006-01-02T15:04:05+00:00"
	// sysTime is the format of sys.UtcNow.
	sysTime = "2006-01-02T15:04:05.0000000Z"
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
type object map[string]any

// messageInvocation encodes a message (docs/host.md, "Metadata" and "Message content").
func messageInvocation(
	fn functionapp.Function, msg storage.Message, content []byte, now time.Time, randGUID string,
) invocation {
	inv := invocation{function: fn.Name, reason: "New queue message detected on '" + fn.Queue + "'.", message: msg}
	data := base64.StdEncoding.EncodeToString(content)
	if fn.DataType != functionapp.DataBinary {
		if !utf8.Valid(content) {
			inv.err = errNotText
			return inv
		}
		data = quote(string(content))
	}
	expires := msg.ExpiresAt
	if expires.IsZero() {
		expires = maxTime
	}
	inv.body = encode(object{
		"Data": object{fn.Binding: data},
		"Metadata": object{
			"DequeueCount":    strconv.FormatInt(msg.DequeueCount, 10),
			"ExpirationTime":  expires.UTC().Format(metadataTime),
			"Id":              quote(msg.ID),
			"InsertionTime":   msg.InsertedAt.UTC().Format(metadataTime),
			"NextVisibleTime": msg.NextVisibleAt.UTC().Format(metadataTime),
			"PopReceipt":      quote(msg.PopReceipt),
			"sys":             sysMetadata(fn.Name, now, randGUID),
		},
	})
	return inv
}

// timerInvocation encodes an invocation of a timer function, of a schedule whose state the host does not store.
func timerInvocation(timer functionapp.Timer, now time.Time, randGUID string) invocation {
	state := object{"Schedule": object{"AdjustForDST": true}, "ScheduleStatus": nil, "IsPastDue": false}
	return invocation{
		function: timer.Name,
		reason:   "Timer fired at " + now.UTC().Format(time.RFC3339Nano),
		body: encode(object{
			"Data":     object{timer.Binding: state},
			"Metadata": object{"sys": sysMetadata(timer.Name, now, randGUID)},
		}),
	}
}

// sysMetadata is the part of the metadata that all triggers have.
func sysMetadata(function string, now time.Time, randGUID string) object {
	return object{"MethodName": function, "UtcNow": now.UTC().Format(sysTime), "RandGuid": randGUID}
}

// quote returns s as JSON text.
func quote(s string) string { return string(encode(s)) }

func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // the values are strings, booleans and objects of them
	}
	return text
}
