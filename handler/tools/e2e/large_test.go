package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// TestLargeBody: a body of 200 KiB goes through all that can happen to a call, and the target gets it whole and signed
// each time, and once after it was delivered.
func TestLargeBody(t *testing.T) {
	t.Parallel()
	const secret = "whsec_bGFyZ2UgYm9kaWVzIGFyZSBzaWduZWQgYXMgd2VsbA=="
	f := newFixture(t, options{azurite: true})
	f.must(os.WriteFile(filepath.Join(f.app, "targets.json"),
		[]byte(`{"127.0.0.1":{"breaker":"off","sign":["$SECRET"]}}`), 0o600))
	var text bytes.Buffer
	text.WriteString(`{"n": 1.0, "items": [`)
	for i := 0; text.Len() < 200<<10; i++ {
		fmt.Fprintf(&text, `{"order": %d, "item": "book å %d"}, `, i, i*i)
	}
	text.WriteString(`null]}`)
	body := text.String()
	f.must(os.WriteFile(filepath.Join(f.app, "order.json"), text.Bytes(), 0o600))
	run := func(args ...string) (stdout, stderr string) {
		command, out, messages := f.operate(args...)
		command.Env = append(command.Env, "SECRET="+secret)
		if err := command.Run(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, messages)
		}
		return out.String(), messages.String()
	}
	send := func() {
		_, stderr := run("send", "--request-id", "large", "--url", f.target.URL("503,reset,500,422,200"),
			"--body", "@order.json", "--header", "Content-Type: application/json", "--retry", "1s")
		if !strings.HasPrefix(stderr, "1 envelope with the body as gzip") {
			t.Errorf("send printed %s", stderr)
		}
	}
	send()
	f.start([]string{"SECRET=" + secret, "ASYNC_CALLER_HISTORY=check"})
	f.await("the dead letter", func() bool { return f.count(poisonQueue) == 1 })

	shown, _ := run("show", "large", "--json")
	var page struct {
		Call struct {
			BodyKind  string
			BodyBytes int
		}
	}
	f.must(json.Unmarshal([]byte(shown), &page))
	if page.Call.BodyBytes != len(body) || page.Call.BodyKind == "binary" {
		t.Errorf("shown as %+v", page)
	}
	if listed, _ := run("calls", "list", "--state", "poison", "--text", fmt.Sprint(1000*1000), "--json"); listed == "" {
		t.Error("not found by a text in the body")
	}
	run("calls", "delete", "--state", "poison", "--request-id", "large", "--yes")
	runs, _ := run("runs", "list", "--json")
	var latest struct{ Run string }
	f.must(json.Unmarshal([]byte(strings.SplitN(runs, "\n", 2)[0]), &latest))
	run("runs", "undo", latest.Run, "--yes")
	run("calls", "retry", "--state", "poison", "--request-id", "large", "--set", "call.json.n=2.0", "--yes")
	f.await("the edited call", func() bool { return len(f.target.Calls("large")) == 5 })
	for range 2 { // the second time it is a duplicate
		send()
		f.awaitEmpty()
	}
	f.await("the duplicate", func() bool { return len(f.reasons("large")) == 7 })

	calls := f.target.Calls("large")
	if len(calls) != 6 {
		t.Errorf("%d calls: %v", len(calls), f.reasons("large"))
	}
	webhook, err := standardwebhooks.NewWebhook(secret)
	f.must(err)
	for n, call := range calls {
		want := body
		if n == 4 {
			want = strings.Replace(body, "1.0", "2.0", 1)
		}
		var got, sent any
		f.must(json.Unmarshal(call.Body, &got))
		f.must(json.Unmarshal([]byte(want), &sent))
		if n != 4 && string(call.Body) != want || n == 4 && fmt.Sprint(got) != fmt.Sprint(sent) ||
			call.Header.Get("Content-Length") != strconv.Itoa(len(call.Body)) {
			t.Errorf("call %d: %d bytes %.60q, Content-Length %s", n+1, len(call.Body), call.Body,
				call.Header.Get("Content-Length"))
		}
		if err := webhook.Verify(call.Body, call.Header); err != nil {
			t.Errorf("call %d: %v", n+1, err)
		}
	}
}
