// Package azure implements [storage.Queues] with Azure Queue Storage, or with Azurite, which has the same protocol.
package azure

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/queueerror"

	"asynccaller/handler/internal/storage"
)

// Queues is a Queue Storage account. It makes each request once: the caller retries, and limits the time of a request
// by its context. An error is one line without secrets and without messages' texts.
type Queues struct {
	service *azqueue.ServiceClient
	httpClient
	// holder is who holds the latest token.
	holder *holder
}

var _ storage.Queues = (*Queues)(nil)

// Open returns the account of a connection. It sends no request: the first operation detects a wrong key. The caller
// closes the store.
func Open(conn Connection) (*Queues, error) {
	return open(conn, newCredential, newHTTPClient(NewTransport(conn.Endpoint)))
}

// open is Open with the parts that tests replace.
func open(conn Connection, credential credentialFor, client *http.Client) (*Queues, error) {
	h := &holder{}
	service, err := newServiceClient(conn, h.of(credential), origin{client, queueService})
	if err != nil {
		return nil, describe("open queue storage", err)
	}
	return &Queues{service, httpClient{client}, h}, nil
}

// Holder returns the name or the object id of the Azure identity whose token the latest requests had, as the token
// says it; empty if there was none yet, or with a key or a SAS.
func (s *Queues) Holder() string { return s.holder.String() }

var _ policy.Transporter = (*http.Client)(nil)

// do runs an operation on a queue if the checks found no error.
func (s *Queues) do(doing, name string, run func(*azqueue.QueueClient) error, checks ...error) error {
	err := cmp.Or(append(checks, checkName(name))...)
	if err == nil {
		err = s.checked(run(s.service.NewQueueClient(name)))
	}
	return describe(doing+" queue "+name, err)
}

// Create implements [storage.Queues].
func (s *Queues) Create(ctx context.Context, name string) error {
	return s.do("create", name, func(q *azqueue.QueueClient) error {
		_, err := q.Create(ctx, nil)
		if queueerror.HasCode(err, queueerror.QueueAlreadyExists) { // with metadata, which we do not set
			return nil
		}
		return err
	})
}

// Put implements [storage.Queues].
func (s *Queues) Put(ctx context.Context, name string, item storage.Item) (put storage.Message, err error) {
	delay, ttl := delaySeconds(item.Delay), int32(noExpiry)
	if item.TTL != 0 {
		ttl = wholeSeconds(item.TTL)
	}
	// The service refuses a delay that does not end before the time-to-live.
	options := &azqueue.EnqueueMessageOptions{TimeToLive: &ttl, VisibilityTimeout: &delay}
	err = s.do("put on", name, func(q *azqueue.QueueClient) error {
		resp, err := q.EnqueueMessage(ctx, item.Text, options)
		for _, m := range resp.Messages { // one
			put = message(m.MessageID, m.PopReceipt, nil, nil, m.InsertionTime, m.ExpirationTime, m.TimeNextVisible)
		}
		return err
	}, storage.CheckText(item.Text))
	return put, err
}

// Update implements [storage.Queues].
func (s *Queues) Update(
	ctx context.Context, name, id, popReceipt, text string, delay time.Duration,
) (receipt string, err error) {
	err = s.do("update message on", name, func(q *azqueue.QueueClient) error {
		options := &azqueue.UpdateMessageOptions{VisibilityTimeout: new(delaySeconds(delay))}
		resp, err := q.UpdateMessage(ctx, id, popReceipt, text, options)
		receipt = value(resp.PopReceipt)
		return err
	}, checkReceipt(id, popReceipt), storage.CheckText(text))
	return receipt, err
}

// Delete implements [storage.Queues].
func (s *Queues) Delete(ctx context.Context, name, id, popReceipt string) error {
	return s.do("delete message from", name, func(q *azqueue.QueueClient) error {
		_, err := q.DeleteMessage(ctx, id, popReceipt, nil)
		return err
	}, checkReceipt(id, popReceipt))
}

// Receive implements [storage.Queues].
func (s *Queues) Receive(
	ctx context.Context, name string, limit int, lease time.Duration,
) (messages []storage.Message, err error) {
	options := &azqueue.DequeueMessagesOptions{
		NumberOfMessages:  new(saturate(float64(limit))),
		VisibilityTimeout: new(wholeSeconds(lease)),
	}
	err = s.do("receive from", name, func(q *azqueue.QueueClient) error {
		resp, err := q.DequeueMessages(ctx, options)
		for _, m := range resp.Messages {
			messages = append(messages, message(m.MessageID, m.PopReceipt, m.MessageText, m.DequeueCount,
				m.InsertionTime, m.ExpirationTime, m.TimeNextVisible))
		}
		return err
	})
	return messages, err
}

// Peek implements [storage.Queues].
func (s *Queues) Peek(ctx context.Context, name string, limit int) (messages []storage.Message, err error) {
	err = s.do("peek at", name, func(q *azqueue.QueueClient) error {
		resp, err := q.PeekMessages(ctx, &azqueue.PeekMessagesOptions{NumberOfMessages: new(saturate(float64(limit)))})
		for _, m := range resp.Messages {
			messages = append(messages, message(m.MessageID, nil, m.MessageText, m.DequeueCount,
				m.InsertionTime, m.ExpirationTime, nil))
		}
		return err
	})
	return messages, err
}

// Count implements [storage.Queues].
func (s *Queues) Count(ctx context.Context, name string) (count int, err error) {
	err = s.do("count", name, func(q *azqueue.QueueClient) error {
		resp, err := q.GetProperties(ctx, nil)
		count = int(value(resp.ApproximateMessagesCount))
		return err
	})
	return count, err
}

// Names implements [storage.Queues].
func (s *Queues) Names(ctx context.Context, prefix string) ([]string, error) {
	var names []string
	pages := s.service.NewListQueuesPager(&azqueue.ListQueuesOptions{Prefix: &prefix})
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if s.checked(err) != nil {
			return nil, describe("list queues", err)
		}
		for _, q := range page.Queues {
			names = append(names, value(q.Name))
		}
	}
	slices.Sort(names)
	return names, nil
}

// hostContainer is where the Functions host keeps its locks and the state of timers.
const hostContainer = "azure-webjobs-hosts"

// ErrNoBlobs means that the settings do not tell where the blobs of the account are.
var ErrNoBlobs = errors.New("the connection has no blob service, " +
	"where the host keeps its locks and the state of timers")

// ProbeBlobs reports whether the Functions host may use the blobs of a connection's account. It deletes a blob that
// does not exist. The request is one for a message, which has the same form and the same signature: DELETE
// /container/messages/id. So it needs no client for blobs, which would bring ten more modules.
func ProbeBlobs(ctx context.Context, conn Connection) error {
	if conn.BlobEndpoint == "" {
		return ErrNoBlobs
	}
	conn.Endpoint = conn.BlobEndpoint
	client := newHTTPClient(NewTransport(conn.Endpoint))
	defer client.CloseIdleConnections()
	service, err := newServiceClient(conn, newCredential, origin{client, blobService})
	if err != nil {
		return describe("open blob storage", err)
	}
	_, err = service.NewQueueClient(hostContainer).
		DeleteMessage(ctx, "00000000-0000-0000-0000-000000000000", "none", nil)
	if response, ok := errors.AsType[*azcore.ResponseError](err); ok && response.StatusCode == http.StatusNotFound {
		return nil
	}
	return describe("delete from blob container "+hostContainer, err)
}

// noExpiry is the time-to-live of a message that never expires.
const noExpiry = -1

func delaySeconds(delay time.Duration) int32 { return wholeSeconds(min(delay, storage.MaxDelay)) }

// wholeSeconds rounds up to seconds, which the service counts in.
func wholeSeconds(d time.Duration) int32 { return saturate(math.Ceil(d.Seconds())) }

// saturate converts a number. The service refuses one that is far too large, which must not wrap around.
func saturate(n float64) int32 { return int32(min(max(n, 0), math.MaxInt32)) }

// message returns a message of the service's answer; nil is a member that the operation does not return.
func message(id, receipt, text *string, count *int64, inserted, expires, nextVisible *time.Time) storage.Message {
	return storage.Message{
		ID:            value(id),
		PopReceipt:    value(receipt),
		Text:          value(text),
		DequeueCount:  value(count),
		InsertedAt:    value(inserted).UTC(),
		ExpiresAt:     value(expires).UTC(),
		NextVisibleAt: value(nextVisible).UTC(),
	}
}

func value[T any](p *T) T {
	if p == nil {
		return *new(T)
	}
	return *p
}

// These checks catch requests that the service would understand differently, and requests that cannot succeed.

// checkName refuses a bad name, which could change the path of the URL.
func checkName(name string) error {
	if !storage.ValidName(name) {
		return fmt.Errorf("not the name of a queue: %w", storage.ErrRefused)
	}
	return nil
}

// checkReceipt refuses an invalid id and an empty receipt. Deleting the message with an empty id would delete all
// messages of the queue, because the URL is that of Clear Messages.
func checkReceipt(id, popReceipt string) error {
	if !storage.ValidID(id) || popReceipt == "" {
		return fmt.Errorf("not the id and receipt of a message: %w", storage.ErrStale)
	}
	return nil
}

// maxErrorText limits the text of an error of the SDK, in bytes. The default credential reports each method that it
// tried.
const maxErrorText = 500

// describe turns an error of the SDK into one of [storage.Queues]: one line with the operation and the cause. The SDK's
// texts have many lines and show URLs, headers and bodies; the query of a URL holds the SAS.
func describe(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", oneLine(doing), clean(err)) // a bad name may have any character
}

func clean(err error) error {
	if token, ok := errors.AsType[*advisedError](err); ok {
		return &advisedError{fmt.Errorf("get a token: %w", clean(token.error)), token.advice}
	}
	if response, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return answer(response)
	}
	text := err.Error()
	if transport, ok := errors.AsType[*url.Error](err); ok { // no response: show the host and the cause, not the URL
		host := "storage"
		if u, parseErr := url.Parse(transport.URL); parseErr == nil && u.Host != "" {
			host = u.Host
		}
		text, err = transport.Op+" "+host+": "+transport.Err.Error(), transport.Err
	}
	if isNotSent(err) {
		err = fmt.Errorf("%w: %w", storage.ErrNotSent, err)
	}
	return &terseError{text: oneLine(text), cause: err}
}

// isNotSent reports whether a request failed before it had a connection.
func isNotSent(err error) bool {
	network, _ := errors.AsType[*net.OpError](err)
	return network != nil && (network.Op == "dial" || network.Op == proxyConnect) || isUntrusted(err)
}

// wellFormedCode matches storage error codes. A proxy may have put anything into the header.
var wellFormedCode = regexp.MustCompile(`^[A-Za-z]{1,64}$`)

// answer describes a response that is not a success, by its status and code, and wraps the error of package storage
// that it means. A refusal also has the service's own message.
func answer(response *azcore.ResponseError) error {
	text, explained := statusText(response.StatusCode, response.ErrorCode), ""
	if wellFormedCode.MatchString(response.ErrorCode) {
		explained = explanation(response.RawResponse)
	}
	kind := storage.ErrRefused
	code, status := queueerror.Code(response.ErrorCode), response.StatusCode
	isBusy := status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests
	switch {
	case code == queueerror.QueueNotFound, code == queueerror.QueueBeingDeleted:
		kind = storage.ErrNoQueue
	case code == queueerror.MessageNotFound, code == queueerror.PopReceiptMismatch:
		kind = storage.ErrStale
	case isBusy && wellFormedCode.MatchString(response.ErrorCode): // otherwise of a proxy, which may have forwarded it
		return &terseError{text: text, cause: storage.ErrBusy}
	case response.ErrorCode == string(aztables.TableBeingDeleted):
		return errors.New(text + ": storage is deleting the table; try again in a minute")
	case status < 400, status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooManyRequests:
		return errors.New(text) // a temporary failure
	default:
		if status == http.StatusUnauthorized || status == http.StatusForbidden ||
			code == queueerror.InvalidAuthenticationInfo {
			kind = storage.ErrDenied
		}
		if explained != "" {
			text += ": " + explained
		}
	}
	err := fmt.Errorf("%s: %w", text, kind)
	if errors.Is(kind, storage.ErrDenied) {
		return &advisedError{err, denialAdvice(response)}
	}
	return err
}

// statusText returns a status with the service's code or, if that is not well-formed, with the status's own text.
func statusText(status int, code string) string {
	if !wellFormedCode.MatchString(code) {
		code = http.StatusText(status)
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", status, code))
}

// maxWord is the length of the longest word of a service's message that is shown. Signatures, keys, tokens and encoded
// messages are longer, should the service quote them.
const maxWord = 40

// skipVersionCheck is the flag with which Azurite accepts newer versions of the API. Its own message names the flag.
const skipVersionCheck = "--skipApiVersionCheck"

// explanation returns the first line of the service's message about an error, without the full stop, and the detail of
// a credential that was refused. The other lines are the id and the time of the request.
func explanation(response *http.Response) string {
	body, _ := runtime.Payload(response) // the SDK has read it
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	var document struct{ Message, HeaderName, AuthenticationErrorDetail string }
	var ofTable struct {
		Error struct{ Message struct{ Value string } } `json:"odata.error"`
	}
	if json.Unmarshal(body, &ofTable) == nil {
		document.Message = ofTable.Error.Message.Value
	} else if xml.Unmarshal(body, &document) != nil {
		return ""
	}
	text := firstLine(document.Message)
	if detail := firstLine(document.AuthenticationErrorDetail); detail != "" {
		text = strings.TrimPrefix(text+"; "+detail, "; ")
	}
	tooNew := document.HeaderName == versionHeader || strings.Contains(text, "API version")
	if tooNew && !strings.Contains(text, skipVersionCheck) {
		text = strings.TrimPrefix(text+"; update Azurite, or start it with "+skipVersionCheck, "; ")
	}
	return text
}

// firstLine returns the first line of a service's text without the full stop, with words that may be secrets masked.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	words := strings.Fields(strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || unicode.IsPrint(r) {
			return r
		}
		return -1
	}, line))
	for i, word := range words {
		if len(word) > maxWord {
			words[i] = "***"
		}
	}
	return oneLine(strings.TrimSuffix(strings.Join(words, " "), "."))
}

// terseError replaces the text of its cause.
type terseError struct {
	text  string
	cause error
}

func (e *terseError) Error() string { return e.text }
func (e *terseError) Unwrap() error { return e.cause }

// lineBreaks matches white space, with rules drawn in dashes.
var lineBreaks = regexp.MustCompile(`\s+(-+\s+)*`)

// oneLine returns a text as one line of at most maxErrorText bytes.
func oneLine(text string) string {
	text = strings.TrimSpace(lineBreaks.ReplaceAllString(text, " "))
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "") + "…"
	}
	return text
}
