package delivery_test

import (
	"fmt"
	"strings"
	"testing"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/guard"
	"asynccaller/handler/internal/rules/targets"
)

// TestRefusedTargetIsNoCall: a target that is refused by its name or address costs the targets of its profile nothing.
// No message for it is busy, and the limits of the others stay in use.
func TestRefusedTargetIsNoCall(t *testing.T) {
	b := setup(t, answers(decision.Outcome{Status: 200}))
	profiles, err := targets.Parse([]byte(`{"*": {"rate": "1/h"}}`), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.Guard.Deny, err = guard.ParseDeny("*.corp.example, 10.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	b.Rules.Profiles = profiles
	deliver := func(url, host string) *delivery.Result {
		return b.deliver(fmt.Sprintf(`{"asyncCaller":1,"call":{"url":%q,"headers":{"Host":%q}}}`, url, host))
	}
	const victim = "https://victim.example/"
	if r := deliver(victim, "victim.example"); r.Reason != decision.Delivered {
		t.Fatalf("%s: %s", r.Reason, r.Detail)
	}
	for i := range 100 {
		for url, host := range map[string]string{
			fmt.Sprintf("http://127.1.%d.%d:%d/", i>>8, i&255, i+1): fmt.Sprintf("127.1.%d.%d:%d", i>>8, i&255, i+1),
			fmt.Sprintf("http://t%d.corp.example/", i):              fmt.Sprintf("t%d.corp.example", i),
			fmt.Sprintf("http://t%d.example/", i%2):                 "secret.corp.example",
		} {
			r := deliver(url, host)
			refused := r.Reason == decision.Reason(decision.FailureTargetRefused) &&
				strings.Contains(r.Detail, "refused")
			if !refused || r.Action != decision.DeadLetter || r.Attempt != 1 {
				t.Fatalf("%s with Host %s: %s, %s: %s", url, host, r.Action, r.Reason, r.Detail)
			}
		}
	}
	if len(b.target.calls) != 1 {
		t.Errorf("%d calls, want 1", len(b.target.calls))
	}
	if r := deliver(victim, "victim.example"); r.Reason != decision.Busy {
		t.Errorf("the second call to the victim: %s: %s", r.Reason, r.Detail)
	}
}
