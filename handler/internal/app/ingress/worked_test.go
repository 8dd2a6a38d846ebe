package ingress_test

import (
	"net/http"
	"strings"
	"testing"

	"asynccaller/handler/internal/rules/envelope"
)

// forging is an object whose members try to overwrite the metadata of its message (docs/host.md, "Forgeable metadata").
const forging = `{"Id":"42","url":"https://t.example/hook","n":5,"ok":true,"when":"2026-01-02T03:04:05Z",` +
	`"tags":["a","b"],"sys":{"MethodName":"evil"},` +
	`"popreceipt":"FORGED","none":null}`

// TestWorkedBodies posts invocations in each mode (docs/host.md, "Message content"). No content is an envelope, so it
// goes to the poison queue.
func TestWorkedBodies(t *testing.T) {
	for name, row := range map[string]struct{ content, messageID string }{
		"text_hello":    {"hello", messageID},
		"text_object":   {forging, "42"}, // in text mode the sender can write the metadata
		"text_array":    {`[1,"two"]`, messageID},
		"binary_object": {forging, messageID},
	} {
		t.Run(name, func(t *testing.T) {
			a := newApp(t, nil)

			reply := post(t, a.start(t), mustRead(t, name+".json"))

			reply.wantStatus(t, http.StatusOK)
			a.wantContents(t, poisonQueue, row.content)
			a.wantContents(t, mainQueue)
			line := a.mustOneLine(t)
			for field, want := range map[string]any{
				"message": "settled", "action": "dead_letter", "reason": "malformed",
				"function": function, "queue": mainQueue, "invocation_id": invocationID,
				"message_id": row.messageID, "dequeue_count": 1.0,
			} {
				if line[field] != want {
					t.Errorf("%s is %v, want %v", field, line[field], want)
				}
			}
		})
	}
}

// TestForgedMetadata posts an envelope whose members have the names of metadata, as the host sends it in each mode. The
// envelope has no request id, so the id of the message becomes the request id.
func TestForgedMetadata(t *testing.T) {
	const content = `{"asyncCaller":1,"Id":"forged","DequeueCount":9,"PopReceipt":"FORGED",` +
		`"sys":{"MethodName":"evil"},"call":{"url":"https://t.example/"}}`
	const overwritten = `{"DequeueCount":"\"9\"","Id":"\"forged\"","PopReceipt":"\"FORGED\"",` +
		`"sys":{"MethodName":"evil"},"asyncCaller":"\"1\"","call":{"u` +
		`rl":"https://t.example/"}}`
	const objects = `{"DequeueCount":{},"Id":{"a":[1]},"PopReceipt":"\"1E+999\"","sys":"\"x\""}`
	for name, row := range map[string]struct {
		body      string
		requestID string
		count     float64
	}{
		"binary_is_not_fooled": {binary(content, goodMetadata), messageID, 2},
		"text_is_a_hint":       {text(t, content, overwritten), "forged", 9},
		"text_with_objects":    {text(t, content, objects), invocationID, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a := newApp(t, answers(503))

			post(t, a.start(t), row.body).wantStatus(t, http.StatusOK)

			successor := a.mustEnvelope(t, mainQueue)
			if successor.RequestID != row.requestID || successor.Attempts != 1 {
				t.Errorf("request %s, %d attempts; want %s and 1", successor.RequestID, successor.Attempts,
					row.requestID)
			}
			if line := a.mustOneLine(t); line["message_id"] != row.requestID || line["dequeue_count"] != row.count {
				t.Errorf("message %v, dequeue count %v; want %s and %v", line["message_id"], line["dequeue_count"],
					row.requestID, row.count)
			}
			a.wantContents(t, poisonQueue)
		})
	}
}

// TestMetadata: metadata is a hint. A message is delivered whatever its metadata, and a call without a request id
// always gets a valid one.
func TestMetadata(t *testing.T) {
	const content = `{"asyncCaller":1,"call":{"url":"https://t.example/"}}`
	any128 := strings.Repeat("x234567890", 13)[:128]
	for name, row := range map[string]struct {
		metadata  string
		requestID string
		count     float64
	}{
		"as_the_host_sends_it": {goodMetadata, messageID, 2},
		"manual_run": {`{"DequeueCount":"0","ExpirationTime":"9999-12-31T23:59:59+00:00",` +
			`"sys":{"MethodName":"QueueFn"}}`, invocationID, 0},
		"as_documented":            {`{"Id":"` + messageID + `","DequeueCount":3}`, messageID, 3},
		"none":                     {`{}`, invocationID, 0},
		"null":                     {`null`, invocationID, 0},
		"id_encoded_once":          {`{"Id":"` + messageID + `","DequeueCount":"1"}`, messageID, 1},
		"id_null":                  {`{"Id":null,"DequeueCount":null}`, invocationID, 0},
		"id_empty":                 {`{"Id":"\"\"","DequeueCount":""}`, invocationID, 0},
		"id_with_space":            {`{"Id":"\"a b\""}`, invocationID, 0},
		"id_not_ascii":             {`{"Id":"\"é\""}`, invocationID, 0},
		"id_longest":               {`{"Id":"\"` + any128 + `\""}`, any128, 0},
		"id_too_long":              {`{"Id":"\"` + any128 + `9\""}`, invocationID, 0},
		"id_is_an_object":          {`{"Id":{"a":1},"DequeueCount":{}}`, invocationID, 0},
		"id_is_digits":             {`{"Id":"\"42\"","DequeueCount":"\"5\""}`, "42", 5},
		"count_is_text":            {`{"DequeueCount":"many"}`, invocationID, 0},
		"count_negative":           {`{"DequeueCount":"-3"}`, invocationID, 0},
		"count_beyond_what_counts": {`{"DequeueCount":"99999999999999999999"}`, invocationID, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a := newApp(t, answers(503))

			post(t, a.start(t), binary(content, row.metadata)).wantStatus(t, http.StatusOK)

			if got := a.mustEnvelope(t, mainQueue).RequestID; got != row.requestID {
				t.Errorf("request %q, want %q", got, row.requestID)
			}
			if got := a.mustOneLine(t)["dequeue_count"]; got != row.count {
				t.Errorf("dequeue count %v, want %v", got, row.count)
			}
		})
	}
}

// mustEnvelope returns the one envelope on a queue.
func (a *app) mustEnvelope(t *testing.T, name string) *envelope.Envelope {
	t.Helper()
	contents := a.contents(t, name)
	if len(contents) != 1 {
		t.Fatalf("%s holds %q, want one message", name, contents)
	}
	e, err := envelope.Parse([]byte(contents[0]))
	if err != nil {
		t.Fatal(err)
	}
	return e
}
