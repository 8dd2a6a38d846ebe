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

// maxErrorText limits the text of an error of the SDK, in bytes. The default credential reports each method that it
// tried.
const maxErrorText = 500

// describe turns an error of the SDK into one of [queue.Store]: one line with the operation and the cause. The SDK's
// texts have many lines and show URLs, headers and bodies; the query of a URL holds the SAS.
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
	text := err.Error()
	if transport, ok := errors.AsType[*url.Error](err); ok { // no response: show the host and the cause, not the URL
		host := "storage"
		if u, parseErr := url.Parse(transport.URL); parseErr == nil && u.Host != "" {
			host = u.Host
		}
		text, err = transport.Op+" "+host+": "+transport.Err.Error(), transport.Err
	}
	return &terseError{text: oneLine(text), cause: err}
}

// wellFormedCode matches storage error codes. A proxy may have put anything into the header.
var wellFormedCode = regexp.MustCompile(`^[A-Za-z]{1,64}$`)

// answer describes a response that is not a success, by its status and code only.
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

// kindOf returns the error of package queue that a response means, nil for a temporary failure.
func kindOf(response *azcore.ResponseError) error {
	switch code, status := queueerror.Code(response.ErrorCode), response.StatusCode; {
	case code == queueerror.QueueNotFound, code == queueerror.QueueBeingDeleted:
		return queue.ErrNoQueue
	case code == queueerror.MessageNotFound, code == queueerror.PopReceiptMismatch:
		return queue.ErrStale
	case status < 400, status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooManyRequests:
		return nil
	}
	return queue.ErrRefused
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
