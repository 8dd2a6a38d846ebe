package decision_test

import (
	"fmt"

	"asynccaller/handler/internal/decision"
)

// A message is opened, called and settled: the target is busy, so a successor is written.
func ExampleRules_Open() {
	rules := rules()
	in := rules.Open([]byte(`{"asyncCaller":1,"requestId":"order-42","call":{"url":"https://target.example/"}}`), "message-1", limit, now)
	fmt.Println("on arrival:", rules.BeforeCall(in, now).Action)

	d := rules.AfterCall(in, decision.Outcome{Status: 503}, now, now, 0.5)
	fmt.Println("after the call:", d.Action, d.Reason, d.Delay)

	w := rules.Compose(in, d, "async-caller", now)
	fmt.Println("write to", w.Queue, "with a delay of", w.Delay)
	// Output:
	// on arrival: call
	// after the call: reschedule temporary_status 5s
	// write to async-caller with a delay of 5s
}

// A malformed message is dead-lettered unchanged.
func ExampleRules_Compose() {
	rules := rules()
	in := rules.Open([]byte(`{"asyncCaller":1,"call":{}}`), "message-1", limit, now)
	d := rules.BeforeCall(in, now)
	w := rules.Compose(in, d, "async-caller", now)
	fmt.Println(d.Action, d.Reason+":", d.Detail)
	fmt.Printf("%s: %s\n", w.Queue, w.Content)
	// Output:
	// dead_letter malformed: call.url: missing
	// async-caller-poison: {"asyncCaller":1,"call":{}}
}
