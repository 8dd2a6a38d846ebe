// Package admission has the gates of this instance: room, circuit breaker and share. They keep a target that hangs or
// is down from taking the slots of the others: each target has a circuit breaker and a share of the slots, and those
// that are not known to answer have only a part of the slots together. A message that is refused does not wait, because
// that would hold a slot: it is rescheduled.
//
// The state is in memory, and none of it has to survive. There is no I/O but the log.
package admission

import (
	"context"
	"sync"
	"time"

	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/targets"
)

// poolBytes is the memory of the calls that the targets share over all functions, without a minimum: that of ordinary
// calls of 400 KiB. The handler must do with 256 MiB (docs/performance.md).
const poolBytes = targets.MaxCalls * 400 << 10

// ordinaryBytes is the part of [envelope.Envelope.Memory] that the memory of an ordinary call includes: some dozens of
// headers.
const ordinaryBytes = 16 << 10

// Room is the gate that bounds the memory of the messages whose calls are in flight, or wait at a gate behind it. It
// counts the slots that they take. It is safe for concurrent use.
type Room struct {
	// poolSize is how many invocations of a queue function may be in flight before the host stops to receive.
	poolSize int
	// callBytes is the most memory that an ordinary call takes.
	callBytes int
	now       func() time.Time

	mu sync.Mutex
	// slots has the slots taken of each queue function; calls are those of all, and bytes their memory and that of
	// posts.
	slots        map[string]int
	calls, bytes int
	flow         flow
}

// NewRoom returns the room of an instance whose queue functions receive messages while at most newBatchThreshold are
// in flight, and for calls that take at most callBytes of memory beside what of [envelope.Envelope.Memory] is not
// ordinary.
func NewRoom(newBatchThreshold, callBytes int, now func() time.Time) *Room {
	return &Room{poolSize: newBatchThreshold, callBytes: callBytes, now: now, slots: map[string]int{}}
}

// Enter implements [delivery.Gate].
func (r *Room) Enter(_ context.Context, due *decision.Due) (decision.Pass, *decision.Verdict) {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if poolBytes-r.bytes < r.callBytes {
		pace := r.flow.pace(r.calls, r.calls, now)
		return nil, busy("instance", r.flow.line.queueDelay(pace, r.calls, now, due.Jitter))
	}
	p := &place{room: r, function: due.Message.Function, bytes: r.bytesOf(due), began: now}
	r.slots[p.function]++
	r.calls++
	r.bytes += p.bytes
	r.flow.begin(now)
	return p, nil
}

// Take takes memory for something else than a call, unless there is not enough. The caller releases it once.
func (r *Room) Take(bytes int) (release func(), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if poolBytes-r.bytes < bytes {
		return nil, false
	}
	r.bytes += bytes
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.bytes -= bytes
	}, true
}

func (r *Room) bytesOf(due *decision.Due) int {
	return r.callBytes + max(due.Intake.Envelope.Memory()-ordinaryBytes, 0)
}

// besides returns how many slots of a function are free, and for how many calls there is memory, besides those of one
// of its messages that has passed the gate and takes so many bytes.
func (r *Room) besides(function string, bytes int) (slots, calls int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.poolSize - (r.slots[function] - 1), (poolBytes - (r.bytes - bytes)) / r.callBytes
}

// place is what one message takes.
type place struct {
	room     *Room
	function string
	bytes    int
	began    time.Time
	isFree   bool
}

// Ended implements [decision.Pass].
func (p *place) Ended(o *decision.Outcome, at time.Time) {
	if o == nil { // nothing of the call is left
		p.Released(at)
	}
}

// Released implements [decision.Pass].
func (p *place) Released(at time.Time) {
	r := p.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.isFree {
		return
	}
	p.isFree = true
	r.slots[p.function]--
	r.calls--
	r.bytes -= p.bytes
	r.flow.leave(p.began)
	r.flow.took(at.Sub(p.began))
}

func busy(detail string, delay time.Duration) *decision.Verdict {
	return &decision.Verdict{Refusal: &decision.Refusal{Reason: decision.Busy, Detail: detail, Delay: delay}}
}
