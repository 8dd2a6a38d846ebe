package delivery

import (
	"context"
	"fmt"

	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/route"
)

// Posted is the call of a post whose message storage has acknowledged.
type Posted struct {
	Identity *decision.Identity
	// Queue is the queue of the message, and MessageID its id there.
	Queue, MessageID string
}

// TooLargeError means that the call of a post has no room in a message.
type TooLargeError struct {
	// Limit is the size of the largest message, in bytes.
	Limit int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the call has no room in a message, which holds %d bytes, even if it is compressed", e.Limit)
}

// MalformedError means that the call of a post cannot be made.
type MalformedError struct{ Err error }

func (e *MalformedError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *MalformedError) Unwrap() error { return e.Err }

// Post writes the call of a post as an envelope to the queue of the route's successors, as after a first failure: from
// then on it is a message like any other. It returns when storage has acknowledged the message, or a [*TooLargeError],
// a [*MalformedError], or why storage has not.
func (d *Deliverer) Post(ctx context.Context, to route.Route, a route.Arrival) (Posted, error) {
	content, identity, err := d.compose(to, a)
	if err != nil {
		return Posted{}, err
	}
	put, err := d.Settler.Accept(ctx, to.Successors, content)
	return Posted{Identity: identity, Queue: to.Successors, MessageID: put.ID}, err
}

// compose returns the first envelope of a post, one at a time: it takes much more memory than its content.
func (d *Deliverer) compose(to route.Route, a route.Arrival) (content []byte, identity *decision.Identity, err error) {
	d.posting.Lock()
	defer d.posting.Unlock()
	limit := d.Settler.MaxContentBytes()
	in := d.Rules.OpenRouted(to, a, 0, limit, d.Now())
	switch {
	case in.NoRoom:
		return nil, nil, &TooLargeError{limit}
	case in.Malformed != nil:
		return nil, nil, &MalformedError{in.Malformed}
	}
	written, err := in.Envelope.Successor(limit)
	if err != nil {
		return nil, nil, &TooLargeError{limit}
	}
	return written.Bytes, in.Identity(), nil
}
