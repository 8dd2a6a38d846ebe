package outbound

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"asynccaller/handler/internal/plain/secret"
	"asynccaller/handler/internal/rules/dotnet"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/targets"
)

const (
	maxRedirects = 10
	// maxSkippedBytes is the part of a redirect's body that is read and dropped, so that the connection can be reused.
	maxSkippedBytes = 2 << 10
)

// send sends the request of a call, follows redirects, at most ten, and returns the answer, and what the requests had
// that is secret. Of the chain it keeps only the latest request and answer. [http.Client] would keep them all:
// with thousands of headers these are several MiB, for as long as the last target hangs.
func (c *Client) send(
	ctx context.Context, e *envelope.Envelope, profile targets.Profile,
) (response *http.Response, h held, err error) {
	h, err = c.hold(ctx, &e.Call, nil)
	if err != nil {
		return nil, held{}, err
	}
	h.identity = c.profiles.IdentityFor(e.Call.Target, &e.Call)
	request, added, err := newRequest(ctx, e, profile, h)
	if err != nil {
		return nil, held{}, err
	}
	for redirects := 0; ; redirects++ {
		sent, response, err := c.exchange(request, &h)
		if redirects > 0 {
			err = behindRedirect(err)
		}
		if err != nil || redirects == maxRedirects {
			return response, h, err
		}
		next := c.follow(sent, response, added)
		if next == nil {
			return response, h, nil
		}
		skip(response)
		h, err = c.holdBehind(sent, next, h)
		if err != nil {
			return nil, held{}, err
		}
		c.signBehind(next, e, added)
		request = next
	}
}

// holdBehind gives the request behind a redirect the credential of its own target, unless it is for the same host and
// port as the request before, whose token it has. Without a credential the request has none.
func (c *Client) holdBehind(before, next *http.Request, h held) (held, error) {
	if targets.Address(before.URL) != targets.Address(next.URL) {
		h.identity = c.profiles.IdentityFor(next.URL, nil)
	}
	if c.staysInProfile(before.URL, next.URL) {
		return h, nil
	}
	identity := h.identity
	call := envelope.Call{Target: next.URL, Method: next.Method, Host: next.Host, Header: http.Header{}}
	for name, values := range next.Header {
		call.Header[http.CanonicalHeaderKey(name)] = values
	}
	h, err := c.hold(next.Context(), &call, h.sent)
	h.identity = identity
	h.set(next.Header)
	return h, behindRedirect(err)
}

// behindRedirect returns the error of a request behind a redirect.
func behindRedirect(err error) error {
	if refused, ok := errors.AsType[*refusedError](err); ok {
		return &refusedError{"behind a redirect: " + refused.detail}
	}
	return err
}

// skip drops an answer, and keeps the connection if the rest of the body is short.
func skip(response *http.Response) {
	_, _ = io.CopyN(io.Discard, response.Body, maxSkippedBytes)
	_ = response.Body.Close()
}

// follow returns the request that follows a redirect, or nil if the response is the answer. A redirect keeps method and
// body, except 303, which asks for the result with GET, or HEAD after HEAD (RFC 9110, 15.4.4). Browsers and .NET turn a
// POST behind 300, 301 and 302 into a GET without its body, and keep every other method. follow returns nil for that
// POST, and for any redirect from https to http. Added are the names of the headers that the profile of the call's
// target has added.
func (c *Client) follow(request *http.Request, response *http.Response, added []string) *http.Request {
	status := response.StatusCode
	losesBody := request.Method == http.MethodPost && !keepsMethod(status) && status != http.StatusSeeOther
	if !isRedirect(response) || losesBody {
		return nil
	}
	target, relative := location(response, request.URL)
	if target == nil || givesUpTLS(request.URL, target) {
		return nil
	}
	moved := c.profiles.Move(target)
	if givesUpTLS(target, moved) {
		return nil
	}
	target = moved
	next := request.WithContext(request.Context())
	next.URL = target
	next.Header = maps.Clone(request.Header) // the transport may still be writing the request
	if !relative {
		next.Host = "" // the envelope's Host header is not for that host
	}
	if status == http.StatusSeeOther {
		dropContent(next)
	} else if request.GetBody != nil {
		next.Body, _ = request.GetBody() // it has no errors
	}
	staysOnHost := targets.SameHost(request.URL, target)
	staysInProfile := c.staysInProfile(request.URL, target)
	maps.DeleteFunc(next.Header, func(name string, _ []string) bool {
		isAdded := slices.Contains(added, http.CanonicalHeaderKey(name))
		return isAdded && !staysInProfile || secret.Is(name) && !staysOnHost
	})
	authorize(next)
	return next
}

// staysInProfile reports whether a redirect leads to the same host and port, and to the same profile.
func (c *Client) staysInProfile(from, to *url.URL) bool {
	return targets.SameHost(from, to) && c.profiles.For(from).Scope == c.profiles.For(to).Scope
}

// dropContent makes a request the GET or HEAD that follows a 303.
func dropContent(request *http.Request) {
	if request.Method != http.MethodHead {
		request.Method = http.MethodGet
	}
	request.Body, request.GetBody, request.ContentLength = nil, nil, 0
	maps.DeleteFunc(request.Header, func(name string, _ []string) bool { return dotnet.IsContentHeader(name) })
}

// location returns the URL to which a redirect leads, or nil if there is none that can be called. It reads the URL
// as that of an envelope. Relative says that the redirect does not name a host.
func location(response *http.Response, base *url.URL) (target *url.URL, relative bool) {
	text := envelope.EscapeURL(response.Header.Get("Location"))
	reference, err := url.Parse(text)
	if err != nil || text == "" {
		return nil, false
	}
	target, err = envelope.ParseURL(base.ResolveReference(reference).String())
	if err != nil {
		return nil, false
	}
	return target, reference.Host == ""
}

// givesUpTLS reports whether a redirect would send in the clear what the sender encrypts.
func givesUpTLS(from, to *url.URL) bool { return from.Scheme == "https" && to.Scheme == "http" }

func keepsMethod(status int) bool {
	return status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect
}

// IsRedirect reports whether a status always asks for a call to another URL.
func IsRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther:
		return true
	}
	return keepsMethod(status)
}

// isRedirect reports whether an answer asks for a call to another URL. A 300 can also be a list of choices (RFC
// 9110, 15.4.1).
func isRedirect(response *http.Response) bool {
	if response.StatusCode == http.StatusMultipleChoices {
		return response.Header.Get("Location") != ""
	}
	return IsRedirect(response.StatusCode)
}
