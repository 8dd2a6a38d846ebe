package decision

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/text/encoding/unicode"

	"asynccaller/handler/internal/rules/envelope"
)

const (
	retryHeader      = "X-Async-Caller-Retry"
	problemMediaType = "application/problem+json" // RFC 9457

	// maxSignalBytes is the part of a body in which a signal is looked for.
	maxSignalBytes = 1 << 20
	// maxTokenBytes is the part of a JSON token that is kept. The names of signals are shorter, even if all their
	// letters are escaped.
	maxTokenBytes = 128
	// peekedBytes is how much of a body says whether it can be an object.
	peekedBytes = 512
	// maxSignalDepth bounds the memory for the names of nested objects.
	maxSignalDepth = 1000
)

// Signal is the retry signal in the body of an answer. The zero value is no signal.
type Signal struct {
	// Retryable is the member of an RFC 9457 problem, IsRetryMeaningful that of a Nexus error, which has a Type; nil
	// for none.
	Retryable, IsRetryMeaningful *bool
}

// ReadSignal looks for a signal in the first MiB of a body, of which beginning has been read, and in the first MiB of
// what it decodes to; see [envelope.Decode]. The letter case of names does not matter. If a name occurs more than once,
// the last value that can be a signal counts. A body that is no JSON object has no signal. A body that cannot be read
// to its end has none either, and ReadSignal returns the error. ReadSignal keeps little of a body in memory, however
// long it is.
func ReadSignal(header http.Header, beginning []byte, rest io.Reader) (Signal, error) {
	body := &limitedBody{from: io.MultiReader(bytes.NewReader(beginning), rest), left: maxSignalBytes}
	decoded := &limitedBody{from: envelope.Decode(header, body), left: maxSignalBytes}
	text := bufio.NewReaderSize(decoded, peekedBytes)
	var object io.Reader = text
	// JSON in UTF-16 begins with a mark, or with a character of ASCII, of which one byte is 0.
	peeked, _ := text.Peek(peekedBytes) // an error comes again
	isUTF16 := len(peeked) > 1 && (peeked[0] == 0 || peeked[1] == 0 || peeked[0] >= 0xfe)
	if isUTF16 {
		order := unicode.LittleEndian
		if peeked[0] == 0 {
			order = unicode.BigEndian
		}
		object = unicode.UTF16(order, unicode.UseBOM).NewDecoder().Reader(text)
	} else {
		unmarked, marked := bytes.CutPrefix(peeked, []byte("\xef\xbb\xbf"))
		if marked {
			_, _ = text.Discard(len(peeked) - len(unmarked))
		}
		start := bytes.TrimLeft(unmarked, " \t\r\n")
		if len(start) > 0 && start[0] != '{' {
			return Signal{}, nil
		}
	}
	decoder := jsontext.NewDecoder(&shortTokens{from: object},
		jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	signal, err := readSignal(decoder)
	if errors.Is(err, io.EOF) || errors.Is(err, errLimit) {
		return signal, nil
	}
	return Signal{}, body.broken
}

// readSignal reads an object up to an error: io.EOF if it is complete.
func readSignal(d *jsontext.Decoder) (s Signal, err error) {
	name, typed := "", false
	for {
		token, err := d.ReadToken()
		if err != nil {
			if !typed {
				s.IsRetryMeaningful = nil
			}
			return s, err
		}
		depth := d.StackDepth()
		kind, n := d.StackIndex(min(depth, 1))
		switch {
		case depth > maxSignalDepth || depth > 0 && kind == '[':
			return s, errors.New("no object, or one that is nested too deeply")
		case depth != 1:
		case n%2 == 1:
			name = token.String()
		case strings.EqualFold(name, "Type"):
			typed = typed || token.Kind() != 'n'
		case token.Kind() != 't' && token.Kind() != 'f':
		case strings.EqualFold(name, "retryable"):
			s.Retryable = new(token.Bool())
		case strings.EqualFold(name, "IsRetryMeaningful"):
			s.IsRetryMeaningful = new(token.Bool())
		}
	}
}

// limitedBody reads at most left bytes of a body. If the body is longer, it then returns errLimit.
type limitedBody struct {
	from io.Reader
	left int
	// broken is why the body cannot be read to its end.
	broken error
}

var errLimit = errors.New("the limit is reached")

func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, errLimit
	}
	n, err := b.from.Read(p[:min(len(p), b.left)])
	b.left -= n
	if err != nil && !errors.Is(err, io.EOF) {
		b.broken = err
	}
	return n, err
}

// shortTokens reads JSON and leaves out what the decoder would only hold in memory: the end of long strings and
// numbers, and repeated spaces.
type shortTokens struct {
	from io.Reader
	// kept is the number of bytes of the present string or row of digits.
	kept int
	// quoted is set within a string, escaped after a backslash in it, and space after white space outside.
	quoted, escaped, space bool
}

func (s *shortTokens) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	short := p[:0]
	for _, c := range p[:n] {
		if s.keep(c) {
			short = append(short, c)
		}
	}
	return len(short), err
}

func (s *shortTokens) keep(c byte) bool {
	if s.quoted {
		afterBackslash := s.escaped
		s.escaped = c == '\\' && !afterBackslash
		if c == '"' && !afterBackslash {
			s.quoted = false
			return true
		}
		if s.escaped && s.kept > maxTokenBytes-len(`\u0000`) {
			s.kept = maxTokenBytes // an escape is kept whole or not at all
		}
		s.kept++
		return s.kept <= maxTokenBytes
	}
	afterSpace := s.space
	s.space = c == ' ' || c == '\t' || c == '\r' || c == '\n'
	switch {
	case s.space:
		return !afterSpace
	case c >= '0' && c <= '9':
		s.kept++
		return s.kept <= maxTokenBytes
	}
	s.quoted, s.kept = c == '"', 0
	return true
}

// retrySignal returns the retry signal of the response itself; without one the verdict is undecided.
// The order of precedence is: the header X-Async-Caller-Retry, the member retryable of an RFC 9457 problem, a
// Nexus error.
func (o Outcome) retrySignal() judgement {
	var j judgement
	switch strings.ToLower(strings.TrimSpace(o.Header.Get(retryHeader))) {
	case "yes":
		return judgement{verdict: temporary, rule: "header " + retryHeader + ": yes"}
	case "no":
		return judgement{verdict: permanent, rule: "header " + retryHeader + ": no"}
	case "":
	default:
		j.ignored = []string{"header " + retryHeader + " is neither yes nor no"}
	}
	signal := o.Signal
	if !o.Truncated {
		signal, _ = ReadSignal(o.Header, o.Body, http.NoBody) // nothing is left to read
	}
	says, format := signal.Retryable, "problem body, retryable: %v"
	if says == nil || o.Answer().MediaType() != problemMediaType {
		says, format = signal.IsRetryMeaningful, "Nexus error body, IsRetryMeaningful: %v"
	}
	if says == nil {
		return j
	}
	j.verdict, j.rule = permanent, fmt.Sprintf(format, *says)
	if *says {
		j.verdict = temporary
	}
	return j
}
