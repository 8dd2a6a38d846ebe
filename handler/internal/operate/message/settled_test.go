package message_test

import (
	"net/http"
	"testing"

	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
)

// settled returns the dead letter that the handler writes for the outcome of a call.
func settled(t *testing.T, content string, outcome decision.Outcome) string {
	t.Helper()
	in := rules().Decision.Open([]byte(content), "m1", storage.Base64.MaxContentBytes(), givenUp)
	if in.Malformed != nil {
		t.Fatal(in.Malformed)
	}
	world := decision.World{Arrived: givenUp, Now: givenUp, Jitter: 0.5}
	d := rules().Decision.Decide(&in, &decision.Verdict{Outcome: &outcome}, world)
	if d.Action != decision.DeadLetter {
		t.Fatalf("%+v is no dead letter but %s", outcome, d.Action)
	}
	w := rules().Decision.Compose(in, d, "async-caller", givenUp)
	if w.Problem != nil {
		t.Fatal(w.Problem)
	}
	return inBase64(string(w.Content))
}

// TestReadSettled reads the dead letters of all failures in both formats, and checks that each failure has its own
// group.
func TestReadSettled(t *testing.T) {
	last := `,"retry":{"maxAttempts":1}`
	keys := map[string]bool{}
	check := func(text, problem string, status int) {
		t.Helper()
		m := read(text)
		if m.Attempts != 1 || int(m.Status) != status || m.Error != problem || !m.Since.Equal(givenUp) ||
			m.Main != "async-caller" {
			t.Errorf("%+v", m)
		}
		keys[message.ByError.Key(m)] = true
	}
	for _, failure := range decision.Failures() {
		if failure == decision.FailureInterrupted {
			continue // reschedule, whatever the policy says
		}
		check(settled(t, native(last), decision.Outcome{Failure: failure, Detail: "in words"}),
			string(failure)+": in words", 0)
	}
	for _, status := range []int{400, 401, 503} {
		outcome := decision.Outcome{
			Status: status, Header: http.Header{"Content-Type": {"text/plain"}},
			Body: []byte("SECRET"),
		}
		check(settled(t, native(last), outcome), "", status)
		if status != 503 { // for a Nexus envelope the policy is the operator's, who wants it tried again
			check(settled(t, nexus(""), outcome), "", status)
		}
	}
	if want := len(decision.Failures()) - 1 + 3; len(keys) != want {
		t.Errorf("%d groups by error, want %d: %v", len(keys), want, keys)
	}
}

func TestReadHostileNexus(t *testing.T) {
	for name, test := range map[string]struct {
		member, reason, main string
		attempts             int
	}{
		"other_case": {
			`,"deadletter":{"REASON":"expired","queue":"async-caller-2","Attempts":4}`, "expired",
			"async-caller-2", 4,
		},
		"only_reason": {`,"DeadLetter":{"Reason":"exhausted"}`, "exhausted", "async-caller", 0},
		"wrong_types": {`,"DeadLetter":{"Reason":5,"Queue":[],"Attempts":"x"}`, "unknown", "async-caller", 0},
		"null":        {`,"DeadLetter":null`, "host_gave_up", "async-caller", 0},
		"own_count": {
			`,"DeadLetter":{"Reason":"expired","Attempts":4},"Trail":[{"Status":500}]`, "expired",
			"async-caller", 4,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := read(inBase64(nexus(test.member)))
			if m.Reason != test.reason || m.Main != test.main || m.Attempts != test.attempts ||
				m.Format != envelope.FormatNexus {
				t.Errorf("%+v", m)
			}
		})
	}
}

// TestRulesContent checks that all uses of a message see the same content.
func TestRulesContent(t *testing.T) {
	for text, want := range map[string]string{
		inBase64("hello"): "hello", "hello": "hello", "": "",
		"aGVsbG8": "aGVsbG8",
	} {
		got := string(rules().Content(text))
		if got != want || read(text).Bytes != len(want) {
			t.Errorf("content of %q is %q, %d bytes", text, got, read(text).Bytes)
		}
	}
}
