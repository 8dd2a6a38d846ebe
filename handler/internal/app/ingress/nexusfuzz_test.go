package ingress_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
)

// FuzzNexusContent posts Nexus messages with any HTTP messages and context. It encodes them as base64, so that the
// fuzzer can change their content.
func FuzzNexusContent(f *testing.F) {
	const (
		call     = "POST /a?b=c HTTP/1.1\r\nHost: t.example\r\nX-A: a\r\n b\r\nContent-Type: text/plain\r\n\r\nbody"
		callback = "PUT /done HTTP/1.0\r\nHost: s.example:8080\r\nContent-Length: 3\r\n\r\nold"
		answer   = "HTTP/1.1 504 Gateway Time-out\r\nServer: a, (b)\r\nExpires: -1\r\n\r\ntoo late"
	)
	f.Add([]byte(call), []byte(nil), []byte(nil), []byte(nil), "", uint16(200))
	f.Add([]byte(call), []byte(callback), []byte(`{"order":[42]}`), []byte(answer),
		`,"Attempts":3,"DeadlineAt":"2099-01-01T00:00:00.1234567+01:00"`, uint16(503))
	f.Add([]byte(call), []byte(callback), []byte(`null`), []byte(answer), `,"DeadlineAt":"2020-01-01T00:00:00Z"`,
		uint16(0))
	f.Add([]byte(plainCall), []byte(callback), []byte("\xff"), []byte("\x00"),
		`,"NextAttemptAt":"9999-12-31T23:59:59.9999999+00:00","x":[{}]`, uint16(400))
	f.Add(
		[]byte(plainCall+plainCall),
		[]byte(nil),
		[]byte(nil),
		[]byte(nil),
		`,"CreatedAt":"0001-01-01T00:00:00","Organization":"o","Trail":[{"Status":503}],"DeadLetter":{}`,
		uint16(302),
	)
	f.Add(
		[]byte("GET @evil/ HTTP/1.1\r\nHost: t.example\r\n\r\n"),
		[]byte("\r\n"),
		[]byte("["),
		[]byte(nil),
		`,"OriginalRequestId":"\u0000","Environment":null`,
		uint16(500),
	)
	f.Add([]byte(call), []byte(nil), []byte(nil), []byte(nil),
		`,"Attempts":2147483647,"Trail":[`+strings.Repeat("{},", 99)+`{}]`, uint16(500))
	f.Fuzz(func(t *testing.T, callOut, callBack, nexusContext, latest []byte, members string, status uint16) {
		base64OrNull := func(content []byte) string {
			if content == nil {
				return "null"
			}
			return `"` + in64(string(content)) + `"`
		}
		content := `{"RawRequest":{"Id":"r1","CallOut":` + base64OrNull(callOut) + `,"CallBack":` +
			base64OrNull(callBack) +
			`,"Context":` + base64OrNull(nexusContext) + `},"LatestResponse":` + base64OrNull(latest) + members + `}`
		if len(content) > maxContent {
			return
		}
		a := newApp(t, caller(func(context.Context, *envelope.Envelope) decision.Outcome {
			return decision.Outcome{
				Status: int(status % 1000), Header: http.Header{"Content-Type": {string(latest)}},
				Body: latest,
			}
		}))
		recorder := a.record(t, binary(content, goodMetadata))
		if recorder.Code != http.StatusOK {
			t.Fatalf("answered %d %s", recorder.Code, recorder.Body)
		}
		a.wantSettled(t, content)
		a.wantShortLog(t)
	})
}
