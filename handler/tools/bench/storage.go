//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"asynccaller/handler/tools/storageproxy"
	"asynccaller/handler/tools/testbed"
)

// roundMessages is how many messages are written in a round. Azurite gets slower with the number of messages on a queue.
const roundMessages = 20 * parallel

// requests watches the handler's requests to storage.
type requests struct {
	// all counts them, answered those with an answer, failed those that storage did not carry out.
	all, answered, failed atomic.Int64
	// latest is the text of the latest message that was put on a queue.
	latest atomic.Value
}

// Before implements [storageproxy.Watcher].
func (s *requests) Before(r storageproxy.Request) storageproxy.Order {
	s.all.Add(1)
	if r.Operation == storageproxy.Put {
		s.latest.Store(r.Text)
	}
	return storageproxy.Order{}
}

// After implements [storageproxy.Watcher].
func (s *requests) After(_ storageproxy.Request, a storageproxy.Answer) storageproxy.Order {
	if !a.Done() {
		s.failed.Add(1)
	}
	s.answered.Add(1)
	return storageproxy.Order{}
}

// measureStorage counts storage transactions and connections at a proxy before Azurite, and measures the rate of
// reschedules without the proxy.
func (b *bench) measureStorage(ctx context.Context, r *report) error {
	if err := b.startAzurite(ctx); err != nil {
		return err
	}
	err := b.withHandler(ctx, b.proxy.Through(b.azurite.ConnectionString), func(p *process) error { return b.countTransactions(ctx, r, p) })
	if err != nil {
		return err
	}
	rest := b.processors
	if len(rest) > 1 {
		rest = rest[1:]
	}
	return onProcessors(rest, b.processors, func() error {
		return b.withHandler(ctx, b.azurite.ConnectionString, func(p *process) error { return b.compareWithSDK(ctx, r, p) })
	})
}

func (b *bench) countTransactions(ctx context.Context, r *report, p *process) error {
	b.say("storage transactions and connections")
	if err := b.awaitProbe(ctx); err != nil {
		return fmt.Errorf("waiting for the handler's request at its start: %w", err)
	}
	for _, outcome := range []struct {
		name   string
		status int
		want   float64
	}{
		{"delivered", http.StatusOK, 0},
		{"dead-lettered", http.StatusBadRequest, 1},
		{"rescheduled", http.StatusServiceUnavailable, 1}, // the last, because the SDK writes the same message
	} {
		b.target.answer(outcome.status)
		load := b.load(p, small, parallel)
		if _, _, err := load.run(ctx, times(1)); err != nil { // it may create a queue
			return err
		}
		before, failed := b.requests.all.Load(), b.requests.failed.Load()
		n, _, err := load.run(ctx, times(roundMessages))
		if err == nil && b.requests.failed.Load() > failed {
			err = errors.New("storage did not carry out a request")
		}
		if err != nil {
			return fmt.Errorf("counting storage transactions, %s: %w", outcome.name, err)
		}
		r.add("storage transactions of a message: "+outcome.name, exactly, outcome.want, float64(b.requests.all.Load()-before)/float64(n))
	}
	if _, _, err := b.load(p, small, mostCalls).run(ctx, times(4*mostCalls)); err != nil {
		return err
	}
	r.add(fmt.Sprintf("storage connections, %d reschedules at a time", mostCalls), atMost, 64, float64(b.proxy.Peak()))
	return nil
}

// awaitProbe waits until storage has answered the handler's request at its start, which belongs to no message.
func (b *bench) awaitProbe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return testbed.Await(ctx, func() bool { return b.requests.answered.Load() > 0 })
}

// compareWithSDK compares the rate of reschedules with that of the SDK's EnqueueMessage, called by this process with the
// same message and without the handler.
func (b *bench) compareWithSDK(ctx context.Context, r *report, p *process) error {
	b.say("reschedules compared with the SDK")
	// The SDK's own client would keep ten connections and open the others again and again.
	transport := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: parallel}}
	defer transport.CloseIdleConnections()
	var options azqueue.ClientOptions
	options.Transport = transport
	q, err := azqueue.NewQueueClientFromConnectionString(b.azurite.ConnectionString, binary.queue(), &options)
	if err != nil {
		return err
	}
	load := b.load(p, small, parallel)
	reschedule := func() (time.Duration, error) {
		_, took, err := load.run(ctx, times(roundMessages))
		return took, err
	}
	text := b.requests.latest.Load().(string)
	var sdk, handler []float64
	err = alternate(
		b.rounds+1, // the first warms up
		func() error {
			return fillQueue(ctx, q, &sdk, func() (time.Duration, error) { return enqueue(ctx, q, text) })
		},
		func() error { return fillQueue(ctx, q, &handler, reschedule) },
	)
	if err != nil {
		return fmt.Errorf("rescheduling into azurite: %w", err)
	}
	r.add("reschedules, 1/s: azqueue alone", noBound, 0, sdk[1:]...)
	r.add("reschedules, 1/s: handler", noBound, 0, handler[1:]...)
	r.add("rate of reschedules to azqueue alone", atLeast, 0.8, ratios(handler[1:], sdk[1:])...)
	return nil
}

// fillQueue clears the queue, fills it and adds the rate. It is an error if the queue does not have all messages then.
func fillQueue(ctx context.Context, q *azqueue.QueueClient, rates *[]float64, fill func() (took time.Duration, err error)) error {
	if _, err := q.ClearMessages(ctx, nil); err != nil {
		return err
	}
	took, err := fill()
	if err != nil {
		return err
	}
	properties, err := q.GetProperties(ctx, nil)
	if err != nil {
		return err
	}
	if n := properties.ApproximateMessagesCount; n == nil || *n != roundMessages {
		return fmt.Errorf("the queue does not have the %d messages that were written", roundMessages)
	}
	*rates = append(*rates, roundMessages/took.Seconds())
	return nil
}

// enqueue puts the messages of a round on the queue.
func enqueue(ctx context.Context, q *azqueue.QueueClient, text string) (took time.Duration, err error) {
	ttl, delay := int32(-1), int32(5)
	options := &azqueue.EnqueueMessageOptions{TimeToLive: &ttl, VisibilityTimeout: &delay}
	more := times(roundMessages)
	errs := make([]error, parallel)
	begin := time.Now()
	share(parallel, func(n int) {
		for errs[n] == nil && more() {
			_, errs[n] = q.EnqueueMessage(ctx, text, options)
		}
	})
	return time.Since(begin), errors.Join(errs...)
}
