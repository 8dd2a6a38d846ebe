package outbound

import (
	"bufio"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// TestFilter: net/http reads other lines in place of those about the end of the body, however the bytes arrive. The
// lines of heads are counted, and those of bodies are not.
func TestFilter(t *testing.T) {
	const ok, early = "HTTP/1.1 200 OK\r\n", "HTTP/1.1   103 Early Hints\r\n"
	lines := func(n int) string { return strings.Repeat("X:\r\n", n) }
	for name, test := range map[string]struct {
		received, want string
		err            error
	}{
		"plain":     {ok + "A: b\r\n\r\n", ok + "A: b\r\n\r\n", nil},
		"length":    {ok + "content-length:2\r\nA: b\r\n\r\nok", ok + "A: b\r\nContent-Length: 2\r\n\r\nok", nil},
		"similar":   {ok + "X-Content-Length: 1\r\nContent-Lengths: 1\r\nContent-Length\r\n\r\n", "", nil},
		"no_header": {ok + "\r\nContent-Length: 2\r\n", "", nil},
		"most_lines": {
			early + lines(5) + "\r\n" + ok + lines(maxHeaderLines-9) + "\r\n" + lines(10_000), "", nil,
		},
		"too_many_lines":  {early + lines(5) + "\r\n" + ok + lines(maxHeaderLines-8) + "\r\n", "", errTooManyLines},
		"line_feeds_only": {strings.ReplaceAll(ok+lines(maxHeaderLines), "\r", ""), "", errTooManyLines},
		"no_status_line":  {lines(maxHeaderLines + 1), "", errTooManyLines},
		"folded": {
			ok + "A: b\r\n c\r\nTransfer-Encoding:\r\n \r\n\tchunked\r\nD:\r\n Content-Length: 5\r\n\r\nx",
			ok + "A: b\r\n c\r\nD:\r\n Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nx", nil,
		},
		"folded_in_between": {
			ok + "Content-Length: 2\r\nA: b\r\n c\r\nContent-Length: 2\r\n\r\nok",
			ok + "A: b\r\n c\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", nil,
		},
		"folded_at_first": {ok + " Content-Length: 5\r\n\r\n", "", nil},
		"interim": {
			"HTTP/1.1 103 Hints\r\nA: b\r\nContent-Length: 5\r\n\r\n" + ok + "Content-Length: 2\r\n\r\n",
			"HTTP/1.1 103 Hints\r\nA: b\r\n\r\n" + ok + "Content-Length: 2\r\n\r\n", nil,
		},
		"line_feeds": {
			"HTTP/1.1 200 OK\nContent-Length: 2\nA: b\n\nok", "HTTP/1.1 200 OK\nA: b\nContent-Length: 2\r\n\nok", nil,
		},
		"http_1.0": {
			"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
			ok + "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n", nil,
		},
		"ambiguous": {
			ok + "Content-Length: 1\r\nA: b\r\nContent-Length: 2\r\n\r\nab",
			ok + "A: b\r\nConnection: close\r\n\r\n", errTwoLengths,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if test.want == "" {
				test.want = test.received
			}
			for _, size := range []int{1, 3, 1000} {
				h := head{inside: true, dropped: new(atomic.Bool)}
				var got []byte
				var err error
				for part := range slices.Chunk([]byte(test.received), size) {
					var out []byte
					out, err = h.filter(part)
					got = append(got, out...)
					if err != nil {
						break
					}
				}
				isRefused := errors.Is(err, errTooManyLines) // and then nobody reads the head
				isWanted := isRefused || string(got) == test.want && !h.inside
				if !isWanted || !errors.Is(err, test.err) {
					t.Errorf("%d bytes at a time: got %q, error %v, want %q", size, got, err, test.want)
				}
			}
		})
	}
}

func TestFrame(t *testing.T) {
	const chunked, length, closes = "Transfer-Encoding: chunked\r\n", "Content-Length: 5\r\n", "Connection: close\r\n"
	const gzip = "Content-Encoding: gzip\r\n"
	type values = []string
	for name, test := range map[string]struct {
		encodings, lengths values
		want               string
		err                error
	}{
		"none":                 {nil, nil, "", nil},
		"length":               {nil, values{"5"}, length, nil},
		"longest":              {nil, values{"9223372036854775807"}, "Content-Length: 9223372036854775807\r\n", nil},
		"chunked":              {values{"chunked"}, nil, chunked, nil},
		"chunked_in_capitals":  {values{"CHUNKED"}, nil, chunked, nil},
		"chunked_in_two_lines": {values{"chunked", "Chunked"}, nil, chunked + closes, nil},
		"chunked_twice_a_line": {values{"chunked,chunked"}, nil, chunked + closes, nil},
		"parameter":            {values{"chunked;q=1"}, nil, chunked + closes, nil},
		"identity_and_length":  {values{"Identity"}, values{"5"}, length + closes, nil},
		"identity_and_chunked": {values{"identity, chunked"}, nil, chunked + closes, nil},
		"identity_and_two_lengths": {
			values{"identity"}, values{"5", "6"}, closes, errTwoLengths,
		},
		"empty":            {values{""}, nil, closes, nil},
		"gzip_and_chunked": {values{"gzip, chunked"}, nil, chunked + gzip + closes, nil},
		"compress_and_chunked": {
			values{"x-compress, chunked"}, nil, chunked + "Content-Encoding: compress\r\n" + closes, nil,
		},
		"two_codings": {
			values{"deflate", "gzip", "chunked"}, nil, chunked + "Content-Encoding: deflate, gzip\r\n" + closes, nil,
		},
		"gzip_alone":             {values{"gzip"}, nil, gzip + closes, nil},
		"gzip_and_length":        {values{"gzip"}, values{"5"}, "Content-Length: 5\r\n" + gzip + closes, nil},
		"chunked_and_lengths":    {values{"chunked"}, values{"5", "-1", "x"}, chunked + closes, nil},
		"chunked_not_last":       {values{"chunked, gzip"}, nil, closes, errChunkedNotLast},
		"chunked_not_last_lines": {values{"chunked", "gzip", "chunked"}, nil, closes, errChunkedNotLast},
		"unknown":                {values{"br"}, nil, closes, errUnknownCoding},
		"unknown_after_chunked":  {values{"chunked, x"}, nil, closes, errUnknownCoding},
		"chunked_and_more":       {values{"chunked chunked"}, nil, closes, errUnknownCoding},
		"length_twice":           {nil, values{"5", "5"}, length + closes, nil},
		"length_twice_a_line":    {nil, values{"5, 5"}, length + closes, nil},
		"leading_zeros":          {nil, values{"005"}, length + closes, nil},
		"two_lengths":            {nil, values{"5", "6"}, closes, errTwoLengths},
		"empty_length":           {nil, values{""}, closes, errInvalidLength},
		"only_commas":            {nil, values{" , "}, closes, errInvalidLength},
		"plus":                   {nil, values{"+5"}, closes, errInvalidLength},
		"negative":               {nil, values{"-1"}, closes, errInvalidLength},
		"underscore":             {nil, values{"1_0"}, closes, errInvalidLength},
		"too_large":              {nil, values{"9223372036854775808"}, closes, errInvalidLength},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := frame(false, test.encodings, test.lengths)
			if got != test.want || !errors.Is(err, test.err) {
				t.Errorf("got %q, error %v, want %q, error %v", got, err, test.want, test.err)
			}
			old, err := frame(true, test.encodings, test.lengths)
			if want := strings.TrimSuffix(test.want, closes) + closes; old != want || !errors.Is(err, test.err) {
				t.Errorf("HTTP/1.0: got %q, error %v, want %q, error %v", old, err, want, test.err)
			}
		})
	}
}

// FuzzFilter: net/http refuses no head for what it says about the end of the body, the bytes that arrive together do
// not matter, and the memory is bounded.
func FuzzFilter(f *testing.F) {
	f.Add("HTTP/1.0 200 OK\r\nTransfer-Encoding:\r\n chunked, gzip\r\nA: b\r\n c\r\nContent-Length : 1\r\n\r\nbody", 3)
	f.Add("HTTP/1.1 103 Hints\r\nContent-Length: x\r\n\r\nHTTP/1.1 204 None\ncontent-length: 1, 2\n\n", 1)
	f.Add("HTTP/1.1 200 OK\r\nTrailer: Content-Length\r\nTransfer-Encoding: identity\r\nContent-Length: +1\r\n\r\n", 7)
	f.Add("HTTP/1.1 200 OK\r\n X: \x00\r\n a\r\n(x): \r\nA: b\x7f\r\n c\r\n: d\r\nE\r\n\r\n", 2)
	f.Fuzz(func(t *testing.T, received string, size int) {
		size = min(max(size, 1), 4<<10)
		run := func(size int) (passed string, err error) {
			h := head{inside: true, dropped: new(atomic.Bool)}
			for part := range slices.Chunk([]byte(received), size) {
				var out []byte
				out, err = h.filter(part)
				passed += string(out)
				if len(h.held) > maxHeaderBytes+size || !h.hasStatus && len(h.held) > maxHeldBytes+size {
					t.Fatalf("%d bytes are held", len(h.held))
				}
				if err != nil {
					break
				}
			}
			return passed, err
		}
		whole, wholeErr := run(4 << 10)
		parts, partsErr := run(size)
		var framing framingError
		if (wholeErr == nil || errors.As(wholeErr, &framing)) && (whole != parts || !errors.Is(partsErr, wholeErr)) {
			t.Errorf("got %q, %v at once, and %q, %v in parts of %d", whole, wholeErr, parts, partsErr, size)
		}
		response, err := http.ReadResponse(bufio.NewReader(strings.NewReader(whole)), nil)
		if err == nil {
			_ = response.Body.Close()
			return
		}
		bare := regexp.MustCompile(`[^a-z0-9-]`).ReplaceAllString(strings.ToLower(whole), "")
		isDisguise := strings.Contains(bare, transferEncoding) || strings.Contains(bare, contentLength)
		if strings.Contains(err.Error(), "malformed MIME header") && !isDisguise {
			t.Errorf("net/http refuses %q: %v", whole, err)
		}
		for _, text := range []string{"transfer encoding", "Content-Length", "trailer key"} {
			if strings.Contains(err.Error(), text) && !strings.Contains(err.Error(), "malformed") {
				t.Errorf("net/http refuses %q: %v", whole, err)
			}
		}
	})
}
