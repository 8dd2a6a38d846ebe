// Package send puts envelopes on their queues. It opens each envelope as the handler does on arrival, so that
// only envelopes that can be delivered are sent.
package send

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/route"
	"asynccaller/handler/internal/storage"
)

// putTimeout is longer than a healthy storage account takes, and short enough for a person to wait.
const putTimeout = 30 * time.Second

// Sender puts envelopes on the queues of a storage account. It is safe for concurrent use.
type Sender struct {
	// Store may be nil if nothing is sent. Account is its name, for receipts.
	Store    storage.Queues
	Account  string
	Encoding storage.Encoding
	Rules    decision.Rules
	// Force allows envelopes whose callback or deadline is probably misspelt.
	Force bool
}

// Message is a complete envelope, ready to be sent.
type Message struct {
	// RequestID is empty if it will be the message's id.
	RequestID string
	Queue     string
	Content   []byte
	// Delay is how long the message stays invisible.
	Delay time.Duration
	// Warnings say what the sender probably did not intend: members without effect, and headers that a C# function app
	// may be unable to read.
	Warnings []string
	// Compressed says that the body had no room in a message, and is gzip in Content.
	Compressed bool
}

// Receipt identifies a message that was sent, or perhaps sent.
type Receipt struct {
	RequestID string `json:"requestId"`
	Queue     string `json:"queue"`
	MessageID string `json:"messageId"`
	Account   string `json:"account"`
	// PerhapsSent says that storage may have written the message, although its answer was lost. Then the message's id
	// is unknown, and the request id too if the message has none of its own.
	PerhapsSent bool `json:"perhapsSent,omitempty"`
}

// Prepare validates an envelope and adds a request id and the time of creation if they are missing. If it returns an
// error, the message has only the warnings.
func (s *Sender) Prepare(content []byte) (message Message, err error) {
	var vital []string
	for _, unknown := range envelope.UnknownMembers(content) {
		if unknown.Vital && !s.Force {
			vital = append(vital, unknown.String())
			continue
		}
		message.Warnings = append(message.Warnings, unknown.String())
	}
	if vital != nil {
		return message, fmt.Errorf("%s Correct the name, or give --force", strings.Join(vital, " "))
	}
	now := time.Now()
	rules := s.Rules
	rules.MaxDeadline = 0 // the handler applies its own
	in := rules.Open(content, uuid.NewString(), s.Encoding.MaxContentBytes(), now)
	if compressed, ok := envelope.Compress(content, in.Malformed); ok {
		in = rules.Open(compressed, uuid.NewString(), s.Encoding.MaxContentBytes(), now)
		if in.Malformed != nil {
			return message, fmt.Errorf("with its body as gzip, %w", in.Malformed)
		}
		message.Compressed = true
	}
	if in.Malformed != nil {
		return message, in.Malformed
	}
	e := in.Envelope
	if !e.Deadline.IsZero() && !e.Deadline.After(now) {
		return message, errors.New("deadline: is in the past: the call would never be made")
	}
	e.Expires = e.GiveUpAt(s.Rules.Expiration) // a Nexus message needs a deadline
	written, err := e.Successor(s.Encoding.MaxContentBytes())
	if err != nil {
		return message, err
	}
	message.Content = written.Bytes
	message.Warnings = append(message.Warnings, envelope.NexusWarnings(message.Content)...)
	message.RequestID = e.RequestID
	message.Queue = envelope.QueueFor(e.Priority)
	message.Delay = min(max(e.DueAt().Sub(now), 0), storage.MaxDelay)
	return message, nil
}

// PrepareContent returns the message that makes the call of a route with a content.
func (s *Sender) PrepareContent(to route.Route, content []byte) (message Message, err error) {
	limit := s.Encoding.MaxContentBytes()
	if len(content) > limit {
		return message, fmt.Errorf("the body has %d bytes: a message on %s has at most %d",
			len(content), to.Queue, limit)
	}
	if err := storage.CheckText(s.Encoding.Encode(content)); err != nil {
		return message, err
	}
	now := time.Now()
	arrival := route.Arrival{Content: content, MessageID: uuid.NewString(), InsertedAt: now}
	in := s.Rules.OpenRouted(to, arrival, 1, limit, now)
	if in.Malformed != nil {
		return message, in.Malformed
	}
	message = Message{Queue: to.Queue, Content: content}
	if in.RequestID != arrival.MessageID { // that of an event
		message.RequestID = in.RequestID
	}
	if in.NoRoom {
		message.Warnings = []string{"the envelope of the call has no room in a message: " +
			"if the call fails, it is retried only as often as the host delivers the message"}
	}
	return message, nil
}

// Send puts a message on its queue. It creates the queue if it does not exist. It repeats the write only while storage
// is busy: after a lost answer, a second write could be a second message.
func (s *Sender) Send(ctx context.Context, m Message) (Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	item := storage.Item{Text: s.Encoding.Encode(m.Content), Delay: m.Delay}
	var put storage.Message
	var failed error
	_ = storage.Persist(ctx, putTimeout, func(ctx context.Context) error { // failed is the error
		put, failed = storage.PutCreating(ctx, s.Store, m.Queue, item)
		if errors.Is(failed, storage.ErrBusy) {
			return failed
		}
		return nil
	})
	return Receipt{
		RequestID:   cmp.Or(m.RequestID, put.ID),
		Queue:       m.Queue,
		MessageID:   put.ID,
		Account:     s.Account,
		PerhapsSent: failed != nil && !storage.ExcludesWrite(failed),
	}, failed
}

// Draft describes a native envelope. Its members are those of docs/envelope.md; zero values are left out.
// [Sender.Prepare] validates them.
type Draft struct {
	// Version is set by Encode.
	Version   int    `json:"asyncCaller"`
	RequestID string `json:"requestId,omitempty"`
	Call      Call   `json:"call"`
	// Callback is the call that reports the outcome.
	Callback struct {
		URL string `json:"url"`
	} `json:"callback,omitzero"`
	Priority int             `json:"priority,omitempty"`
	Deadline time.Time       `json:"deadline,omitzero"`
	Retry    json.RawMessage `json:"retry,omitempty"`
	GiveUp   string          `json:"giveUp,omitempty"`
	Run      string          `json:"run,omitempty"`
}

// Call is the request to the target. At most one of the bodies is set.
type Call struct {
	URL        string          `json:"url"`
	Method     string          `json:"method,omitempty"`
	Headers    http.Header     `json:"headers,omitempty"`
	Body       *string         `json:"body,omitempty"`
	BodyBase64 []byte          `json:"bodyBase64,omitempty"`
	JSON       json.RawMessage `json:"json,omitempty"`
}

// SetBody sets the body, as text if it is UTF-8.
func (c *Call) SetBody(content []byte) {
	if !utf8.Valid(content) {
		c.BodyBase64 = content
		return
	}
	text := string(content)
	c.Body = &text
}

// Encode returns the envelope as JSON.
func (d Draft) Encode() ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	d.Version = 1
	err := encoder.Encode(d)
	return b.Bytes(), err
}
