package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"asynccaller/handler/azurite"
	"asynccaller/handler/faults/storageproxy"
)

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
	product, err := b.productOn(through(proxy, server)).start(ctx)
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

// through is the connection string to Azurite by way of the proxy.
func through(proxy *storageproxy.Proxy, server *azurite.Server) string {
	return strings.Replace(server.ConnectionString, server.Endpoint, proxy.Endpoint(), 1)
}

// countingOne counts for the messages of a cell, after one for which the queue may have to be created.
func (b *bed) countingOne(ctx context.Context, product *process, c cell, seen *countingProxy) (float64, error) {
	b.target.answer(c.Status)
	load := b.load(product, c, sizes{})
	if _, err := load.all(ctx, 1); err != nil {
		return 0, err
	}
	requests, failed, calls := seen.requests.Load(), seen.failed.Load(), b.target.calls.Load()
	if _, err := load.all(ctx, roundMessages); err != nil {
		return 0, err
	}
	requests, failed, calls = seen.requests.Load()-requests, seen.failed.Load()-failed, b.target.calls.Load()-calls
	if failed > 0 || calls != roundMessages {
		return 0, fmt.Errorf("%d requests failed, and %d calls were made for %d messages", failed, calls, roundMessages)
	}
	return float64(requests) / roundMessages, nil
}
