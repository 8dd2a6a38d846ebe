package outbound

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/secret"
	"asynccaller/handler/internal/targets"
)

// Tokens has the tokens of credentials. Both methods may wait some seconds. Their errors are a [NoTokenError], unless
// ctx has ended.
type Tokens interface {
	Token(ctx context.Context, c targets.Credential) (secret.Text, error)
	// Replace returns another token in place of one that a target has refused; an empty one if there is no other.
	Replace(ctx context.Context, c targets.Credential, refused secret.Text) (secret.Text, error)
}

// NoTokenError says why there is no token, in a few words that may be shown.
type NoTokenError struct {
	Cause string
	// Failures are the requests that have failed since one succeeded. If none has, a token may only be requested later,
	// or other calls wait for it.
	Failures int
}

func (e *NoTokenError) Error() string { return e.Cause }

// WithTokens gives the client the tokens of the credentials in the profiles. It returns the client.
func (c *Client) WithTokens(tokens Tokens) *Client {
	c.tokens = tokens
	return c
}

// held is the token of a request; its zero value is none.
type held struct {
	credential targets.Credential
	token      secret.Text
	// early is why the token, which the target has refused, can only be replaced later; empty if it can be, or cannot.
	early string
}

// hold returns the token of a call; none if it needs none.
func (c *Client) hold(ctx context.Context, call *envelope.Call) (h held, err error) {
	profile := c.profiles.For(call.Target)
	needed := profile.CredentialOf(call)
	switch {
	case needed == nil || c.tokens == nil:
		return held{}, nil
	case profile.IsPlain(call):
		return held{}, &refusedError{targets.PlainRefusal}
	}
	token, err := c.tokens.Token(ctx, *needed)
	return held{credential: *needed, token: token}, err
}

// set makes the token the only Authorization of headers.
func (h held) set(header http.Header) {
	maps.DeleteFunc(header, func(name string, _ []string) bool { return strings.EqualFold(name, "Authorization") })
	header["Authorization"] = []string{"Bearer " + string(h.token)}
}

// hide removes the token from an answer that repeats it: the sender, or an operator, would see it.
func (h held) hide(o *decision.Outcome) {
	const hidden = "***"
	token := []byte(h.token)
	if len(token) == 0 {
		return
	}
	if bytes.Contains(o.Body, token) {
		o.Body = bytes.ReplaceAll(o.Body, token, []byte(hidden))
	}
	for _, values := range o.Header {
		for i, value := range values {
			values[i] = strings.ReplaceAll(value, string(token), hidden)
		}
	}
}

// exchange sends a request. If the target refuses the token of an OAuth 2 credential, it sends the request again with
// another token, and returns that request. Managed identities are left out: the platform keeps their tokens for a day.
func (c *Client) exchange(request *http.Request, h *held) (*http.Request, *http.Response, error) {
	response, err := c.transport.RoundTrip(request)
	isRefused := err == nil && response.StatusCode == http.StatusUnauthorized &&
		h.token != "" && h.credential.Kind == targets.OAuth2
	if !isRefused {
		return request, response, err
	}
	token, err := c.tokens.Replace(request.Context(), h.credential, h.token)
	noToken, isNoToken := errors.AsType[*NoTokenError](err)
	isEarly := isNoToken && noToken.Failures == 0
	if isEarly {
		h.early = noToken.Cause
	}
	if isEarly || err == nil && token == "" {
		return request, response, nil
	}
	skip(response)
	if err != nil {
		return request, nil, err
	}
	h.token = token
	again := request.WithContext(request.Context())
	again.Header = maps.Clone(request.Header)
	h.set(again.Header)
	if request.GetBody != nil {
		again.Body, _ = request.GetBody() // a bytes.Reader, which has no errors
	}
	response, err = c.transport.RoundTrip(again)
	return again, response, err
}

// excuse makes the outcome of a call temporary, once, if its token was refused too early to replace it: not if the
// attempt before has ended in the same way.
func (h held) excuse(o *decision.Outcome, e *envelope.Envelope) {
	if h.early != "" && o.Failure == "" && !decision.WasUnauthorized(e) {
		o.Failure, o.Detail = decision.FailureAuth, h.early
	}
}

// maxTokenBytes is the part of a token server's answer that is read.
const maxTokenBytes = 64 << 10

// TokenClient returns a client for token servers. The rules and the proxy of calls apply. It follows no redirect, and
// an answer of more than 64 KiB is an error.
func (c *Client) TokenClient() *http.Client {
	return &http.Client{
		Transport:     tokenTransport{c.transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Describe says in a few words why a request of [Client.TokenClient] got no answer, and whether the rules refuse it.
func Describe(err error) (text string, isRefused bool) {
	_, text = classify(nil, err)
	return text, is[*refusedError](err)
}

type tokenTransport struct{ transport *guardedTransport }

// RoundTrip sends a request. It names an answer JSON that begins as an object, because some servers call it text/plain,
// and leaves out white space and a byte order mark before it.
func (t tokenTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("User-Agent", userAgent)
	response, err := t.transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	body := bufio.NewReader(&limitedBody{response.Body, maxTokenBytes})
	first, err := body.ReadByte()
	for err == nil && strings.IndexByte(" \t\r\n\xef\xbb\xbf", first) >= 0 {
		first, err = body.ReadByte()
	}
	if err == nil {
		_ = body.UnreadByte() // one has been read
	}
	if first == '{' {
		response.Header.Set("Content-Type", "application/json")
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{body, response.Body}
	return response, nil
}

// limitedBody is a body that breaks off with an error when it is too long.
type limitedBody struct {
	io.ReadCloser
	left int
}

// Read implements [io.Reader].
func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left+1)])
	b.left -= n
	if b.left < 0 {
		return 0, errors.New("the answer is too long")
	}
	return n, err
}
