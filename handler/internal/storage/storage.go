// Package storage is a narrow view of a storage account: the operations of Azure Queue Storage and Azure Table Storage
// that Async Caller needs, the limits of the services, the names that they accept and the encoding of messages.
// Package azure implements [Queues] and [Table] with the real services, package memory implements them in this process,
// for tests and, behind package emulator, for the demo. Package storagetest tests that all behave the same.
package storage

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of the Queue Storage service
// (https://learn.microsoft.com/rest/api/storageservices/put-message).
const (
	// MaxTextBytes is the size limit of a message's text, as UTF-8, after encoding.
	MaxTextBytes = 64 << 10
	// MaxDelay is the longest time for which a message can be invisible: 7 days, less a second so that it is
	// also shorter than the default time-to-live of 7 days.
	MaxDelay = 7*24*time.Hour - time.Second
	// MaxBatch is the largest number of messages that one Receive or Peek returns.
	MaxBatch = 32
	// MinLease and MaxLease are the bounds of the time for which Receive makes messages invisible.
	MinLease = time.Second
	MaxLease = 7 * 24 * time.Hour
)

// MaxConnections limits the connections to one service of an account. A message needs one for about 10 ms, when its
// call has ended: if all 256 calls of a queue (host.json as shipped) end at once, the last ones wait for some 40 ms.
const MaxConnections = 64

// ConnectionName is the one storage connection that functions may use: the handler writes successors to the account
// of the original message, and knows only this one.
const ConnectionName = "AzureWebJobsStorage"

// The roles that an identity needs to use queues and tables, and those to look at them.
const (
	QueueRole       = "Storage Queue Data Contributor"
	TableRole       = "Storage Table Data Contributor"
	QueueReaderRole = "Storage Queue Data Reader"
	TableReaderRole = "Storage Table Data Reader"
)

// Errors that a [Queues] returns, wrapped. Any other error is a temporary failure (network, 5xx, throttling).
var (
	// ErrNoQueue means that the queue does not exist (or is being deleted).
	ErrNoQueue = errors.New("queue does not exist")
	// ErrStale means that the message is gone, or that the pop receipt is not its newest one.
	ErrStale = errors.New("message is gone or another client received it")
	// ErrRefused means that the service never accepts the request: no permission, a bad name, a text that is
	// too large.
	ErrRefused = errors.New("storage refused")
	// ErrDenied is an [ErrRefused] that another credential, another role or a change of the account's firewall can
	// prevent.
	ErrDenied = fmt.Errorf("%w access", ErrRefused)
	// ErrForeign means that another server answered in the place of storage. It is a temporary failure. As after a lost
	// answer, storage may have carried out the request.
	ErrForeign = errors.New("a proxy (HTTP_PROXY), or the endpoint of another service")
)

// The temporary failures after which storage has certainly not carried out the request. After any other, it may have.
var (
	// ErrBusy means that storage refuses the request for now: its answer was 503 or 429.
	ErrBusy = errors.New("storage is busy")
	// ErrNotSent means that storage has not received the request: there was no connection, or no token.
	ErrNotSent = errors.New("not sent")
)

// Message is an item on a queue.
type Message struct {
	ID string
	// PopReceipt is needed to update or delete the message; empty after Peek.
	PopReceipt string
	// Text is the message's text as stored, encoded (see [Encoding]).
	Text string
	// DequeueCount is how often the message has been received, including by the Receive that returned it.
	DequeueCount int64
	InsertedAt   time.Time
	// ExpiresAt is [NeverExpires] for a message that never expires.
	ExpiresAt time.Time
	// NextVisibleAt is when the lease ends; zero after Peek.
	NextVisibleAt time.Time
}

// Expires reports whether storage will delete the message.
func (m Message) Expires() bool { return m.ExpiresAt.Year() < NeverExpires.Year() }

// Item is a message to write.
type Item struct {
	// Text is the message's text, encoded (see [Encoding]).
	Text string
	// Delay is how long the message stays invisible. A store reduces it to [MaxDelay], treats a negative one as
	// zero, and rounds it up to whole seconds, which the service counts in: a message must not become visible
	// early.
	Delay time.Duration
	// TTL is the message's time-to-live, rounded up to whole seconds; zero means that it never expires. It
	// must be longer than Delay.
	TTL time.Duration
}

// Queues is a Queue Storage account. Implementations are safe for concurrent use. They return the errors above,
// wrapped with the operation and the queue's name. Their errors never contain a connection string, a signature or
// a message's text.
type Queues interface {
	Putter
	// Update replaces the text and the remaining invisibility of a received message and returns its new pop
	// receipt. It keeps the time-to-live and the dequeue count.
	Update(ctx context.Context, queue, id, popReceipt string, text string, delay time.Duration) (string, error)
	// Delete removes a received message.
	Delete(ctx context.Context, queue, id, popReceipt string) error
	// Receive returns up to limit messages (1 to MaxBatch) and makes them invisible for the lease (MinLease to
	// MaxLease).
	Receive(ctx context.Context, queue string, limit int, lease time.Duration) ([]Message, error)
	// Peek returns up to limit visible messages (1 to MaxBatch) and does not change them.
	Peek(ctx context.Context, queue string, limit int) ([]Message, error)
	// Count returns the approximate number of messages in the queue, invisible ones included. It is never too low
	// (https://learn.microsoft.com/rest/api/storageservices/get-queue-metadata).
	Count(ctx context.Context, queue string) (int, error)
	// Names returns the names of the account's queues that begin with prefix, in alphabetical order.
	Names(ctx context.Context, prefix string) ([]string, error)
}

// Putter is the part of a [Queues] that writes new messages.
type Putter interface {
	// Create creates the queue, unless it exists.
	Create(ctx context.Context, queue string) error
	// Put writes a new message. It returns all fields of the message but Text and DequeueCount.
	Put(ctx context.Context, queue string, item Item) (Message, error)
}

// PutCreating writes a new message as [Putter] does. It creates the queue if it does not exist.
func PutCreating(ctx context.Context, store Putter, queue string, item Item) (Message, error) {
	put, err := store.Put(ctx, queue, item)
	if !errors.Is(err, ErrNoQueue) {
		return put, err
	}
	if err := store.Create(ctx, queue); err != nil {
		return Message{}, err
	}
	return store.Put(ctx, queue, item)
}

// ExcludesWrite reports whether a put that failed has certainly written nothing.
func ExcludesWrite(err error) bool {
	return slices.ContainsFunc([]error{ErrBusy, ErrNotSent, ErrRefused, ErrNoQueue},
		func(kind error) bool { return errors.Is(err, kind) })
}

// PoisonSuffix ends the name of the queue to which the Functions host moves the messages of a queue that it
// cannot handle.
const PoisonSuffix = "-poison"

// CheckText returns an [ErrRefused] if a text cannot be a message: it is too large, or it has a character that
// XML, the service's protocol, cannot represent. An XML encoder would silently replace that with U+FFFD.
func CheckText(text string) error {
	if len(text) > MaxTextBytes {
		return fmt.Errorf("text has %d bytes, more than the limit of %d: %w", len(text), MaxTextBytes, ErrRefused)
	}
	if !utf8.ValidString(text) || strings.ContainsFunc(text, outsideXML) {
		return fmt.Errorf("text has characters that XML cannot represent: %w", ErrRefused)
	}
	return nil
}

// outsideXML reports whether XML 1.0 cannot represent the character
// (https://www.w3.org/TR/xml/#charsets).
func outsideXML(r rune) bool {
	return r < ' ' && !strings.ContainsRune("\t\n\r", r) || r == 0xFFFE || r == 0xFFFF
}

// validName matches words of lower-case letters and digits, joined by single dashes.
var validName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// ValidName reports whether the service accepts the name: 3 to 63 lower-case letters, digits and single
// dashes, with no dash at either end.
func ValidName(name string) bool {
	return 3 <= len(name) && len(name) <= 63 && validName.MatchString(name)
}

// validID matches more than the UUIDs that the service and Azurite use, and nothing that means more than a word in a
// URL or in a shell. A word with a leading dash would be a flag.
var validID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,63}$`)

// ValidID reports whether a text can be the id of a message.
func ValidID(id string) bool { return validID.MatchString(id) }

// PoisonName returns the name of the poison queue of the given queue: `<queue>-poison`, as in the Functions
// host. It reports false if the host uses none: the queue is itself a poison queue, or the name would be invalid.
func PoisonName(name string) (string, bool) {
	if strings.HasSuffix(name, PoisonSuffix) {
		return "", false
	}
	poison := name + PoisonSuffix
	return poison, ValidName(poison)
}

// Encoding is how a queue stores a message's content as text: host.json `extensions.queues.messageEncoding`.
type Encoding string

// The encodings that the Functions host supports.
const (
	Base64 Encoding = "base64"
	None   Encoding = "none"
)

// Encode returns the text that stores the content.
func (e Encoding) Encode(content []byte) string {
	if e == None {
		return string(content)
	}
	return base64.StdEncoding.EncodeToString(content)
}

// skipSpace removes the white space that .NET's decoder ignores.
var skipSpace = strings.NewReplacer(" ", "", "\t", "", "\r", "", "\n", "")

// Decode returns the content that the text stores. Like .NET's decoder, which the host uses, it ignores
// white space and requires padding (docs/host.md, "Message encoding").
func (e Encoding) Decode(text string) ([]byte, error) {
	if e == None {
		return []byte(text), nil
	}
	content, err := base64.StdEncoding.DecodeString(skipSpace.Replace(text))
	if err != nil {
		return nil, fmt.Errorf("not base64: %w", err)
	}
	return content, nil
}

// MaxContentBytes returns the size of the largest content whose text fits into a message.
func (e Encoding) MaxContentBytes() int {
	if e == None {
		return MaxTextBytes
	}
	return MaxTextBytes / 4 * 3
}

// The pauses between two tries.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 5 * time.Second
)

// Persist repeats an operation until storage acknowledges it, the operation returns one of the final errors,
// or ctx ends. The limit is the time for one try, so that a try that hangs is repeated. Persist returns the last
// error of the operation that explains more than the end of ctx. Storage may have carried out a try that got no answer.
func Persist(ctx context.Context, limit time.Duration, try func(context.Context) error, final ...error) error {
	var latest error
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		tried, cancel := context.WithTimeout(ctx, limit)
		err := try(tried)
		cancel()
		if err == nil || slices.ContainsFunc(final, func(target error) bool { return errors.Is(err, target) }) {
			return err
		}
		isCut := latest != nil && ctx.Err() != nil && errors.Is(err, ctx.Err())
		if !isCut {
			latest = err
		}
		if !Sleep(ctx, pause+rand.N(pause)) { //nolint:gosec // spreads load, keeps no secret
			return latest
		}
	}
}

// Limits of [Retry]: storage fails over within a minute. Tries have long timeouts: storage may still carry out an
// abandoned one.
const (
	retryTimeout = 3 * time.Minute
	tryTimeout   = time.Minute
)

// Retry repeats an operation for at most three minutes, until it succeeds or returns one of the errors above. If the
// caller has less time, it is enough for three tries. A try without an answer may have been carried out.
func Retry[T any](ctx context.Context, try func(context.Context) (T, error)) (result T, err error) {
	ctx, cancel := context.WithTimeout(ctx, retryTimeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	err = Persist(ctx, min(tryTimeout, time.Until(deadline)/3), func(ctx context.Context) (err error) {
		result, err = try(ctx)
		return err
	}, ErrNoQueue, ErrRefused, ErrStale)
	return result, err
}

// Sleep waits, and reports false if ctx ends before.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 { // the race detector of Go 1.26 can crash at a timer of a fake clock that is due at once
		return ctx.Err() == nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
