package route

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/rules/envelope"
)

// maxKept bounds the headers of a post that a route names.
const maxKept = 20

// Headers of a post that are never those of its call: what says who the sender is, what the platform adds, and what
// Async Caller or the connection decides. A name that ends in a dash stands for all that begin with it.
var neverKept = slices.Concat(envelope.HopByHop, []string{
	"Authorization", "Content-Length", "Content-Type", "Cookie", "Host", "Idempotency-Key", "Traceparent", "Tracestate",
	"X-Async-Caller-", "X-Forwarded-", "X-Functions-Key", "X-Ms-",
})

func keptHeaders(m strictjson.Member) (names []string, err error) {
	elements, err := strictjson.Elements(m.Value)
	if err != nil || len(elements) > maxKept {
		return nil, fmt.Errorf("want an array of at most %d names of headers", maxKept)
	}
	for i, element := range elements {
		name, err := strictjson.String(element)
		canonical := http.CanonicalHeaderKey(name)
		forbidden := slices.ContainsFunc(neverKept, func(never string) bool {
			return canonical == never || strings.HasSuffix(never, "-") && strings.HasPrefix(canonical, never)
		})
		switch {
		case err != nil:
		case !httpguts.ValidHeaderFieldName(name):
			err = errors.New("not a header name")
		case forbidden:
			err = fmt.Errorf("%s of a post cannot be a header of its call", canonical)
		case slices.Contains(names, canonical):
			err = errors.New("names a header twice")
		}
		if err != nil {
			return nil, strictjson.In(strictjson.Index(i), err)
		}
		names = append(names, canonical)
	}
	return names, nil
}

// checkHTTP returns why the members of a route about posts do not belong together.
func (r Route) checkHTTP() error {
	if r.HTTPOnly && !r.HTTP {
		return errors.New(`queue: without the queue, a route needs "http": true`)
	}
	if len(r.Kept) > 0 && !r.HTTP {
		return errors.New(`keepHeaders: only posts have headers: add "http": true`)
	}
	for _, header := range r.headers {
		if slices.Contains(r.Kept, http.CanonicalHeaderKey(header.Name)) {
			return fmt.Errorf("keepHeaders: headers has %s as well: remove it from one of them", header.Name)
		}
	}
	return nil
}

// Post is a post for a route, as the Functions host passes it (docs/host.md, "HTTP functions").
type Post struct {
	// Header has canonical names.
	Header http.Header
	// Body is base64 or text, as the content type says; nil if the host has passed none.
	Body []byte
}

// Refusal says why a post is not accepted.
type Refusal struct {
	// Status is that of the answer. Detail tells the sender what to change. It has no text of the post.
	Status int
	Detail string
}

func refuse(status int, format string, args ...any) *Refusal {
	return &Refusal{Status: status, Detail: fmt.Sprintf(format, args...)}
}

// Accept returns the arrival of a post whose call has the id, unless its sender gives one, or why it is refused. Its
// content is byte for byte what the sender has posted.
func (r Route) Accept(p Post, id string, now time.Time) (Arrival, *Refusal) {
	a := Arrival{MessageID: id, InsertedAt: now}
	keys, hasKey := p.Header["Idempotency-Key"]
	if hasKey {
		if len(keys) != 1 || !envelope.ValidRequestID(keys[0]) {
			return a, refuse(http.StatusBadRequest, "Idempotency-Key: want one, of 1 to 128 visible ASCII characters")
		}
		a.requestID = keys[0]
	}
	for _, coding := range p.Header["Content-Encoding"] {
		if !strings.EqualFold(coding, "identity") && !slices.Contains(r.Kept, "Content-Encoding") {
			return a, refuse(http.StatusUnsupportedMediaType,
				"Content-Encoding: the target would not receive it: post the content without a coding")
		}
	}
	mediaType, refusal := p.mediaType()
	if refusal != nil {
		return a, refusal
	}
	a.Content, refusal = p.content(mediaType)
	if refusal != nil {
		return a, refusal
	}
	if mediaType != typeBinary || r.ContentType == "" { // that may only say that the bytes must not change
		a.contentType = p.Header.Get("Content-Type")
	}
	for _, name := range r.Kept {
		var values []json.RawMessage
		for _, value := range p.Header[name] {
			values = append(values, strictjson.AppendString(nil, value))
		}
		if len(values) > 0 {
			a.headers = append(a.headers, strictjson.Member{Name: name, Value: strictjson.PackArray(values)})
		}
	}
	if parents := p.Header[envelope.HeaderTraceparent]; len(parents) == 1 {
		a.traceparent = parents[0]
		a.tracestate = strings.Join(p.Header[envelope.HeaderTracestate], ",")
	}
	return a, nil
}

// mediaType returns the type that decides how the host passes the body, in lower case; empty if the post has none.
func (p Post) mediaType() (string, *Refusal) {
	types := p.Header["Content-Type"]
	if len(types) == 0 {
		return "", nil
	}
	mediaType, parameters, err := mime.ParseMediaType(types[0])
	if err != nil || len(types) > 1 {
		return "", refuse(http.StatusUnsupportedMediaType, "Content-Type: want one that can be read")
	}
	charset, hasCharset := parameters["charset"]
	isText := !isBinary(mediaType)
	if isText && hasCharset && !strings.EqualFold(charset, "utf-8") && !strings.EqualFold(charset, "us-ascii") {
		return "", notText("the charset of Content-Type is not utf-8")
	}
	return mediaType, nil
}

// isBinary reports whether the host passes a body of this type in base64.
func isBinary(mediaType string) bool {
	return mediaType == typeBinary || strings.HasPrefix(mediaType, "multipart/")
}

// content returns the body byte for byte. The host has lost a body without Content-Length, and has changed a text that
// is not UTF-8, or that has a byte order mark. Almost always the text then has another length.
func (p Post) content(mediaType string) ([]byte, *Refusal) {
	lengths := p.Header["Content-Length"]
	if len(lengths) != 1 || len(p.Header["Transfer-Encoding"]) > 0 {
		return nil, refuse(http.StatusLengthRequired,
			"Content-Length: is missing: a body that is sent in chunks does not arrive")
	}
	want, err := strconv.Atoi(lengths[0])
	if err != nil || want < 0 {
		return nil, refuse(http.StatusBadRequest, "Content-Length: want a number of bytes")
	}
	content := p.Body
	if isBinary(mediaType) {
		content = make([]byte, base64.StdEncoding.DecodedLen(len(p.Body)))
		n, err := base64.StdEncoding.Decode(content, p.Body)
		if err != nil || n != want {
			return nil, refuse(http.StatusBadRequest, "the body did not arrive: want %d bytes", want)
		}
		return content[:n], nil
	}
	if p.Body == nil && want > 0 {
		return nil, refuse(http.StatusBadRequest, "the body did not arrive: want %d bytes", want)
	}
	if len(content) != want || bytes.ContainsRune(content, utf8.RuneError) {
		return nil, notText("the body is not UTF-8 without a byte order mark")
	}
	return content, nil
}

func notText(why string) *Refusal {
	return refuse(http.StatusUnsupportedMediaType, "%s: post it as application/octet-stream", why)
}
