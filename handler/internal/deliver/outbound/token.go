package outbound

import (
	"bufio"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"asynccaller/handler/internal/plain/secret"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/targets"
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

// held is what the requests of a call have of targets.json that is secret; its zero value is nothing.
type held struct {
	credential targets.Credential
	token      secret.Text
	// sent has the secrets of all requests so far: any answer may repeat them.
	sent []secret.Text
	// identity is that of the connection.
	identity targets.Identity
	// early is why the token, which the target has refused, can only be replaced later; empty if it can be, or cannot.
	early string
}

// hold returns the token of a call, if it needs one, and adds what is secret in its headers to those sent before.
func (c *Client) hold(ctx context.Context, call *envelope.Call, sent []secret.Text) (h held, err error) {
	profile := c.profiles.For(call.Target)
	if targets.AddsTo(call.Method, call.Target, call.Host) {
		sent = slices.Concat(sent, profile.Secrets)
	}
	needed := profile.CredentialOf(call)
	switch {
	case needed == nil || c.tokens == nil:
		return held{sent: sent}, nil
	case profile.IsPlain(call):
		return held{}, &refusedError{targets.PlainRefusal}
	}
	token, err := c.tokens.Token(ctx, *needed)
	return held{credential: *needed, token: token, sent: append(sent, token)}, err
}

// set puts the token into headers. Answers with secrets are not coded, as far as the target knows to obey.
func (h held) set(header http.Header) {
	if h.token != "" {
		replace(header, "Authorization", "Bearer "+string(h.token))
	}
	if len(h.sent) > 0 {
		replace(header, "Accept-Encoding", "identity")
	}
}

// replace makes a value the only one of a header, in any spelling of its name.
func replace(header http.Header, name, value string) {
	maps.DeleteFunc(header, func(other string, _ []string) bool { return strings.EqualFold(other, name) })
	header[name] = []string{value}
}

// exchange sends a request. If the target refuses the token of an OAuth 2 credential, it sends the request again with
// another token, and returns that request. Managed identities are left out: the platform keeps their tokens for a day.
func (c *Client) exchange(request *http.Request, h *held) (*http.Request, *http.Response, error) {
	response, err := c.transport.send(request.Context(), request, h.identity)
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
	h.token, h.sent = token, append(h.sent, token)
	again := request.WithContext(request.Context())
	again.Header = maps.Clone(request.Header)
	h.set(again.Header)
	if request.GetBody != nil {
		again.Body, _ = request.GetBody() // it has no errors
	}
	response, err = c.transport.send(request.Context(), again, h.identity)
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
