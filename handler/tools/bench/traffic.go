package main

import (
	"fmt"
)

// traffic is what target and storage have got from a program: calls, and bytes of bodies.
type traffic struct{ calls, called, put int64 }

// traffic is what a program has sent so far; the target's part is of both programs.
func (b *bed) traffic(p *process) traffic {
	storage := b.storage
	if p.name == floorName {
		storage = b.floorStorage
	}
	return traffic{b.target.calls.Load(), b.target.received.Load(), storage.received.Load()}
}

func (t traffic) since(before traffic) traffic {
	return traffic{t.calls - before.calls, t.called - before.called, t.put - before.put}
}

// putTolerance is the part by which what is rescheduled may differ from message to message: it holds a date
// and how long the call took.
const putTolerance = 0.1

// check says whether the traffic is that of so many messages, each with a call. An answer of 200 alone
// does not tell: a message that is refused gets one too. And a ratio means nothing unless both programs
// move the same bytes.
func (t traffic) check(messages int, want sizes) error {
	n := int64(messages)
	if t.calls != n {
		return fmt.Errorf("%d calls of %d messages, want one each", t.calls, n)
	}
	if t.called != n*int64(want.call) {
		return fmt.Errorf("calls of %d bytes in all, want %d of %d each", t.called, n, want.call)
	}
	expected := float64(n) * float64(want.put)
	if off := float64(t.put) - expected; off > expected*putTolerance || -off > expected*putTolerance {
		return fmt.Errorf("%d bytes reschedule, want about %d times %d", t.put, n, want.put)
	}
	return nil
}
