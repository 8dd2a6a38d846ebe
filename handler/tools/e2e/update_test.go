package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// inUpdateMode makes the handler put messages back in place.
var inUpdateMode = []string{"ASYNC_CALLER_RESCHEDULE=update"}

// modes counts how messages were rescheduled, by what the log says.
func (b *bed) modes() map[any]int {
	modes := map[any]int{}
	for _, line := range b.host.Lines("settled") {
		if line["action"] == "reschedule" {
			modes[line["reschedule"]]++
		}
	}
	return modes
}

// TestUpdateTwelveFailures: a target that fails 12 times and then answers 200 gets exactly 13 calls.
func TestUpdateTwelveFailures(t *testing.T) {
	t.Parallel()
	b := newBed(t, options{})
	b.put("r0", strings.Repeat("503,", 12)+"200", `,"retry":{"schedule":["1s"]}`)
	b.start(inUpdateMode)
	b.await("the last call", func() bool { return b.delivered(1) })
	b.awaitEmpty()
	s := b.summary()
	for n, call := range b.target.Calls("r0") {
		if call.Attempt != fmt.Sprint(n+1) {
			t.Errorf("call %d is attempt %s", n+1, call.Attempt)
		}
	}
	if calls, poison := len(b.target.Calls("r0")), b.count(poisonQueue); calls != 13 || poison > 0 {
		t.Errorf("%d calls, %d messages in the poison queue", calls, poison)
	}
	if s["max_dequeue_count"] != 4.0 || s["failed"] != 0.0 || s["poisoned"] != 0.0 {
		t.Errorf("the host saw %v, want dequeue counts below host.json's 5", s)
	}
	if modes := b.modes(); modes["update"] != 9 || modes["enqueue"] != 3 {
		t.Errorf("reschedule by %v, want every fourth by a successor", modes)
	}
}

// TestUpdateManyMessages: of many at a time, each is called as often as its script has answers.
func TestUpdateManyMessages(t *testing.T) {
	t.Parallel()
	const messages = 50
	scripts := []string{"200", "503,200", "503,429,500,503,404,200", "reset,200", "503,400"}
	b := newBed(t, options{})
	for n := range messages {
		b.put(fmt.Sprintf("r%d", n), scripts[n%len(scripts)], `,"retry":{"schedule":["0s","1s"]}`)
	}
	b.start(inUpdateMode)
	b.await("10 dead letters", func() bool { return b.count(poisonQueue) == messages/len(scripts) })
	b.awaitEmpty()
	s := b.summary()
	for n := range messages {
		want := strings.Count(scripts[n%len(scripts)], ",") + 1
		if got := len(b.target.Calls(fmt.Sprintf("r%d", n))); got != want {
			t.Errorf("r%d: %d calls, want %d", n, got, want)
		}
	}
	for _, e := range b.deadLetters() {
		if letter, _ := e["deadLetter"].(map[string]any); letter["reason"] != "rejected" {
			t.Errorf("dead letter %v", e)
		}
	}
	if s["failed"] != 0.0 || s["poisoned"] != 0.0 {
		t.Errorf("the host saw %v", s)
	}
	if modes := b.modes(); modes["update"] == 0 || modes[nil] > 0 {
		t.Errorf("reschedule by %v", modes)
	}
}

// TestUpdateStorageAway: storage that is gone for five seconds loses no message.
func TestUpdateStorageAway(t *testing.T) {
	t.Parallel()
	deliverWithStorageAway(t, 5*time.Second, inUpdateMode)
}

// TestUpdateCtrlCDuringASlowCall: the message is the one that was there.
func TestUpdateCtrlCDuringASlowCall(t *testing.T) {
	t.Parallel()
	b, message := interruptSlowCall(t, inUpdateMode)
	if message.DequeueCount != 1 {
		t.Errorf("dequeue count %d, want that of the message that came", message.DequeueCount)
	}
	if modes := b.modes(); modes["update"] != 1 {
		t.Errorf("reschedule by %v", modes)
	}
}

// TestUpdateInTextMode: a sender's metadata is not used, so messages are rescheduled by successors.
func TestUpdateInTextMode(t *testing.T) {
	t.Parallel()
	b := newBed(t, options{dataType: "string"})
	b.put("r0", "503,503,200", `,"PopReceipt":"x","retry":{"schedule":["1s"]}`)
	b.start(inUpdateMode)
	b.await("the last call", func() bool { return b.delivered(1) })
	b.awaitEmpty()
	if modes := b.modes(); len(b.target.Calls("r0")) != 3 || modes["enqueue"] != 2 || len(modes) != 1 {
		t.Errorf("%d calls, reschedule by %v", len(b.target.Calls("r0")), modes)
	}
}
