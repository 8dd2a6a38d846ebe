package delivery_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/deliver/outbound"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/guard"
)

// golden is a file of testdata/nexus: a message of Nexus Async Caller and what must become of it, both
// written by hand. Its sections:
//
//	message.json   the message as it arrives
//	callout.http   the parts of the message that stand in base64: {{callout}} in message.json is the
//	callback.http  base64 of the section callout.http, and so on
//	latest.http
//	context.json
//	answer.http    what the target answers; busy when there is no such section
//	request.http   what must reach the target; without it nothing may. A traceparent that we create need not stand
//	               here; {{span}} is our span
//	reschedule.json   what must stand on the queue in the end; {{answer}} is the answer's base64, or {{kept}}
//	               where not all of it is kept
//	kept.http
//	told.json      the same, when the sender is told; {{guid}} is any GUID, the same in all places
//	reported.http  the callback that told.json holds as {{reported}}
//	dead.json      what must stand on the poison queue in the end
//
// In JSON sections the line breaks do not count. In HTTP sections the lines of the head end in CR LF; the
// last line end of a body does not belong to it; and \r, \n, \\ and \xff are single bytes.
// {{target}} is host and port of the target.
type golden struct {
	sections map[string]string
}

// busy is a target's answer where a file does not say.
const busy = `HTTP/1.1 503 Service Unavailable
Content-Length: 4
Content-Type: text/plain

busy
`

// noon is the time at which every golden message arrives.
var noon = time.Date(2026, time.January, 31, 12, 0, 0, 0, time.UTC)

// took is how long every call lasts, as the trail tells.
const took = 7 * time.Millisecond

func TestNexusGolden(t *testing.T) {
	files := goldenFiles(t)
	for name, file := range files {
		t.Run(name, func(t *testing.T) {
			target := newWireTarget(t)
			g := mustGolden(t, file, target.Addr().String())
			target.serve(t, g.http(t, "answer"))
			b := setup(t, nil)
			client := newClient(t)
			b.Caller = timed{client}
			b.Now = func() time.Time { return noon }

			result := b.deliver(g.json(t, "message"))
			if result.Err != nil || result.Identity == nil {
				t.Fatalf("%v: %s", result.Err, result.Detail)
			}
			g.checkRequest(t, target.requests())
			g.check(t, "reschedule", "told", b.items(t, mainQueue))
			g.check(t, "dead", "", b.items(t, poisonQueue))
		})
	}
}

// newClient returns a client that may call targets on this machine.
func newClient(tb testing.TB) *outbound.Client {
	tb.Helper()
	loopback, err := guard.ParseAllow("127.0.0.1")
	if err != nil {
		tb.Fatal(err)
	}
	client := outbound.New(10*time.Second, guard.Rules{Allow: loopback}, outbound.Proxy{})
	tb.Cleanup(client.Close)
	return client
}

// timed is a caller whose calls all last the same.
type timed struct{ delivery.Caller }

func (c timed) Do(ctx context.Context, e *envelope.Envelope) decision.Outcome {
	outcome := c.Caller.Do(ctx, e)
	outcome.Took = took
	return outcome
}

func goldenFiles(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("testdata/nexus/*.txtar")
	if err != nil || len(paths) < 25 {
		t.Fatalf("%d golden files: %v", len(paths), err)
	}
	files := map[string]string{}
	for _, path := range paths {
		files[strings.TrimSuffix(filepath.Base(path), ".txtar")] = path
	}
	return files
}

func mustGolden(t *testing.T, file, target string) golden {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	g := golden{map[string]string{"answer.http": busy}}
	for _, section := range archive.Files {
		g.sections[section.Name] = strings.ReplaceAll(string(section.Data), "{{target}}", target)
	}
	return g
}

func (g golden) has(name string) bool { return g.sections[name] != "" }

var placeholder = regexp.MustCompile(`\{\{[a-z]+}}`)

// json is a JSON section with its placeholders filled in, but for {{guid}}.
func (g golden) json(t *testing.T, name string) string {
	t.Helper()
	text := strings.ReplaceAll(g.sections[name+".json"], "\n", "")
	return placeholder.ReplaceAllStringFunc(text, func(found string) string {
		part := strings.Trim(found, "{}")
		switch {
		case part == "guid":
			return found
		case g.has(part + ".json"):
			return base64.StdEncoding.EncodeToString([]byte(strings.TrimSuffix(g.sections[part+".json"], "\n")))
		case !g.has(part + ".http"):
			t.Fatalf("there is no section %s", part)
		}
		return base64.StdEncoding.EncodeToString(g.http(t, part))
	})
}

var escape = regexp.MustCompile(`\\(r|n|\\|x[0-9a-f]{2})`)

// http is an HTTP section as bytes.
func (g golden) http(t *testing.T, name string) []byte {
	t.Helper()
	head, body, found := strings.Cut(g.sections[name+".http"], "\n\n")
	if !found {
		t.Fatalf("%s.http has no blank line", name)
	}
	text := strings.ReplaceAll(head, "\n", "\r\n") + "\r\n\r\n" + strings.TrimSuffix(body, "\n")
	return escape.ReplaceAllFunc([]byte(text), func(found []byte) []byte {
		switch found[1] {
		case 'r':
			return []byte("\r")
		case 'n':
			return []byte("\n")
		case '\\':
			return found[:1]
		}
		n, err := strconv.ParseUint(string(found[2:]), 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		return []byte{byte(n)}
	})
}

// checkRequest compares what reached the target with what must. The order of headers does not count, but
// that of lines with one name does.
func (g golden) checkRequest(t *testing.T, got [][]byte) {
	t.Helper()
	if !g.has("request.http") {
		if len(got) > 0 {
			t.Errorf("the target was called:\n%s", got)
		}
		return
	}
	if len(got) != 1 {
		t.Fatalf("%d requests reached the target, want 1", len(got))
	}
	wantHead, wantBody, _ := bytes.Cut(g.http(t, "request"), []byte("\r\n\r\n"))
	gotHead, gotBody, _ := bytes.Cut(got[0], []byte("\r\n\r\n"))
	headers := slices.DeleteFunc(sortedHead(gotHead), func(line string) bool {
		created := strings.HasPrefix(line, "Traceparent: 00-") && strings.HasSuffix(line, "-01")
		return created && !bytes.Contains(wantHead, []byte("traceparent:"))
	})
	for i, line := range headers {
		headers[i] = span.ReplaceAllString(line, "$1{{span}}")
	}
	if diff := cmp.Diff(sortedHead(wantHead), headers); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	if !bytes.Equal(wantBody, gotBody) {
		t.Errorf("body %q, want %q", gotBody, wantBody)
	}
}

// sortedHead is the request line and then the headers in the order of their names, but for
// Content-Length, which is right where the body is.
func sortedHead(head []byte) []string {
	lines := strings.Split(string(head), "\r\n")
	for i, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ":")
		lines[i+1] = http.CanonicalHeaderKey(name) + ":" + value
	}
	headers := slices.DeleteFunc(lines[1:],
		func(line string) bool { return strings.HasPrefix(line, "Content-Length:") })
	slices.SortStableFunc(headers, func(a, b string) int {
		a, _, _ = strings.Cut(a, ":")
		b, _, _ = strings.Cut(b, ":")
		return strings.Compare(a, b)
	})
	return append([]string{lines[0]}, headers...)
}

// check compares a queue with one of two sections, byte for byte; without either it must be empty.
func (g golden) check(t *testing.T, section, orSection string, got []item) {
	t.Helper()
	if !g.has(section + ".json") {
		section = orSection
	}
	if !g.has(section + ".json") {
		if len(got) > 0 {
			t.Errorf("there must be no message, but there is %s", got[0].content)
		}
		return
	}
	if len(got) != 1 {
		t.Fatalf("%s: %d messages, want 1", section, len(got))
	}
	want := strings.ReplaceAll(g.json(t, section), "{{guid}}", guidIn(got[0].content))
	if diff := cmp.Diff(readable(want), readable(got[0].content)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", section, diff)
	}
	if want != got[0].content {
		t.Errorf("%s: not the same bytes", section)
	}
}

// span matches the span of our delivery in a traceparent.
var span = regexp.MustCompile(`(00-[0-9a-f]{32}-)[0-9a-f]{16}`)

var guid = regexp.MustCompile(`[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}`)

// guidIn is the first GUID that is a RawRequest's id.
func guidIn(content string) string {
	_, behind, _ := strings.Cut(content, `"RawRequest":{"Id":"`)
	id, _, _ := strings.Cut(behind, `"`)
	return guid.FindString(id)
}

// readable is a message for a person: a member on each line, and what stands in base64 as text.
func readable(content string) string {
	content = strings.ReplaceAll(content, `,"`, ",\n\"")
	return inText.ReplaceAllStringFunc(content, func(found string) string {
		text, err := base64.StdEncoding.DecodeString(strings.Trim(found, `"`))
		if err != nil {
			return found
		}
		return strconv.Quote(string(text))
	})
}

// wireTarget is a target that keeps the requests as they were sent, byte for byte.
type wireTarget struct {
	net.Listener
	got  [][]byte
	done chan struct{}
}

func newWireTarget(t *testing.T) *wireTarget {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return &wireTarget{Listener: listener, done: make(chan struct{})}
}

// serve answers every request, one connection after the other, until requests is called.
func (w *wireTarget) serve(t *testing.T, answer []byte) {
	t.Helper()
	go func() {
		defer close(w.done)
		for {
			connection, err := w.Accept()
			if err != nil {
				return
			}
			request, err := readWire(bufio.NewReader(connection))
			if err == nil {
				_, err = connection.Write(answer)
			}
			if err != nil {
				t.Errorf("target: %v", err)
			}
			w.got = append(w.got, request)
			_ = connection.Close()
		}
	}()
}

// requests ends the target and returns what it got.
func (w *wireTarget) requests() [][]byte {
	_ = w.Close()
	<-w.done
	return w.got
}

// readWire reads a request whose length, if it has a body, its Content-Length tells.
func readWire(r *bufio.Reader) ([]byte, error) {
	var request []byte
	length := 0
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return nil, err
		}
		request = append(request, line...)
		if string(line) == "\r\n" {
			break
		}
		if value, found := strings.CutPrefix(string(line), "Content-Length: "); found {
			length, err = strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				return nil, err
			}
		}
	}
	body := make([]byte, length)
	_, err := io.ReadFull(r, body)
	return append(request, body...), err
}
