package azure

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/queueerror"

	"asynccaller/handler/internal/queue"
)

// maxErrorText bounds the text of an error that is not ours, in bytes. The default credential tells of each
// way it tried.
const maxErrorText = 500

// describe turns an error of the SDK into one of [queue.Store]: what we did, and one line of what came of
// it. The SDK's own texts run over many lines and show URLs, headers and bodies; in a URL's query stands
// the SAS.
func describe(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", oneLine(doing), clean(err)) // a bad name may have any character
}

func clean(err error) error {
	if response, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return answer(response)
	}
	if transport, ok := errors.AsType[*url.Error](err); ok {
		return unreachable(transport)
	}
	return &terseError{text: oneLine(err.Error()), cause: err}
}

// wellFormedCode keeps anything but a storage error code out of our texts: the header is whatever stands
// between us and storage has made of it.
var wellFormedCode = regexp.MustCompile(`^[A-Za-z]{1,64}$`)

// answer is for a response that is not a success. Only the status and the code count, never the text.
func answer(response *azcore.ResponseError) error {
	text := response.ErrorCode
	if !wellFormedCode.MatchString(text) {
		text = http.StatusText(response.StatusCode)
	}
	text = strings.TrimSpace(fmt.Sprintf("%d %s", response.StatusCode, text))
	if kind := kindOf(response); kind != nil {
		return fmt.Errorf("%s: %w", text, kind)
	}
	return errors.New(text)
}

// kindOf returns which of package queue's errors a response is, nil if it is a failure that may pass.
func kindOf(response *azcore.ResponseError) error {
	switch response.ErrorCode {
	case string(queueerror.QueueNotFound), string(queueerror.QueueBeingDeleted):
		return queue.ErrNoQueue
	case string(queueerror.MessageNotFound), string(queueerror.PopReceiptMismatch):
		return queue.ErrStale
	}
	switch status := response.StatusCode; {
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests:
		return nil
	case status >= 400 && status < 500:
		return queue.ErrRefused
	default:
		return nil
	}
}

// unreachable is for a request without a response. It keeps the host and the cause; the URL stays out.
func unreachable(err *url.Error) error {
	host := "storage"
	if u, parseErr := url.Parse(err.URL); parseErr == nil && u.Host != "" {
		host = u.Host
	}
	return &terseError{text: err.Op + " " + host + ": " + oneLine(err.Err.Error()), cause: err.Err}
}

// terseError says less than its cause.
type terseError struct {
	text  string
	cause error
}

func (e *terseError) Error() string { return e.text }
func (e *terseError) Unwrap() error { return e.cause }

// oneLine folds a text into one line, without rules drawn in dashes, and cuts it.
func oneLine(text string) string {
	var words []string
	for word := range strings.FieldsSeq(text) {
		if strings.Trim(word, "-") != "" {
			words = append(words, word)
		}
	}
	text = strings.Join(words, " ")
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "") + "…"
	}
	return text
}
