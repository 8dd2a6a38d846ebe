package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2" //nolint:depguard // the SDK alone is what the product is compared with

	"asynccaller/handler/tools/azurite"
)

// reschedules is what putting back into Azurite has shown: messages a second of the product's, whose targets
// are busy, beside those of the SDK alone. Azurite costs more than either.
type reschedules struct {
	// Apart says that Azurite had a processor of its own, and who wrote to it all others.
	Apart bool `json:"apart"`
	// Messages is how many are written in each round, by 24 in parallel.
	Messages int    `json:"messages"`
	Rounds   int    `json:"rounds"`
	SDK      spread `json:"sdk_rate"`
	Product  spread `json:"product_rate"`
	Ratio    spread `json:"ratio"`
}

// roundMessages is how many messages are written in a round, by 24 in parallel. Azurite gets slower with the
// number of messages that a queue has.
const roundMessages = 20 * shortParallel

// startAzurite installs Azurite if need be, and starts one.
func startAzurite(ctx context.Context, talk io.Writer) (*azurite.Server, error) {
	err := azurite.Install(ctx, talk)
	if err == nil {
		var server *azurite.Server
		if server, err = azurite.Start(ctx, azurite.Options{}); err == nil {
			return server, nil
		}
	}
	return nil, fmt.Errorf("%w; or leave out what needs it with -azurite=false", err)
}

// intoAzurite measures with an Azurite of its own: on the processors that all share, where each disturbs the
// others, and apart from them, as storage is. Apart, this process runs on no more threads at a time than it
// has processors left, as the product does, which finds out by itself.
func (b *bed) intoAzurite(ctx context.Context, rounds int, apart bool, talk io.Writer) (p reschedules, err error) {
	var rest []int
	if apart {
		all, err := processors()
		if err != nil {
			return p, err
		}
		rest = all[1:]
		defer func(before int) {
			runtime.GOMAXPROCS(before)
			err = errors.Join(err, keepTo(all))
		}(runtime.GOMAXPROCS(len(rest)))
		if err := keepTo(all[:1]); err != nil {
			return p, err
		}
	}
	server, err := startAzurite(ctx, talk)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	if apart {
		if err := keepTo(rest); err != nil {
			return p, err
		}
	}
	p, err = b.puttingBack(ctx, server, rounds)
	p.Apart = apart
	return p, err
}

// puttingBack measures, SDK and product in turn, each first in every second round.
func (b *bed) puttingBack(ctx context.Context, server *azurite.Server, rounds int) (p reschedules, err error) {
	c := cell{KiB: 1, Mode: modeBinary, Parallel: shortParallel, Status: http.StatusServiceUnavailable}
	message, err := b.written(ctx, c)
	if err != nil {
		return p, err
	}
	product, err := b.productOn(server.ConnectionString).start(ctx)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, product.stop()) }()
	q, err := newSDKQueue(ctx, server.ConnectionString, strings.ToLower(c.Mode.function()))
	if err != nil {
		return p, err
	}
	defer q.close()
	load := b.load(product, c, sizes{})
	var sdkRates, rates []float64
	alone := func() error {
		return q.round(ctx, &sdkRates, func() (time.Duration, error) { return q.fill(ctx, message) })
	}
	whole := func() error {
		return q.round(ctx, &rates, func() (time.Duration, error) { return load.all(ctx, roundMessages) })
	}
	if err := alternate(rounds+1, alone, whole); err != nil {
		return p, fmt.Errorf("putting back into azurite: %w", err)
	}
	sdkRates, rates = sdkRates[1:], rates[1:] // the first round warms up
	return reschedules{
		Messages: roundMessages, Rounds: rounds,
		SDK: newSpread(sdkRates), Product: newSpread(rates), Ratio: ratios(rates, sdkRates),
	}, nil
}

// sdkQueue is a queue as the SDK sees it: one client for all.
type sdkQueue struct {
	client *azqueue.QueueClient
	http   *http.Client
}

func newSDKQueue(ctx context.Context, connectionString, name string) (*sdkQueue, error) {
	q := &sdkQueue{http: &http.Client{Transport: &http.Transport{
		// Its own would keep ten connections and make the others anew, over and over.
		MaxIdleConnsPerHost: shortParallel,
	}}}
	var options azqueue.ClientOptions
	options.Transport = q.http
	var err error
	if q.client, err = azqueue.NewQueueClientFromConnectionString(connectionString, name, &options); err != nil {
		return nil, err
	}
	_, err = q.client.Create(ctx, nil)
	return q, err
}

func (q *sdkQueue) close() { q.http.CloseIdleConnections() }

// round empties the queue, lets it be filled, and adds the rate if all messages are there then.
func (q *sdkQueue) round(ctx context.Context, rates *[]float64, fill func() (took time.Duration, err error)) error {
	if _, err := q.client.ClearMessages(ctx, nil); err != nil {
		return err
	}
	took, err := fill()
	if err != nil {
		return err
	}
	properties, err := q.client.GetProperties(ctx, nil)
	if err != nil {
		return err
	}
	if n := properties.ApproximateMessagesCount; n == nil || *n != roundMessages {
		return fmt.Errorf("the queue does not have the %d messages that were written", roundMessages)
	}
	*rates = append(*rates, roundMessages/took.Seconds())
	return nil
}

// fill writes a round's messages in the plainest way.
func (q *sdkQueue) fill(ctx context.Context, message put) (took time.Duration, err error) {
	ttl, delay := int32(-1), int32(message.delay/time.Second)
	options := &azqueue.EnqueueMessageOptions{TimeToLive: &ttl, VisibilityTimeout: &delay}
	begin := time.Now()
	err = share(roundMessages, shortParallel, func(int) error {
		_, err := q.client.EnqueueMessage(ctx, message.text, options)
		return err
	})
	return time.Since(begin), err
}
