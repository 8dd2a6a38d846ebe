package envelope_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/rules/envelope"
)

// wholeBody makes package cmp compare bodies.
var wholeBody = cmp.AllowUnexported(envelope.Body{})

// gzipped returns an envelope with gzip of a body, as its bytes are.
func gzipped(content, headers string) string {
	return `{"asyncCaller":2,"requestId":"r1","call":{"url":"https://t.example/"` + headers + `,"gzipBody":"` +
		inBase64(content) + `"}}`
}

// inMember returns gzip whose header is changed.
func inMember(t *testing.T, text string, change func(*gzip.Header)) string {
	t.Helper()
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	change(&w.Header)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestGzipBody: a body can be one member of gzip that inflates to at most 1 MiB. Anything else is malformed.
func TestGzipBody(t *testing.T) {
	plain := inGzip(t, "C4nary")
	full := strings.Repeat("a", envelope.MaxBody)
	damaged := []byte(inGzip(t, strings.Repeat("C4nary", 20)))
	damaged[10] = 0xff // a block of a type that there is not
	changed := func(at int) string {
		content := []byte(plain)
		content[len(content)+at] ^= 1
		return string(content)
	}
	for name, test := range map[string]struct{ content, body, problem string }{
		"text":        {gzipped(plain, ""), "C4nary", ""},
		"empty":       {gzipped(inGzip(t, ""), ""), "", ""},
		"largest":     {gzipped(inGzip(t, full), ""), full, ""},
		"name":        {gzipped(inMember(t, "x", func(h *gzip.Header) { h.Name, h.Comment = "a", "b" }), ""), "x", ""},
		"line_breaks": {strings.Replace(gzipped(plain, ""), `"gzipBody":"H`, `"gzipBody":"\r\nH`, 1), "C4nary", ""},
		"too_large":   {gzipped(inGzip(t, full+"b"), ""), "", "inflates to more than 1048576 bytes"},
		"truncated":   {gzipped(plain[:len(plain)-1], ""), "", "the gzip ends too early"},
		"only_header": {gzipped(plain[:10], ""), "", "not gzip in base64"},
		"nothing":     {gzipped("", ""), "", "not gzip in base64"},
		"two_members": {gzipped(plain+plain, ""), "", fmt.Sprintf("%d bytes follow the gzip: want one", len(plain))},
		"trailing":    {gzipped(plain+"\x00", ""), "", "1 bytes follow the gzip"},
		"sum":         {gzipped(changed(-8), ""), "", "the checksum or the length"},
		"length":      {gzipped(changed(-4), ""), "", "the checksum or the length"},
		"damaged":     {gzipped(string(damaged), ""), "", "the gzip is damaged"},
		"zlib":        {gzipped(compressed(t, "deflate", "C4nary with some more text"), ""), "", "not gzip in base64"},
		"plain":       {gzipped("C4nary, and no gzip", ""), "", "not gzip in base64"},
		"no_base64":   {strings.Replace(gzipped(plain, ""), `"gzipBody":"`, `"gzipBody":"!`, 1), "", "not base64"},
		"other_type":  {`{"asyncCaller":2,"call":{"url":"https://t.example/","gzipBody":{}}}`, "", "want a string"},
		"long_name": {
			gzipped(inMember(t, "", func(h *gzip.Header) { h.Name = full[:30<<10] }), ""), "", "the gzip header",
		},
		"extra_field": {
			gzipped(inMember(t, "", func(h *gzip.Header) { h.Extra = []byte("C4nary") }), ""), "", "the gzip header",
		},
		"another_body":  {gzipped(plain, `,"body":"x"`), "", "appears together with body"},
		"first_version": {strings.Replace(gzipped(plain, ""), ":2", ":1", 1), "", `only with "asyncCaller": 2`},
		"no_gzip":       {`{"asyncCaller":2,"call":{"url":"https://t.example/","body":"x"}}`, "x", ""},
		"null":          {`{"call":{"url":"https://t.example/","gzipBody":null,"body":"x"},"asyncCaller":1}`, "x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := envelope.Parse([]byte(test.content))
			if test.problem != "" {
				want := "call.gzipBody: " + test.problem
				if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "C4nary") {
					t.Errorf("error %v, want %q", err, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var sent bytes.Buffer
			if _, err := sent.ReadFrom(e.Call.Body.Reader()); err != nil {
				t.Fatal(err)
			}
			body := e.Call.Body
			if sent.String() != test.body || string(body.Bytes()) != test.body || body.Len() != len(test.body) ||
				body.IsNone() || e.Call.Method != http.MethodPost {
				t.Errorf("%s with %d bytes, %.20q, want %d, %.20q", e.Call.Method, body.Len(), sent.String(),
					len(test.body), test.body)
			}
			e = accept(t, test.content)
			next := written(t)(e.Successor(limit))
			if version := test.content[:16]; strings.HasPrefix(version, `{"async`) &&
				!strings.HasPrefix(string(next.Bytes), version) || callIn(string(next.Bytes)) != callIn(test.content) {
				t.Errorf("the successor is %.100s", next.Bytes)
			}
		})
	}
}

// TestCompress: an envelope that is too large gets its body as gzip, and is the same call.
func TestCompress(t *testing.T) {
	const headers = `,"headers":{"content-type":"application/json"}`
	text := `[` + strings.Repeat(`{"order": 1, "name": "å"},`, 8000) + `1]`
	random := make([]byte, 60<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(random)
	for name, test := range map[string]struct {
		members string
		fits    bool
	}{
		"json":         {`,"json":` + text, true},
		"json_typed":   {headers + `,"json":` + text, true},
		"body":         {headers + `,"body":` + quoted(text), true},
		"base64":       {headers + `,"bodyBase64":"` + inBase64(text) + `"`, true},
		"no_help":      {`,"bodyBase64":"` + inBase64(string(random)) + `"`, false},
		"no_body":      {`,"headers":{"A":"` + text[:0] + strings.Repeat("a", 50<<10) + `"}`, false},
		"beyond_limit": {`,"body":"` + strings.Repeat("a", envelope.MaxBody+1) + `"`, false},
	} {
		content := []byte(` {"asyncCaller":1,"requestId":"r1","call":{"url":"https://t.example/"` + test.members + `}}`)
		e, err := envelope.Parse(content)
		if err != nil {
			t.Fatal(err)
		}
		compressed, ok := envelope.Compress(content, e.Accept(arrival, "m1", limit))
		if !test.fits {
			if ok && accepts(compressed) {
				t.Errorf("%s: accepted", name)
			}
			continue
		}
		if !ok || !accepts(compressed) {
			t.Fatalf("%s: not accepted", name)
		}
		if string(accept(t, string(compressed)).Call.Body.Bytes()) != text {
			t.Errorf("%s: another body", name)
		}
		if fingerprint(t, string(compressed)) != fingerprint(t, string(content)) {
			t.Errorf("%s: another fingerprint", name)
		}
	}
	if _, ok := envelope.Compress([]byte(`{"asyncCaller":1,"call":{"url":"https://t.example/","body":"x"}}`), nil); ok {
		t.Error("compressed an envelope that fits")
	}
}

func accepts(content []byte) bool {
	_, err := arrive(string(content))
	return err == nil
}

func quoted(text string) string {
	literal, _ := json.Marshal(text) // a string has no errors
	return string(literal)
}

// TestInflate: for an edit, a gzipBody is text or JSON. It comes back as it was unless the body was edited.
func TestInflate(t *testing.T) {
	const asJSON = `,"headers":{"content-type":"application/json"}`
	for name, test := range map[string]struct{ content, member string }{
		"json":     {gzipped(inGzip(t, `{"a": 1.0}`), asJSON), `"json":{"a": 1.0}`},
		"array":    {gzipped(inGzip(t, `[1]`), `,"headers":{"Content-Type":["application/json"]}`), `"json":[1]`},
		"untyped":  {gzipped(inGzip(t, `{"a": 1.0}`), ""), `"body":"{\"a\": 1.0}"`},
		"spaces":   {gzipped(inGzip(t, `1 `), asJSON), `"body":"1 "`},
		"no_json":  {gzipped(inGzip(t, `{`), asJSON), `"body":"{"`},
		"too_deep": {gzipped(inGzip(t, strings.Repeat("[", 9999)+strings.Repeat("]", 9999)), asJSON), `"body":"[[[`},
		"binary":   {gzipped(inGzip(t, "\xff"), asJSON), `"gzipBody":"`},
		"broken":   {gzipped("x", ""), `"gzipBody":"`},
		"none":     {`{"asyncCaller":2,"call":{"body":"x"}}`, `"body":"x"`},
		"no_call":  {`{"asyncCaller":2,"call":"gzipBody"}`, `"call"`},
	} {
		inflated, restore := envelope.Inflate([]byte(test.content))
		if !strings.Contains(string(inflated), test.member) {
			t.Errorf("%s: inflated %.200s", name, inflated)
		}
		if same, err := restore(inflated); err != nil || string(same) != test.content {
			t.Errorf("%s: restored %.200s, %v", name, same, err)
		}
		moved, err := envelope.Set(inflated, []string{"requestId"}, "r2")
		if err != nil {
			t.Fatal(err)
		}
		moved, err = restore(moved)
		const member = `"gzipBody":`
		wantGzip, hasGzip := strings.Contains(test.content, member), strings.Contains(string(moved), member)
		if err != nil || !strings.Contains(string(moved), "r2") || wantGzip != hasGzip {
			t.Errorf("%s: restored %.200s, %v", name, moved, err)
		}
	}
}

// TestGzipMemory: hundreds of bodies that inflate to a thousand times their size take no more than the memory of those
// that are inflated at the moment, and are refused after 1 MiB.
func TestGzipMemory(t *testing.T) {
	bomb := []byte(gzipped(inGzip(t, strings.Repeat("\x00", 34<<20)), ""))
	if len(bomb) < 40<<10 || len(bomb) > limit {
		t.Fatalf("the bomb has %d bytes", len(bomb))
	}
	const n = 600
	var envelopes [n]*envelope.Envelope
	for i := range envelopes {
		var err error
		envelopes[i], err = envelope.ParseUnchecked(bomb)
		if err != nil {
			t.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var all sync.WaitGroup
	for _, e := range envelopes {
		all.Go(func() {
			if err := e.CheckBody(); err == nil {
				t.Error("accepted")
			}
		})
	}
	all.Wait()
	runtime.ReadMemStats(&after)
	used := (after.TotalAlloc - before.TotalAlloc) / n
	t.Logf("%d bytes for each, garbage included", used)
	if used > 8<<10 {
		t.Errorf("%d bytes for each", used)
	}
}

// FuzzGzipBody: gzip of any form is refused, or keeps what checkPromises checks, with a body of the length it says.
func FuzzGzipBody(f *testing.F) {
	f.Add([]byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff" +
		"\x4b\x4c\x4a\x06\x04\x00\xff\xff\xc2\x41\x24\x35\x03\x00\x00\x00"))
	f.Add([]byte("\x1f\x8b\x08\x1f\x00\x00\x00\x00\x00\xff\x01\x00a\x00b\x00\x00\x00"))
	f.Add([]byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, content []byte) {
		message := gzipped(string(content), "")
		checkPromises(t, message)
		e, err := envelope.Parse([]byte(message))
		if err != nil {
			return
		}
		sum := sha256.New()
		n, err := e.Call.Body.WriteTo(sum)
		body := e.Call.Body.Bytes()
		isSame := sha256.Sum256(body) == [32]byte(sum.Sum(nil))
		if err != nil || int(n) != e.Call.Body.Len() || len(body) != int(n) || !isSame {
			t.Errorf("%d bytes, %v, want %d", n, err, e.Call.Body.Len())
		}
	})
}
