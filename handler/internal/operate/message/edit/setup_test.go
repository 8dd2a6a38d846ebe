package edit_test

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/message/edit"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/guard"
	"asynccaller/handler/internal/rules/retry"
	"asynccaller/handler/internal/storage"
)

// now is long after the creation of every message here.
var now = time.Date(2026, time.November, 21, 12, 0, 0, 0, time.UTC)

const (
	messageID  = "0f8fad5b-d9cb-469f-a165-70867728950e"
	expiration = 7 * 24 * time.Hour
	// order is the beginning of a native envelope with white space and spellings that must not change.
	order = `{"asyncCaller":1, "requestId":"order-42","call":{"url":"https://old.example/orders?code=s%2Fecret" , ` +
		`"method":"PUT","headers":{"X-A":"1","x-b":["2","3"]},"json":{"n":1.0, "k":"\u00e9"}}`
	// state is delivery state that follows it.
	state = `,"createdAt":"2026-01-31T11:00:00Z","attempts":7,"latestAttemptAt":"2026-02-01T11:00:00Z",` +
		`"nextAttemptAt":"2026-02-01T12:00:00Z","trail":[{"at":"2026-02-01T11:00:00Z","status":503,"tookMs":20}]`
	letter = `,"deadLetter":{"at":"2026-02-07T11:00:00Z","reason":"expired","queue":"async-caller","attempts":7}`
	// callOut is the call of a Nexus envelope with unusual spellings of header names and values.
	callOut = "PUT /orders?code=s%2Fecret HTTP/1.0\r\nX-A:  1\r\nhost: old.example\r\nX-B: 2\r\nx-b: " +
		"3\r\nContent-Type: text/plain\r\nContent-Length: " +
		"5\r\n\r\nhello"
	// callBack is its callback.
	callBack = "POST /done HTTP/1.1\r\nHost: old.example:8443\r\n\r\n"
)

func inBase64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// nexusOf returns a Nexus envelope with this CallOut and more members after RawRequest.
func nexusOf(callOut, more string) string {
	return `{"Organization":"acme","Environment":"prod","OriginalRequestId":"first","Attempts":7,` +
		`"CreatedAt":"2026-01-31T12:00:00.1234567+01:00","LatestAttemptAt":"2026-02-01T11:00:00+00:00",` +
		`"LatestResponse":"` + inBase64("HTTP/1.1 503 Busy\r\nContent-Type: text/plain\r\n\r\nbusy") + `",` +
		`"DeadlineAt":"2026-02-07T11:00:00+00:00","NextAttemptAt":"2026-02-01T12:00:00+00:00", "RawRequest": ` +
		`{"Id":"order-42",` +
		`"Title":"a title","Context":"` + inBase64(`{"k": [1]}`) + `","CallOut":"` + inBase64(callOut) +
		`","CallOutUriScheme":"https","CallBack":"` +
		inBase64(callBack) + `","CallBackUriScheme":"https","Priority":null}` + more + `}`
}

const nexusLetter = `,"Trail":[{"At":"2026-02-01T11:00:00Z","Status":503,"TookMs":20}],` +
	`"DeadLetter":{"At":"2026-02-07T11:00:00+00:00","Reason":"expired","Queue":"async-caller","Attempts":7}`

func mustRules(tb testing.TB) message.Rules {
	tb.Helper()
	policies, err := retry.ParsePolicies([]byte("{}"))
	if err != nil {
		tb.Fatal(err)
	}
	deny, err := guard.ParseDeny("denied.example")
	if err != nil {
		tb.Fatal(err)
	}
	return message.Rules{
		Encoding: storage.Base64,
		Decision: decision.Rules{Expiration: expiration, GiveUp: envelope.GiveUpDeadLetter, Policies: policies},
		Guard:    guard.Rules{Deny: deny},
	}
}

// flags parses edits as on a command line: pairs of a flag and its argument.
func flags(tb testing.TB, args ...string) edit.Edits {
	tb.Helper()
	var e edit.Edits
	for i := 0; i < len(args); i += 2 {
		if err := addFlag(&e, args[i], args[i+1]); err != nil {
			tb.Fatal(err)
		}
	}
	return e
}

func addFlag(e *edit.Edits, flag, argument string) error {
	parse := map[string]func(string) (edit.Edit, error){
		"--set": edit.ParseSet, "--set-header": edit.ParseHeader, "--delete-header": edit.ParseDeleteHeader,
		"--replace-host": edit.ParseReplaceHost, "--jq": edit.ParseJQ,
	}[flag]
	parsed, err := parse(argument)
	*e = append(*e, parsed)
	return err
}

// rawMember returns a member of RawRequest, decoded if it is base64.
func rawMember(tb testing.TB, content []byte, name string) string {
	tb.Helper()
	var e struct{ RawRequest map[string]any }
	if err := json.Unmarshal(content, &e); err != nil {
		tb.Fatalf("%v:\n%s", err, content)
	}
	text, _ := e.RawRequest[name].(string)
	if decoded, err := base64.StdEncoding.DecodeString(text); err == nil &&
		slices.Contains([]string{"CallOut", "CallBack", "Context"}, name) {
		return string(decoded)
	}
	return text
}

func mustParse(tb testing.TB, content []byte) *envelope.Envelope {
	tb.Helper()
	e, err := envelope.Parse(content)
	if err != nil {
		tb.Fatalf("%v:\n%s", err, content)
	}
	return e
}
