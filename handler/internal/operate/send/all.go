package send

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// parallelSends is how many envelopes are sent at once. Storage takes some milliseconds for each.
const parallelSends = 8

// Sending is one of several envelopes that are being sent.
type Sending struct {
	// Number is its position, from 1.
	Number int

	// done is closed when the others are set.
	done    chan struct{}
	message Message
	receipt Receipt
	err     error
}

// Wait returns the result of [Sender.Prepare] and [Sender.Send] for the envelope. The error is that of either.
func (s *Sending) Wait() (Message, Receipt, error) {
	<-s.done
	return s.message, s.receipt, s.err
}

// SendAll reads envelopes, JSON one after the other, and starts to send each, until the input or ctx ends. What it has
// started is completed even then, so that the result of each envelope is known. An invalid envelope does not keep the
// others from being sent. Without a Store, the envelopes are only prepared. When ctx ends first, a read of the input
// goes on until the program ends.
func (s *Sender) SendAll(ctx context.Context, input io.Reader) <-chan *Sending {
	all := make(chan *Sending, parallelSends-2) // one more is awaited, and one is begun before there is room
	from, to := io.Pipe()
	go func() {
		_, err := io.Copy(to, input)
		_ = to.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { _ = to.Close() })
	go func() {
		defer close(all)
		defer func() { _ = from.Close() }()
		reader := json.NewDecoder(from)
		for number := 1; ; number++ {
			var content json.RawMessage
			err := reader.Decode(&content)
			if errors.Is(err, io.EOF) || ctx.Err() != nil {
				return
			}
			sending := &Sending{Number: number, done: make(chan struct{})}
			if err != nil { // the beginning of the next one is unknown
				sending.err = fmt.Errorf("not JSON: %w; this and all following envelopes were not sent", err)
				close(sending.done)
				all <- sending
				return
			}
			go func() {
				defer close(sending.done)
				sending.send(context.WithoutCancel(ctx), s, content)
			}()
			all <- sending
		}
	}()
	return all
}

func (s *Sending) send(ctx context.Context, sender *Sender, content []byte) {
	s.message, s.err = sender.Prepare(content)
	if s.err == nil && sender.Store != nil {
		s.receipt, s.err = sender.Send(ctx, s.message)
	}
}
