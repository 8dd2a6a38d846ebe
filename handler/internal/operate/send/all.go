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
	contents := read(ctx, input)
	go func() {
		defer close(all)
		for number := 1; ctx.Err() == nil; number++ {
			select {
			case <-ctx.Done():
			case c, ok := <-contents:
				if !ok {
					return
				}
				sending := &Sending{Number: number, done: make(chan struct{}), err: c.err}
				go sending.send(context.WithoutCancel(ctx), s, c.json)
				all <- sending
			}
		}
	}()
	return all
}

// content is one envelope of the input, or why there is none.
type content struct {
	json json.RawMessage
	err  error
}

// read reads envelopes until the input or ctx ends.
func read(ctx context.Context, input io.Reader) <-chan content {
	contents := make(chan content)
	go func() {
		defer close(contents)
		reader := json.NewDecoder(input)
		for {
			var c content
			c.err = reader.Decode(&c.json)
			if errors.Is(c.err, io.EOF) {
				return
			}
			if c.err != nil { // the beginning of the next one is unknown
				c.err = fmt.Errorf("not JSON: %w; this and all following envelopes were not sent", c.err)
			}
			select {
			case <-ctx.Done():
				return
			case contents <- c:
			}
			if c.err != nil {
				return
			}
		}
	}()
	return contents
}

func (s *Sending) send(ctx context.Context, sender *Sender, content json.RawMessage) {
	defer close(s.done)
	if s.err != nil {
		return
	}
	s.message, s.err = sender.Prepare(content)
	if s.err == nil && sender.Store != nil {
		s.receipt, s.err = sender.Send(ctx, s.message)
	}
}
