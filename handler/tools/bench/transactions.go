package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync/atomic"

	"asynccaller/handler/tools/faults/storageproxy"
)

// outcomes are what can become of a message, by what its target answers, and how many storage transactions that
// is to take.
var outcomes = []struct {
	status int
	name   string
	wanted float64
}{
	{http.StatusOK, "delivered call", 0},
	{http.StatusServiceUnavailable, "reschedule", 1},
	{http.StatusBadRequest, "dead letter", 1},
}

// transactions are the storage transactions of a message, as both tables of the report have them. Of several
// numbers each is the one that is farthest from what is wanted; it is nil where none were counted.
type transactions struct {
	what           string
	wanted         float64
	floor, product *float64
}

// transactions are those of each outcome: what the stubs have counted, and then a proxy before Azurite.
func (r *report) transactions() (all []transactions) {
	const of = "storage transactions of a "
	for _, o := range outcomes {
		floor := r.inCells(o.status, func(c measured) float64 { return c.FloorStorage })
		product := r.inCells(o.status, func(c measured) float64 { return c.Storage })
		if o.status == http.StatusBadRequest {
			product = []float64{r.DeadLetter} // which no cell has
		}
		all = append(all, transactions{of + o.name, o.wanted, farthest(0, floor), farthest(o.wanted, product)})
	}
	for _, o := range outcomes {
		t := transactions{what: of + o.name + ", Azurite", wanted: o.wanted}
		for _, c := range r.Counted {
			if c.Status == o.status {
				t.product = &c.Transactions
			}
		}
		all = append(all, t)
	}
	return all
}

// inCells is a number of each cell with the status.
func (r *report) inCells(status int, of func(measured) float64) (all []float64) {
	for _, c := range r.Cells {
		if c.Status == status {
			all = append(all, of(c))
		}
	}
	return all
}

func farthest(wanted float64, numbers []float64) (far *float64) {
	for _, n := range numbers {
		if far == nil || math.Abs(n-wanted) > math.Abs(*far-wanted) {
			far = &n
		}
	}
	return far
}

// counted is how many storage transactions the product makes for a message, as a proxy before Azurite counts
// them: there no answer is made up, and each may lead to another request.
type counted struct {
	// Status is what the target answers: 400 makes a dead letter.
	Status       int     `json:"status"`
	Messages     int     `json:"messages"`
	Transactions float64 `json:"transactions"`
}

// countingProxy counts requests, and those that Azurite did not carry out.
type countingProxy struct{ requests, failed atomic.Int64 }

func (c *countingProxy) Before(storageproxy.Request) storageproxy.Order {
	c.requests.Add(1)
	return storageproxy.Order{}
}

func (c *countingProxy) After(_ storageproxy.Request, a storageproxy.Answer) storageproxy.Order {
	if !a.Done() {
		c.failed.Add(1)
	}
	return storageproxy.Order{}
}

// counting counts for each of what can become of a message.
func (b *bed) counting(ctx context.Context, talk io.Writer) (all []counted, err error) {
	server, err := startAzurite(ctx, talk)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	var seen countingProxy
	proxy, err := storageproxy.Open(ctx, server.Endpoint, &seen)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, proxy.Close()) }()
	product, err := b.productOn(proxy.Through(server.ConnectionString)).start(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, product.stop()) }()
	for _, o := range outcomes {
		c := cell{KiB: 1, Mode: modeBinary, Parallel: shortParallel, Status: o.status}
		transactions, err := b.countingOne(ctx, product, c, &seen)
		if err != nil {
			return nil, fmt.Errorf("counting storage transactions, %v: %w", c, err)
		}
		all = append(all, counted{o.status, roundMessages, transactions})
	}
	return all, nil
}

// countingOne counts for the messages of a cell, after one for which the queue may have to be created.
func (b *bed) countingOne(ctx context.Context, product *process, c cell, seen *countingProxy) (float64, error) {
	b.target.answer(c.Status)
	load := b.load(product, c, sizes{})
	if _, err := load.all(ctx, 1); err != nil {
		return 0, err
	}
	requests, failed, earlier := seen.requests.Load(), seen.failed.Load(), b.traffic(product)
	if _, err := load.all(ctx, roundMessages); err != nil {
		return 0, err
	}
	// Nothing comes to the stub, so that no bytes are rescheduled is right.
	if err := b.traffic(product).since(earlier).check(roundMessages, b.callSizes(c)); err != nil {
		return 0, err
	}
	if n := seen.failed.Load() - failed; n > 0 {
		return 0, fmt.Errorf("azurite has not carried out %d requests", n)
	}
	return float64(seen.requests.Load()-requests) / roundMessages, nil
}
