// Package queue is our narrow view of Azure Queue Storage: the operations we need, the limits of the
// service and the names it accepts. Package azure implements [Store] on the real service, package
// memory in this process for tests; package queuetest holds both to the same behaviour.
package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of the Queue Storage service
// (https://learn.microsoft.com/rest/api/storageservices/put-message).
const (
	// MaxTextBytes is the size limit of a message's text, as UTF-8, after any encoding.
	MaxTextBytes = 64 << 10
	// MaxDelay is the longest time that a message can be kept invisible: 7 days, less a second so that
	// it also stays below the 7 days a message lives by default.
	MaxDelay = 7*24*time.Hour - time.Second
	// MaxBatch is the largest number of messages that one Receive or Peek returns.
	MaxBatch = 32
)

// Errors that a [Store] returns, wrapped. Any other error is a failure that may pass (network, 5xx,
// throttling).
var (
	// ErrNoQueue means that the queue does not exist (or is being deleted).
	ErrNoQueue = errors.New("queue does not exist")
	// ErrStale means that the message is gone or that the pop receipt is no longer its newest one.
	ErrStale = errors.New("message is gone or was received by somebody else")
	// ErrRefused means that the service will not do this however often it is asked: no permission, a
	// bad name, a text that is too large.
	ErrRefused = errors.New("storage refused")
)

// Message is an item on a queue.
type Message struct {
	ID string
	// PopReceipt is needed to update or delete the message; empty after Peek.
	PopReceipt string
	// Text is what stands on the queue, still encoded (see [Encoding]).
	Text string
	// DequeueCount is how often the message has been received so far: after Receive, this time included.
	DequeueCount int64
	InsertedAt   time.Time
	// ExpiresAt lies in the year 9999 for a message that never expires.
	ExpiresAt time.Time
	// NextVisibleAt is when the lease ends; zero after Peek.
	NextVisibleAt time.Time
}

// Item is a message to be written.
type Item struct {
	// Text is the message's text, already encoded (see [Encoding]).
	Text string
	// Delay is how long the message stays invisible, at most [MaxDelay]: a longer one is cut, a negative
	// one counts as zero. Fractions of a second are rounded up, because the service counts whole seconds
	// and a message must not come early.
	Delay time.Duration
	// TTL is how long the message lives, in whole seconds, rounded up; zero means that it never expires.
	// It must be longer than Delay.
	TTL time.Duration
}

// Store is a Queue Storage account. Implementations are safe for concurrent use and return the errors
// above, wrapped with the operation and the queue's name; never a connection string, a signature or a
// message's text.
type Store interface {
	// Create makes the queue; that it exists already is not an error.
	Create(ctx context.Context, queue string) error
	// Put writes a new message. It returns the message as far as the service tells: all but Text and
	// DequeueCount.
	Put(ctx context.Context, queue string, item Item) (Message, error)
	// Update replaces the text and the remaining invisibility of a message that was received, and
	// returns its new pop receipt. Time-to-live and dequeue count stay as they are.
	Update(ctx context.Context, queue, id, popReceipt string, text string, delay time.Duration) (string, error)
	// Delete removes a message that was received.
	Delete(ctx context.Context, queue, id, popReceipt string) error
	// Receive takes up to limit messages (1 to MaxBatch) and makes them invisible for the lease (1 s to 7 days).
	Receive(ctx context.Context, queue string, limit int, lease time.Duration) ([]Message, error)
	// Peek reads up to limit visible messages (1 to MaxBatch) and leaves them as they are.
	Peek(ctx context.Context, queue string, limit int) ([]Message, error)
	// Count tells about how many messages the queue holds, invisible ones included.
	Count(ctx context.Context, queue string) (int, error)
	// Names lists the account's queues whose names begin with prefix, in alphabetical order.
	Names(ctx context.Context, prefix string) ([]string, error)
}

const poisonSuffix = "-poison"

// CheckText reports, as an [ErrRefused], what keeps a text from being a message: it is too large, or has
// characters that XML, which the service speaks, cannot carry. An XML encoder would write U+FFFD for
// those without a word.
func CheckText(text string) error {
	if len(text) > MaxTextBytes {
		return fmt.Errorf("text has %d bytes, at most %d fit: %w", len(text), MaxTextBytes, ErrRefused)
	}
	if isPlain(text) {
		return nil
	}
	if !utf8.ValidString(text) || strings.ContainsFunc(text, outsideXML) {
		return fmt.Errorf("text has characters that XML cannot carry: %w", ErrRefused)
	}
	return nil
}

// isPlain reports whether a text is visible ASCII and spaces only, as base64 is: it spares most texts the
// look at each character.
func isPlain(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// outsideXML reports whether XML 1.0 has no way to write the character
// (https://www.w3.org/TR/xml/#charsets).
func outsideXML(r rune) bool {
	switch r {
	case '\t', '\n', '\r':
		return false
	case 0xFFFE, 0xFFFF:
		return true
	}
	return r < ' '
}

// ValidName reports whether the service accepts the name: 3 to 63 lower-case letters, digits and single
// dashes, which neither begin nor end it.
func ValidName(name string) bool {
	if len(name) < 3 || len(name) > 63 || name[0] == '-' || name[len(name)-1] == '-' || strings.Contains(name, "--") {
		return false
	}
	for i := range len(name) {
		if c := name[i]; c != '-' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// PoisonName names the queue that takes what could not be handled from the given one, as the Functions
// host does: `<queue>-poison`. It reports false where the host uses none: the queue is a poison queue
// itself, or the name would be invalid.
func PoisonName(name string) (string, bool) {
	if len(name) >= len(poisonSuffix) && name[len(name)-len(poisonSuffix):] == poisonSuffix {
		return "", false
	}
	poison := name + poisonSuffix
	return poison, ValidName(poison)
}
