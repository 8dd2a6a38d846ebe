package decision_test

import (
	"fmt"

	"asynccaller/handler/internal/rules/decision"
)

// A message is opened, called and settled: the target is busy, so a successor is written.
func ExampleRules_Open() {
	rules := rules()
	in := rules.Open([]byte(`{"asyncCaller":1,"requestId":"order-42","call":{"url":"https://target.example/"}}`), "message-1", limit, now)
	w := decision.World{Arrived: now, Now: now, Jitter: 0.5}
	fmt.Println("due:", rules.IsDue(&in, w))

	d := rules.Decide(&in, &decision.Verdict{Outcome: &decision.Outcome{Status: 503}}, w)
	fmt.Println("after the call:", d.Action, d.Reason, d.Delay)

	write := rules.Compose(in, d, "async-caller", now)
	fmt.Println("write to", write.Queue, "with a delay of", write.Delay)
	// Output:
	// due: true
	// after the call: reschedule temporary_status 5s
	// write to async-caller with a delay of 5s
}

// A malformed message is dead-lettered unchanged.
func ExampleRules_Compose() {
	rules := rules()
	in := rules.Open([]byte(`{"asyncCaller":1,"call":{}}`), "message-1", limit, now)
	d := rules.Decide(&in, nil, decision.World{Now: now})
	w := rules.Compose(in, d, "async-caller", now)
	fmt.Println(d.Action, d.Reason+":", d.Detail)
	fmt.Printf("%s: %s\n", w.Queue, w.Content)
	// Output:
	// dead_letter malformed: call.url: missing
	// async-caller-poison: {"asyncCaller":1,"call":{}}
}
