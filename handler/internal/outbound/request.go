package outbound

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"asynccaller/handler/internal/envelope"
)

const userAgent = "async-caller"

// newRequest returns the request for the next attempt at an envelope's call.
func newRequest(ctx context.Context, e *envelope.Envelope) (*http.Request, error) {
	var body io.Reader
	if e.Call.Body != nil {
		body = bytes.NewReader(e.Call.Body)
	}
	request, err := http.NewRequestWithContext(ctx, e.Call.Method, e.Call.URL, body)
	if err != nil {
		return nil, err
	}
	request.Header = header(e)
	if e.Call.Host != "" {
		request.Host = e.Call.Host
	}
	return request, nil
}

// hopByHop are the headers that concern only one connection (RFC 9110, 7.6.1), and Content-Length, which follows
// from the body.
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length",
}

// repeatable are the headers that make net/http repeat a request by itself, up to once for each kept-alive
// connection, when a connection breaks after the request was sent. One attempt must be one call. On the wire the
// letter case of a header means nothing (RFC 9110, 5.1), and net/http does not recognize them in lower case.
var repeatable = []string{"Idempotency-Key", "X-Idempotency-Key"}

// header returns the headers of the request: those of the envelope without the hop-by-hop ones, and our own. It
// shares the values with the envelope.
func header(e *envelope.Envelope) http.Header {
	sent := make(http.Header, len(e.Call.Header))
	maps.Copy(sent, e.Call.Header)
	for _, listed := range e.Call.Header["Connection"] {
		for name := range strings.SplitSeq(listed, ",") {
			sent.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hopByHop {
		sent.Del(name)
	}
	setDefault(sent, "User-Agent", userAgent)
	setDefault(sent, "Idempotency-Key", e.RequestID)
	sent.Set("X-Async-Caller-Attempt", strconv.Itoa(e.Attempts+1))
	for _, name := range repeatable {
		if values, ok := sent[name]; ok {
			delete(sent, name)
			sent[strings.ToLower(name)] = values
		}
	}
	return sent
}

func setDefault(header http.Header, name, value string) {
	if _, ok := header[name]; !ok {
		header.Set(name, value)
	}
}
