package e2e_test

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"time"
)

// nexusMessage is a message as the C# SDK writes it. The tests do not use our own encoder, because they check what the
// SDK expects.
type nexusMessage struct {
	id string
	// callOut and callBack are HTTP messages, context is JSON; empty means null.
	callOut, callBack, context string
	// priority 0 means none; a zero deadline means in two days.
	priority int
	deadline time.Time
}

// content returns the RawRequestEnvelope.
func (m nexusMessage) content() []byte {
	const never = "0001-01-01T00:00:00+00:00"
	now := time.Now()
	if m.deadline.IsZero() {
		m.deadline = now.Add(48 * time.Hour)
	}
	return fmt.Appendf(nil,
		`{"Organization":"acme","Environment":"test","OriginalRequestId":%q,"Attempts":0,"CreatedAt":%q,`+
			`"LatestAttemptAt":%q,"LatestResponse":null,"DeadlineAt":%q,"NextAttemptAt":%q,"RawRequest":%s}`,
		m.id, nexusTime(now), never, nexusTime(m.deadline), never, m.rawRequest())
}

// rawRequest returns the part that must not change.
func (m nexusMessage) rawRequest() []byte {
	priority, callBackScheme := "null", "null"
	if m.priority > 0 {
		priority = strconv.Itoa(m.priority)
	}
	if m.callBack != "" {
		callBackScheme = `"http"`
	}
	return fmt.Appendf(nil, `{"Id":%q,"Title":"POST http://target/ (%[1]s)","Context":%s,"CallOut":%s,`+
		`"CallOutUriScheme":"http","CallBack":%s,"CallBackUriScheme":%s,"Priority":%s}`,
		m.id, nexusBytes(m.context), nexusBytes(m.callOut), nexusBytes(m.callBack), callBackScheme, priority)
}

// nexusBytes returns a byte[] as Newtonsoft.Json writes it.
func nexusBytes(content string) string {
	if content == "" {
		return "null"
	}
	return strconv.Quote(base64.StdEncoding.EncodeToString([]byte(content)))
}

// nexusTime returns a DateTimeOffset as Newtonsoft.Json writes it, in another time zone.
func nexusTime(t time.Time) string {
	return t.In(time.FixedZone("CET", 60*60)).Format("2006-01-02T15:04:05.9999999-07:00")
}

// nexusCallOut returns a request with a body as .NET's HttpMessageContent writes it: without Content-Length.
func nexusCallOut(path, host, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json; charset=utf-8\r\n\r\n%s",
		path, host, body)
}

// nexusCallBack returns the request of a callback; the handler adds the body.
func nexusCallBack(path, host string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, host)
}
