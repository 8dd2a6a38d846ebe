package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// mode is how the host passes a message: function.json's dataType.
type mode string

const (
	binary mode = "binary"
	text   mode = "string"
)

// function is the name of the function that takes invocations of the mode.
func (m mode) function() string { return "AC-" + string(m) }

// message is a message that the host passes to the handler.
type message struct {
	kib  int
	mode mode
	// delayed: it was rescheduled, by a delay that is recorded, and is delivered again.
	delayed bool
}

func (m message) String() string {
	return fmt.Sprintf("%d KiB %s", m.kib, map[mode]string{binary: "binary", text: "text"}[m.mode])
}

// contentBytes is the size of the message's envelope. One of 48 KiB leaves 3 KiB of what a queue accepts, for the state
// that a reschedule adds.
func (m message) contentBytes() int {
	if m.kib == 48 {
		return 45 << 10
	}
	return m.kib << 10
}

// call returns the member call of the envelope, and its body, which fills the envelope up to its size.
func (m message) call(target string) (call, body string) {
	const words = "lorem ipsum dolor sit amet, "
	const form = `{"url":%q,"headers":{"Content-Type":"text/plain"},"body":%q}`
	room := max(m.contentBytes()-len(m.content(fmt.Sprintf(form, target, ""), time.Time{})), 0)
	body = strings.Repeat(words, room/len(words)+1)[:room]
	return fmt.Sprintf(form, target, body), body
}

// content returns the envelope with a call.
func (m message) content(call string, now time.Time) string {
	state := ""
	if m.delayed {
		state = fmt.Sprintf(`"attempts":1,"nextAttemptAt":%q,`, now.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf(`{"asyncCaller":1,%s"requestId":"b3c1a0de-5b1f-4c77-9d0e-2f6a4c8e1b90","call":%s}`, state, call)
}

// invocation returns the body of the host's request. In text mode the host copies the envelope's members into Metadata,
// and so does this.
func (m message) invocation(target string, now time.Time) []byte {
	const hostTime = "2006-01-02T15:04:05+00:00"
	now = now.UTC()
	call, _ := m.call(target)
	content, inserted := m.content(call, now), now
	if m.delayed {
		inserted = now.Add(-time.Minute)
	}
	metadata := map[string]any{
		"DequeueCount": "1", "Id": quoted("ac42afd5-35e5-4258-928c-16de063c24b1"), "PopReceipt": quoted("AgAAAAMAAAAAAAAAAgtnj8x+1QE="),
		"ExpirationTime": now.AddDate(0, 0, 7).Format(hostTime), "InsertionTime": inserted.Format(hostTime),
		"NextVisibleTime": now.Add(10 * time.Minute).Format(hostTime),
		"sys": map[string]string{
			"MethodName": m.mode.function(), "UtcNow": now.Format(time.RFC3339Nano), "RandGuid": "24ad4c06-24ad-4e5b-8294-3da9714877e9",
		},
	}
	data := base64.StdEncoding.EncodeToString([]byte(content))
	if m.mode == text {
		data = quoted(content)
		metadata["asyncCaller"], metadata["call"] = quoted("1"), json.RawMessage(call)
	}
	body, _ := json.Marshal(map[string]any{"Data": map[string]string{"message": data}, "Metadata": metadata}) // strings cannot fail
	return body
}

// quoted returns s as a JSON string.
func quoted(s string) string {
	text, _ := json.Marshal(s) // a string cannot fail
	return string(text)
}

// idLength is the length of a GUID.
const idLength = 36

// request returns the host's HTTP request to the handler at an address, and the position of the invocation's id in it. A
// header gives the floor the number of bytes of the call; the handler ignores it.
func (m message) request(handler, target string, now time.Time) (bytes []byte, idAt int) {
	body := m.invocation(target, now)
	_, callBody := m.call(target)
	head := fmt.Sprintf("POST /%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: Azure-Functions-Host/4.1052.200.0\r\n"+
		"Content-Type: application/json; charset=utf-8\r\nContent-Length: %d\r\nX-Bench-Call-Bytes: %d\r\nX-Azure-Functions-InvocationId: ",
		m.mode.function(), handler, len(body), len(callBody))
	return append([]byte(head+strings.Repeat("0", idLength)+"\r\n\r\n"), body...), len(head)
}
