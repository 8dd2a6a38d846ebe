// Package azure is [queue.Store] on Azure Queue Storage, or on Azurite, which speaks the same protocol.
package azure

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/queueerror"

	"asynccaller/handler/internal/queue"
)

// Store is a Queue Storage account. It makes each request once: retrying is the caller's, and so is the
// time that a request may take, by its context. Errors are one line and show neither secrets nor texts.
type Store struct {
	service *azqueue.ServiceClient
	http    *http.Client
}

var _ queue.Store = (*Store)(nil)

// Open returns the account that the connection leads to. It sends nothing yet: a wrong key shows with the
// first operation. Close the store when done with it.
func Open(conn Connection) (*Store, error) {
	var cred azcore.TokenCredential
	if conn.AccountKey == "" && conn.SAS == "" {
		var err error
		if cred, err = newCredential(conn.Identity); err != nil {
			return nil, describe("open queue storage", err)
		}
	}
	return open(conn, cred, newHTTPClient(newTransport(conn.Endpoint)))
}

// open is Open with the parts that tests replace.
func open(conn Connection, cred azcore.TokenCredential, client *http.Client) (*Store, error) {
	service, err := newServiceClient(conn, cred, client)
	if err != nil {
		return nil, describe("open queue storage", err)
	}
	return &Store{service: service, http: client}, nil
}

var _ policy.Transporter = (*http.Client)(nil)

// Close closes idle connections. Operations still work afterwards, on new ones.
func (s *Store) Close() { s.http.CloseIdleConnections() }

// Create implements [queue.Store].
func (s *Store) Create(ctx context.Context, name string) error {
	doing := "create queue " + name
	if err := checkName(name); err != nil {
		return describe(doing, err)
	}
	_, err := s.service.NewQueueClient(name).Create(ctx, nil)
	if queueerror.HasCode(err, queueerror.QueueAlreadyExists) { // with metadata that we do not give
		return nil
	}
	return describe(doing, err)
}

// Put implements [queue.Store].
func (s *Store) Put(ctx context.Context, name string, item queue.Item) (queue.Message, error) {
	doing := "put on queue " + name
	if err := cmp.Or(checkName(name), queue.CheckText(item.Text)); err != nil {
		return queue.Message{}, describe(doing, err)
	}
	ttl := int32(never)
	if item.TTL != 0 {
		ttl = wholeSeconds(item.TTL)
	}
	delay := delaySeconds(item.Delay)
	// The service refuses a delay that does not end before the time-to-live.
	resp, err := s.service.NewQueueClient(name).EnqueueMessage(ctx, item.Text, &azqueue.EnqueueMessageOptions{
		TimeToLive:        &ttl,
		VisibilityTimeout: &delay,
	})
	if err != nil || len(resp.Messages) == 0 {
		return queue.Message{}, describe(doing, err)
	}
	m := resp.Messages[0]
	return queue.Message{
		ID:            value(m.MessageID),
		PopReceipt:    value(m.PopReceipt),
		InsertedAt:    value(m.InsertionTime).UTC(),
		ExpiresAt:     value(m.ExpirationTime).UTC(),
		NextVisibleAt: value(m.TimeNextVisible).UTC(),
	}, nil
}

// Update implements [queue.Store].
func (s *Store) Update(ctx context.Context, name, id, popReceipt, text string, delay time.Duration) (string, error) {
	doing := "update message on queue " + name
	if err := cmp.Or(checkName(name), checkReceipt(id, popReceipt), queue.CheckText(text)); err != nil {
		return "", describe(doing, err)
	}
	seconds := delaySeconds(delay)
	resp, err := s.service.NewQueueClient(name).UpdateMessage(ctx, id, popReceipt, text,
		&azqueue.UpdateMessageOptions{VisibilityTimeout: &seconds})
	return value(resp.PopReceipt), describe(doing, err)
}

// Delete implements [queue.Store].
func (s *Store) Delete(ctx context.Context, name, id, popReceipt string) error {
	doing := "delete message from queue " + name
	if err := cmp.Or(checkName(name), checkReceipt(id, popReceipt)); err != nil {
		return describe(doing, err)
	}
	_, err := s.service.NewQueueClient(name).DeleteMessage(ctx, id, popReceipt, nil)
	return describe(doing, err)
}

// Receive implements [queue.Store].
func (s *Store) Receive(ctx context.Context, name string, limit int, lease time.Duration) ([]queue.Message, error) {
	doing := "receive from queue " + name
	if err := checkName(name); err != nil {
		return nil, describe(doing, err)
	}
	count, seconds := saturate(int64(limit)), wholeSeconds(lease)
	resp, err := s.service.NewQueueClient(name).DequeueMessages(ctx, &azqueue.DequeueMessagesOptions{
		NumberOfMessages:  &count,
		VisibilityTimeout: &seconds,
	})
	if err != nil {
		return nil, describe(doing, err)
	}
	messages := make([]queue.Message, 0, len(resp.Messages))
	for _, m := range resp.Messages {
		messages = append(messages, queue.Message{
			ID:            value(m.MessageID),
			PopReceipt:    value(m.PopReceipt),
			Text:          value(m.MessageText),
			DequeueCount:  value(m.DequeueCount),
			InsertedAt:    value(m.InsertionTime).UTC(),
			ExpiresAt:     value(m.ExpirationTime).UTC(),
			NextVisibleAt: value(m.TimeNextVisible).UTC(),
		})
	}
	return messages, nil
}

// Peek implements [queue.Store].
func (s *Store) Peek(ctx context.Context, name string, limit int) ([]queue.Message, error) {
	doing := "peek at queue " + name
	if err := checkName(name); err != nil {
		return nil, describe(doing, err)
	}
	count := saturate(int64(limit))
	resp, err := s.service.NewQueueClient(name).PeekMessages(ctx, &azqueue.PeekMessagesOptions{NumberOfMessages: &count})
	if err != nil {
		return nil, describe(doing, err)
	}
	messages := make([]queue.Message, 0, len(resp.Messages))
	for _, m := range resp.Messages {
		messages = append(messages, queue.Message{
			ID:           value(m.MessageID),
			Text:         value(m.MessageText),
			DequeueCount: value(m.DequeueCount),
			InsertedAt:   value(m.InsertionTime).UTC(),
			ExpiresAt:    value(m.ExpirationTime).UTC(),
		})
	}
	return messages, nil
}

// Count implements [queue.Store].
func (s *Store) Count(ctx context.Context, name string) (int, error) {
	doing := "count queue " + name
	if err := checkName(name); err != nil {
		return 0, describe(doing, err)
	}
	resp, err := s.service.NewQueueClient(name).GetProperties(ctx, nil)
	return int(value(resp.ApproximateMessagesCount)), describe(doing, err)
}

// Names implements [queue.Store].
func (s *Store) Names(ctx context.Context, prefix string) ([]string, error) {
	var names []string
	pages := s.service.NewListQueuesPager(&azqueue.ListQueuesOptions{Prefix: &prefix})
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, describe("list queues", err)
		}
		for _, q := range page.Queues {
			names = append(names, value(q.Name))
		}
	}
	slices.Sort(names)
	return names, nil
}

// never is the time-to-live of a message that never expires.
const never = -1

// wholeSeconds is what the service counts in: fractions are rounded up.
func wholeSeconds(d time.Duration) int32 {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return saturate(max(seconds, 0))
}

func delaySeconds(delay time.Duration) int32 { return wholeSeconds(min(delay, queue.MaxDelay)) }

// saturate keeps a number that is far too large from turning into a sensible one; the service refuses it.
func saturate(n int64) int32 { return int32(min(max(n, math.MinInt32), math.MaxInt32)) }

func value[T any](p *T) T {
	if p == nil {
		return *new(T)
	}
	return *p
}
