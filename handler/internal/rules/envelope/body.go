package envelope

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"asynccaller/handler/internal/plain/strictjson"
)

// MaxBody is the size of the largest body of a call, in bytes. Only gzip lets a message hold one that is larger than
// the message.
const MaxBody = 1 << 20

// Body is the body of a call; the zero value is none. The message holds its bytes, or gzip of them, which is inflated
// anew each time the body is read: a call never takes the memory of the whole.
type Body struct {
	// stored are the bytes or, if isGzip, gzip of them in base64, as the message has it; nil if there is no body.
	// Size is the length that the gzip states.
	stored []byte
	isGzip bool
	size   int
}

// BodyOf returns the body with these bytes; nil is no body.
func BodyOf(content []byte) Body { return Body{stored: content} }

// IsNone reports whether the call has no body. An empty one is a body.
func (b Body) IsNone() bool { return b.stored == nil }

// Len returns the length of the body in bytes, as the target gets it.
func (b Body) Len() int {
	if !b.isGzip {
		return len(b.stored)
	}
	return b.size
}

// Gzip returns gzip of the body, if the message holds that, and nil otherwise.
func (b Body) Gzip() []byte {
	if !b.isGzip {
		return nil
	}
	content, _ := base64.StdEncoding.AppendDecode(nil, b.stored) // it was parsed
	return content
}

// Reader returns a reader of the body from its beginning, or nil if there is none. For gzip it takes some 50 KiB, from
// the first read to the end of the body.
func (b Body) Reader() io.Reader {
	switch {
	case b.IsNone():
		return nil
	case b.isGzip && b.Len() > 0:
		return &inflater{body: b}
	case b.isGzip:
		return bytes.NewReader(nil)
	}
	return bytes.NewReader(b.stored)
}

// inflater reads what gzip holds.
type inflater struct {
	body   Body
	reader *gzip.Reader // nil before the first read, and after the last one
	err    error        // of the last one
}

func (i *inflater) Read(p []byte) (int, error) {
	if i.err == nil && i.reader == nil {
		i.reader, i.err = gzip.NewReader(bufio.NewReader(i.body.decoder()))
	}
	if i.err != nil {
		return 0, i.err
	}
	n, err := i.reader.Read(p)
	if err != nil { // a target can take minutes to answer
		i.reader, i.err = nil, err
	}
	return n, err
}

// WriteTo writes the body. The only errors are those of w.
func (b Body) WriteTo(w io.Writer) (int64, error) {
	if !b.isGzip {
		n, err := w.Write(b.stored)
		return int64(n), err
	}
	n, _, err := b.inflate(w)
	return n, err
}

// Bytes returns the whole body, up to MaxBody bytes. It is for commands: the handler reads bodies in pieces.
func (b Body) Bytes() []byte {
	if !b.isGzip {
		return b.stored
	}
	whole := bytes.NewBuffer(make([]byte, 0, b.Len()))
	_, _ = b.WriteTo(whole) // a buffer has no errors
	return whole.Bytes()
}

// inflaters are for passes that wait for nothing. So there are few at a time, whatever the number of messages.
var inflaters = sync.Pool{New: func() any { return new(pooled) }}

type pooled struct {
	gzip.Reader
	from   bufio.Reader
	buffer [4 << 10]byte
	gzip   []byte
}

// decoder returns a reader of the gzip.
func (b Body) decoder() io.Reader {
	return base64.NewDecoder(base64.StdEncoding, bytes.NewReader(b.stored))
}

// inflate writes the body, at most a byte more than MaxBody, and returns how many bytes follow the gzip.
func (b Body) inflate(w io.Writer) (n, left int64, err error) {
	in := inflaters.Get().(*pooled) //nolint:forcetypeassert // by New
	defer inflaters.Put(in)
	in.from.Reset(b.decoder())
	err = in.Reset(&in.from)
	if err != nil {
		return 0, 0, err
	}
	in.Multistream(false)
	n, err = io.CopyBuffer(w, io.LimitReader(&in.Reader, MaxBody+1), in.buffer[:])
	left, _ = io.CopyBuffer(io.Discard, &in.from, in.buffer[:])
	return n, left, err
}

// The header and the trailer of gzip (RFC 1952, 2.3).
const (
	minGzip   = 10 + 8
	flagsAt   = 3
	flagExtra = 1 << 2
)

var (
	errNotGzip     = errors.New("not gzip in base64")
	errGzipVersion = fmt.Errorf("only with %q: %d, because version 0.1 would make the call without its body",
		nativeMarker, gzipVersion)
)

// parseGzip reads gzip in base64. It does not inflate it: see [Body.check].
func parseGzip(value []byte) (Body, error) {
	text, err := strictjson.Bytes(value)
	if err != nil {
		return Body{}, err
	}
	in := inflaters.Get().(*pooled) //nolint:forcetypeassert // by New
	defer inflaters.Put(in)
	in.gzip, err = base64.StdEncoding.AppendDecode(in.gzip[:0], text)
	content := in.gzip
	switch {
	case err != nil:
		return Body{}, errNotBase64
	case len(content) < minGzip || content[0] != 0x1f || content[1] != 0x8b:
		return Body{}, errNotGzip
	case content[flagsAt]&flagExtra != 0: // which would take memory while the body is sent
		return Body{}, errors.New("the gzip header has an extra field: leave it out")
	}
	size := binary.LittleEndian.Uint32(content[len(content)-4:]) // which check compares
	return Body{stored: text, isGzip: true, size: int(size)}, nil
}

// check inflates gzip and returns what is wrong with it. Until then, the length and the bytes of the body are unknown.
func (b Body) check() error {
	if !b.isGzip {
		return nil
	}
	n, left, err := b.inflate(io.Discard)
	switch {
	case n > MaxBody:
		err = fmt.Errorf("inflates to more than %d bytes", MaxBody)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		err = errors.New("the gzip ends too early")
	case errors.Is(err, gzip.ErrChecksum):
		err = errors.New("the checksum or the length at the end of the gzip is wrong")
	case errors.Is(err, gzip.ErrHeader):
		err = errors.New("the gzip header is invalid")
	case err != nil:
		err = errors.New("the gzip is damaged")
	case left > 0:
		err = fmt.Errorf("%d bytes follow the gzip: want one member", left)
	}
	return err
}

// CheckBody inflates the body of the call, if it is gzip, and returns what is wrong with it.
func (e *Envelope) CheckBody() error {
	return strictjson.In(string(partCall), strictjson.In(gzipBody, e.Call.Body.check()))
}

// deflaters take some 800 KiB each.
var deflaters = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// deflate returns gzip of a body, in base64.
func deflate(body []byte) string {
	var compressed bytes.Buffer
	out := deflaters.Get().(*gzip.Writer) //nolint:forcetypeassert // by New
	defer deflaters.Put(out)
	out.Reset(&compressed)
	_, _ = out.Write(body) // a buffer has no errors
	_ = out.Close()
	return base64.StdEncoding.EncodeToString(compressed.Bytes())
}

// Compress returns a native envelope that was refused because it is too large, as problem says, with its body as gzip.
// It returns false if that is no help.
func Compress(content []byte, problem error) (compressed []byte, ok bool) {
	if _, isTooLarge := errors.AsType[*TooLargeError](problem); !isTooLarge {
		return nil, false
	}
	e, err := ParseUnchecked(content)
	if err != nil || e.Format() != FormatNative || e.Call.Body.isGzip || e.Call.Body.Len() > MaxBody {
		return nil, false
	}
	compressed, err = Set(bytes.TrimSpace(content), []string{string(partCall), gzipBody}, deflate(e.Call.Body.stored))
	return compressed, err == nil && len(compressed) < len(content)
}

// Inflate returns a native envelope with its gzipBody as json or body, for edits. Restore puts the gzipBody back into
// an edited envelope whose body is still the same. The content may be any JSON object; one without gzip of a text is
// returned as it is.
func Inflate(content []byte) (inflated []byte, restore func(edited []byte) ([]byte, error)) {
	var n native
	unchanged := func(edited []byte) ([]byte, error) { return edited, nil }
	asGzip := []string{string(partCall), gzipBody}
	value := n.names().Get(content, asGzip...)
	body, err := parseGzip(orNull(value))
	if err == nil {
		err = body.check()
	}
	if err != nil || IsNexus(content) {
		return content, unchanged
	}
	text := body.Bytes()
	kind, shown := "body", json.RawMessage(quote(string(text)))
	contentType := strictjson.FoldNames.Get(content, string(partCall), "headers", "Content-Type")
	mediaTypes, _ := parseHeaderValues(orNull(contentType))
	depth, err := strictjson.Depth(text)
	switch {
	case !utf8.Valid(text):
		return content, unchanged
	case err == nil && depth <= maxContextDepth && len(bytes.TrimSpace(text)) == len(text) &&
		strings.Contains(strings.Join(mediaTypes, ","), "json"):
		kind, shown = "json", text
	}
	// swap replaces a member of the call by another one.
	swap := func(content []byte, old, kind []string, value json.RawMessage) ([]byte, error) {
		content, err := n.names().Set(content, old, nil)
		if err == nil {
			content, err = n.names().Set(content, kind, value)
		}
		return content, err
	}
	asText := []string{string(partCall), kind}
	inflated, _ = swap(content, asGzip, asText, shown) // the call is an object, because it has a gzipBody
	return inflated, func(edited []byte) ([]byte, error) {
		if bytes.Equal(edited, inflated) {
			return content, nil
		}
		if !bytes.Equal(n.names().Get(edited, asText...), shown) {
			return edited, nil
		}
		return swap(edited, asText, asGzip, value)
	}
}
