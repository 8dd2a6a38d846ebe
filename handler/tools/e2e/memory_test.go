//go:build linux && long

package e2e_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// memoryLimitMiB is that of the handler on an instance of 512 MB, executableMiB what does not count for it.
	memoryLimitMiB, executableMiB = 256, 24
	// hostileBytes is nearly the longest content that leaves room for the state of a successor.
	hostileBytes = 45 << 10
	redirects    = 10
	// answerBytes is nearly the most that is kept of an answer.
	answerBytes = 63 << 10
	// hostileMessages is more than the handler calls at a time of these kinds.
	hostileMessages = 600
)

// TestMemoryOfHostileMessages sends as many messages as the handler ever calls at a time, and more, each with as
// much as its sender can make the handler remember, by https to a target that redirects ten times with long headers
// and then stalls in its answer. At last all of them are rescheduled at once. It does not run beside other tests,
// because it takes all processors.
func TestMemoryOfHostileMessages(t *testing.T) {
	needsHost(t, "the handler runs alone")
	f := newFixture(t, options{})
	f.allowManyCalls()
	kinds := map[string]func(url string) string{
		"headers": func(url string) string {
			return repeated(`{"asyncCaller":1,"call":{"url":"`+url+`","method":"PUT","headers":{`, `"%x":"",`,
				`"z":""}}}`)
		},
		"unknown_members": func(url string) string {
			return repeated(`{"asyncCaller":1,"call":{"url":"`+url+`"},`, `"%x":0,`, `"z":0}`)
		},
		"nexus_headers": func(url string) string {
			scheme, host, _ := strings.Cut(url, "://")
			host, path, _ := strings.Cut(host, "/")
			head := "PUT /" + path + " HTTP/1.1\r\nHost: " + host + "\r\n"
			request := repeated(head, "%x:\r\n", "\r\n")[:hostileBytes/4*3-1000]
			request = request[:strings.LastIndex(request, "\r\n")] + "\r\n\r\n"
			return `{"Organization":"a","Environment":"b","RawRequest":{"Id":"1","CallOutUriScheme":"` + scheme +
				`","CallOut":"` +
				base64.StdEncoding.EncodeToString([]byte(request)) + `"}}`
		},
	}
	kinds[notDue] = func(url string) string {
		return repeated(`{"asyncCaller":1,"notBefore":"2999-01-01T00:00:00Z","call":{"url":"`+url+`"},`, `"%x":0,`,
			`"z":0}`)
	}
	// The handler refuses the first kind after 1 MiB, and calls the second one, which has just as much.
	kinds[gzipBombs] = func(url string) string { return gzipOf(t, url, bytes.Repeat([]byte{0}, 33<<20)) }
	kinds["gzip"] = func(url string) string { return gzipOf(t, url, largest()) }
	kinds[bombs] = func(url string) string { return `{"asyncCaller":1,"call":{"url":"` + url + `"}}` }
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		envelope := kinds[name]
		t.Run(name, func(t *testing.T) {
			answer := "\r\n" + strings.Repeat("x", answerBytes)
			if name == bombs {
				answer = bomb(t)
			}
			peak := f.peakOf(t, envelope, answer, name != notDue && name != gzipBombs, name == bombs)
			t.Logf("%d MiB", peak)
			if peak > memoryLimitMiB+executableMiB {
				t.Errorf("the handler took %d MiB, want at most %d", peak, memoryLimitMiB+executableMiB)
			}
		})
	}
}

// notDue are messages that are only parsed and rescheduled, all at the same time.
const notDue = "not_due"

// gzipBombs are messages with bodies of gzip that inflate to a thousand times their size.
const gzipBombs = "gzip_bombs"

// largest returns a body of 1 MiB, of which gzip makes as much as a message can hold.
func largest() []byte {
	body := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(body[:31<<10])
	return body
}

// gzipOf returns an envelope with gzip of a body.
func gzipOf(t *testing.T, url string, body []byte) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(body)
	_ = w.Close()
	content := `{"asyncCaller":2,"call":{"url":"` + url + `","method":"PUT","gzipBody":"` +
		base64.StdEncoding.EncodeToString(b.Bytes()) + `"}}`
	if len(content) > 48<<10 || len(content) < 40<<10 {
		t.Fatalf("%d bytes", len(content))
	}
	return content
}

// slowly is the path at which a hostile target answers, but only after some seconds: its calls may take long.
const slowly = "slowly"

// bombs are messages whose answers are bombs.
const bombs = "bombs"

// bomb returns the last header lines and the body of an answer of 63 KiB, in two codings, that would take 200 MiB as
// text.
func bomb(t *testing.T) string {
	t.Helper()
	body := bytes.Repeat([]byte{0x80}, 68<<20) // three bytes in UTF-8
	for _, level := range []int{gzip.BestCompression, gzip.NoCompression} {
		var b bytes.Buffer
		w, err := gzip.NewWriterLevel(&b, level)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write(body)
		_ = w.Close()
		body = b.Bytes()
	}
	return "Content-Type: text/plain; charset=windows-1252\r\nContent-Encoding: gzip, gzip\r\n\r\n" +
		string(body[:answerBytes])
}

// peakOf returns the peak of a new handler's memory, in MiB, that gets the same message many times.
func (f *fixture) peakOf(t *testing.T, envelope func(url string) string, answer string, isCalled, isTrusted bool) int {
	t.Helper()
	target := newHostileTarget(t, answer)
	h := f.serve(t, io.Discard, connection(f.connectionString), "SSL_CERT_FILE="+target.trusted, "KEY=the key",
		fmt.Sprintf("GOMEMLIMIT=%dMiB", memoryLimitMiB), "GOGC=600") // as the handler sets it for itself
	content := envelope(fmt.Sprintf("https://%s/%d", target.listener.Addr(), redirects))
	var answered, failed atomic.Int64
	var posts sync.WaitGroup
	if isTrusted { // so that all calls are made
		h.invoke(fmt.Sprintf(`{"asyncCaller":1,"call":{"url":"https://%s/%s"}}`, target.listener.Addr(), slowly))
	}
	for range hostileMessages {
		posts.Go(func() {
			if status, _ := h.invoke(content); status != http.StatusOK {
				failed.Add(1)
			}
			answered.Add(1)
		})
	}
	f.await("all messages to be refused or called",
		func() bool { return target.stalled.Load()+answered.Load() >= hostileMessages })
	t.Logf("%d called, %d refused", target.stalled.Load(), answered.Load())
	close(target.until)
	posts.Wait()
	if (target.stalled.Load() > 0) != isCalled || isTrusted && target.stalled.Load() < 256 || failed.Load() > 0 {
		t.Errorf("%d messages were called, %d invocations failed", target.stalled.Load(), failed.Load())
	}
	return memoryKiB(t, h.command.Process.Pid, "VmHWM") >> 10
}

// TestMemoryPerCall limits the memory that the handler needs for a call whose target does not answer: the peak of a new
// process that makes as many calls as it ever does, less its memory before. docs/performance.md states the limits.
func TestMemoryPerCall(t *testing.T) {
	needsHost(t, "the handler runs alone")
	f := newFixture(t, options{})
	f.allowManyCalls()
	for name, row := range map[string]struct{ bytes, calls, mostKiB int }{
		"small":   {1 << 10, 512, 80},
		"largest": {hostileBytes, 512, 200},
		"gzip":    {hostileBytes, 440, 200}, // with a body of 1 MiB, the handler makes fewer calls at a time
	} {
		t.Run(name, func(t *testing.T) {
			var posts sync.WaitGroup
			t.Cleanup(posts.Wait) // once the handler has been killed
			h := f.serve(t, io.Discard, connection(f.connectionString), "KEY=the key")
			pid := h.command.Process.Pid
			before := memoryKiB(t, pid, "VmRSS")
			slow := newSlow(t)
			head := `{"asyncCaller":1,"requestId":"` + name + `","call":{"url":"` + slow.URL + `","body":"`
			content := repeatedTo(row.bytes, head, `%x`, `"}}`)
			if name == "gzip" {
				content = gzipOf(t, slow.URL, largest())
			}
			h.invoke(content) // the target is known to answer slowly, so its calls may take long
			for range row.calls {
				posts.Go(func() { h.invoke(content) })
			}
			f.await("all calls to be in flight", func() bool { return int(slow.calls.Load()) == row.calls+1 })
			perCall := (memoryKiB(t, pid, "VmHWM") - before) / row.calls
			t.Logf("%d KiB a call of %d bytes, %d MiB when idle", perCall, len(content), before>>10)
			if perCall > row.mostKiB {
				t.Errorf("a call takes %d KiB, want at most %d", perCall, row.mostKiB)
			}
		})
	}
}

// slow is a target that answers the first call after some seconds, and no other one.
type slow struct {
	*httptest.Server

	calls atomic.Int64
}

func newSlow(t *testing.T) *slow {
	t.Helper()
	s := &slow{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the call is in flight
		isFirst := s.calls.Add(1) == 1
		answer := make(<-chan time.Time)
		if isFirst {
			answer = time.After(8 * time.Second)
		}
		select {
		case <-answer:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// allowManyCalls lets the handler make as many calls to one target as it ever makes.
func (f *fixture) allowManyCalls() {
	f.t.Helper()
	const profile = `{"*":{"breaker":"off","concurrency":10000,"headers":{"X-Key":"$KEY"}}}`
	f.must(os.WriteFile(filepath.Join(f.app, "targets.json"), []byte(profile), 0o600))
}

// memoryKiB returns a process's memory: VmRSS is the resident memory now, VmHWM its peak.
func memoryKiB(t *testing.T, pid int, line string) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	kib, err := strconv.Atoi(string(regexp.MustCompile(line + `:\s+(\d+) kB`).FindSubmatch(status)[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kib
}

// hostileTarget redirects /10 to /9 and so on, each time with nearly as many headers as are allowed, and stalls in
// its answer to /0 until the channel is closed.
type hostileTarget struct {
	listener net.Listener
	stalled  atomic.Int64
	until    chan struct{}
	// answer ends that to /0: its last header lines and its body.
	answer string
	// trusted is the file of its certificate.
	trusted string
}

func newHostileTarget(t *testing.T, answer string) *hostileTarget {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	certificate := issue(t, nil, &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{*certificate}})
	h := &hostileTarget{
		listener: listener, until: make(chan struct{}), answer: answer,
		trusted: filepath.Join(t.TempDir(), "trusted.pem"),
	}
	block := &pem.Block{Type: "CERTIFICATE", Bytes: certificate.Leaf.Raw}
	if err := os.WriteFile(h.trusted, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	var connections sync.WaitGroup
	connections.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Go(func() {
				defer func() { _ = c.Close() }()
				h.serve(c)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		connections.Wait()
	})
	return h
}

// serve answers the requests on a connection.
func (h *hostileTarget) serve(c net.Conn) {
	const lines, size = 240, 60 << 10
	var headers strings.Builder
	for n := range lines {
		fmt.Fprintf(&headers, "X-%d: %s\r\n", n, strings.Repeat("v", size/lines))
	}
	reader := bufio.NewReader(c)
	for {
		request, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, request.Body)
		if request.URL.Path == "/"+slowly {
			<-time.After(4 * time.Second)
			_, _ = io.WriteString(c, "HTTP/1.1 204 Done\r\n\r\n")
			continue
		}
		if left, _ := strconv.Atoi(request.URL.Path[1:]); left > 0 {
			fmt.Fprintf(c, "HTTP/1.1 307 Go\r\nLocation: /%d\r\nContent-Length: 0\r\n%s\r\n", left-1, &headers)
			continue
		}
		fmt.Fprintf(c, "HTTP/1.1 503 Busy\r\nContent-Length: 65000\r\n%s%s", &headers, h.answer)
		h.stalled.Add(1)
		<-h.until
		return
	}
}

// repeated fills an envelope with numbered elements between a head and a tail.
func repeated(head, element, tail string) string {
	return repeatedTo(hostileBytes, head, element, tail)
}

func repeatedTo(bytes int, head, element, tail string) string {
	var b strings.Builder
	b.WriteString(head)
	for n := 0; b.Len() < bytes-len(tail)-len(element)-8; n++ {
		fmt.Fprintf(&b, element, n)
	}
	return b.String() + tail
}
