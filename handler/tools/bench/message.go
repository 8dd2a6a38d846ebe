package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// mode is how the host hands a message over: function.json's dataType.
type mode string

const (
	modeBinary mode = "binary"
	modeText   mode = "text"
)

// function is the name of the function that takes invocations of the mode.
func (m mode) function() string { return "AC-" + string(m) }

// dataType is the mode as function.json says it.
func (m mode) dataType() string {
	if m == modeText {
		return "string"
	}
	return "binary"
}

const requestID = "b3c1a0de-5b1f-4c77-9d0e-2f6a4c8e1b90"

// newBody is the body of the call that makes the content of an envelope size bytes in all, or as near as a
// body can.
func newBody(target string, size int) string {
	room := max(size-len(newContent(newCall(target, ""))), 0)
	const words = "lorem ipsum dolor sit amet, "
	return strings.Repeat(words, room/len(words)+1)[:room]
}

// newCall is the member call of an envelope.
func newCall(target, body string) string {
	return fmt.Sprintf(`{"url":%q,"headers":{"Content-Type":"text/plain"},"body":%q}`, target, body)
}

// newContent is the content of a message: an envelope with the call.
func newContent(call string) string {
	return fmt.Sprintf(`{"asyncCaller":1,"requestId":%q,"call":%s}`, requestID, call)
}

// invocation is the body of an invocation of an envelope of size bytes, as the Functions host writes it.
// In text mode the host copies the content's members into Metadata, and so does this.
func invocation(target string, size int, m mode, now time.Time) []byte {
	const hostTime = "2006-01-02T15:04:05+00:00"
	call := newCall(target, newBody(target, size))
	content := newContent(call)
	data, forged := base64.StdEncoding.EncodeToString([]byte(content)), ""
	if m == modeText {
		data = quoted(content)
		forged = fmt.Sprintf(`,"asyncCaller":%s,"requestId":%s,"call":%s`, quoted(quoted("1")), quoted(quoted(requestID)), call)
	}
	now = now.UTC()
	return fmt.Appendf(nil, `{"Data":{"message":%s},"Metadata":{"DequeueCount":"1","ExpirationTime":%q,`+
		`"Id":"\"ac42afd5-35e5-4258-928c-16de063c24b1\"","InsertionTime":%q,"NextVisibleTime":%q,`+
		`"PopReceipt":"\"AgAAAAMAAAAAAAAAAgtnj8x+1QE=\"","sys":{"MethodName":%q,"UtcNow":%q,`+
		`"RandGuid":"24ad4c06-24ad-4e5b-8294-3da9714877e9"}%s}}`,
		quoted(data), now.AddDate(0, 0, 7).Format(hostTime), now.Format(hostTime), now.Add(10*time.Minute).Format(hostTime),
		m.function(), now.Format("2006-01-02T15:04:05.0000000Z"), forged)
}

// quoted is s as a JSON string. Nothing in it is escaped but quotes and backslashes, because nothing else
// is in it.
func quoted(s string) string {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(s) // into memory
	return strings.TrimSuffix(b.String(), "\n")
}

// idLength is the length of a GUID.
const idLength = 36

// sizes are how many bytes the product sends for a message: the body of its call, and that of its Put
// Message, which is 0 where nothing is rescheduled. The floor, which reads no message, is told to send as many.
type sizes struct{ call, put int }

// The headers that tell the floor. The product gets them too, and looks at neither.
const (
	callHeader = "X-Bench-Call-Bytes"
	putHeader  = "X-Bench-Put-Bytes"
)

// request is the body as an HTTP request, and where in it the invocation's id stands, which every
// invocation has of its own.
func request(m mode, body []byte, s sizes) (bytes []byte, id int) {
	head := fmt.Sprintf("POST /%s HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: Azure-Functions-Host/4.1052.200.0\r\n"+
		"Content-Type: application/json; charset=utf-8\r\nContent-Length: %d\r\n%s: %d\r\n%s: %d\r\nX-Azure-Functions-InvocationId: ",
		m.function(), len(body), callHeader, s.call, putHeader, s.put)
	whole := append([]byte(head), strings.Repeat("0", idLength)...)
	whole = append(whole, "\r\n\r\n"...)
	return append(whole, body...), len(head)
}
