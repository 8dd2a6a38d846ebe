//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/tools/target"
	"asynccaller/handler/tools/testbed"
)

// project is the project's folder, from this one.
const project = "../../.."

// TestRun measures everything once and briefly. The values mean nothing, but all of them exist.
func TestRun(t *testing.T) {
	var out, messages bytes.Buffer
	runErr := run(t.Context(), project, options{
		short: true, json: true, strict: true, rounds: 1, time: 50 * time.Millisecond, trouble: 10 * time.Second, window: 3 * time.Second,
	}, &out, &messages)
	var r report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v, %v\n%s", runErr, err, messages.String())
	}
	if want := r.missed(); fmt.Sprint(runErr) != fmt.Sprint(want) {
		t.Errorf("error %v, want %v", runErr, want)
	}
	limits := 0
	for _, m := range r.Values {
		if m.Bound != noBound {
			limits++
		}
		mayBeZero := strings.Contains(m.Name, "transactions of a message") || strings.HasPrefix(m.Name, "reschedules") || strings.HasPrefix(m.Name, "memory that recording")
		if m.Spread.Max == 0 && !mayBeZero {
			t.Errorf("%s is 0", m.Name)
		}
		if m.Bound == exactly && !m.met() {
			t.Errorf("%s: %+v, want %v", m.Name, m.Spread, m.Limit)
		}
		// Less, and the target stalled before its answer.
		if strings.Contains(m.Name, "1 GiB") && m.Spread.Median < sentBytes/2/1024 {
			t.Errorf("%s: %v", m.Name, m.Spread.Median)
		}
	}
	if want := 35; limits != want && runtime.GOOS == "linux" {
		t.Errorf("%d limits, want %d:\n%s", limits, want, out.String())
	}
}

func TestOnly(t *testing.T) {
	err := run(t.Context(), project, options{only: "storag"}, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "-only storag: it is none of") {
		t.Errorf("error %v, want the measurements that exist", err)
	}
}

func TestRunElsewhere(t *testing.T) {
	err := run(t.Context(), t.TempDir(), options{}, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "project's folder") {
		t.Errorf("error %v, want where to run", err)
	}
}

func TestMet(t *testing.T) {
	for name, test := range map[string]struct {
		metric metric
		want   bool
	}{
		"at_least":       {metric{Bound: atLeast, Limit: 0.6, Spread: spread{0.6, 0.1, 0.9}}, true},
		"below":          {metric{Bound: atLeast, Limit: 0.6, Spread: spread{0.599, 0.1, 0.9}}, false},
		"at_most":        {metric{Bound: atMost, Limit: 80, Spread: spread{80, 1, 99}}, true},
		"above":          {metric{Bound: atMost, Limit: 80, Spread: spread{80.1, 1, 99}}, false},
		"exactly":        {metric{Bound: exactly, Limit: 1, Spread: spread{1, 1, 1}}, true},
		"sometimes_more": {metric{Bound: exactly, Limit: 1, Spread: spread{1, 1, 2}}, false},
		"sometimes_less": {metric{Bound: exactly, Limit: 1, Spread: spread{1, 0.9, 1}}, false},
		"no_limit":       {metric{Spread: spread{1, 1, 1}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := report{Values: []metric{{Name: "other"}, test.metric}}
			if got := r.missed() == nil; got != test.want || test.metric.met() != test.want {
				t.Errorf("met %v, want %v", got, test.want)
			}
		})
	}
}

func TestReport(t *testing.T) {
	var r report
	r.System = "some/system"
	r.add("rate", atLeast, 0.5, 0.25, 0.75, 0.125)
	r.add("bytes", noBound, 0, 1234.5)
	var out bytes.Buffer
	if err := r.write(&out, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"some/system", "| rate  | 0.25 (0.125–0.75) | at least 0.5 | NOT MET |", "| bytes | 1234 "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestSpread(t *testing.T) {
	for want, numbers := range map[spread][]float64{{}: nil, {3, 3, 3}: {3}, {2, 1, 9}: {9, 1, 2}, {2.5, 1, 4}: {3, 1, 4, 2}} {
		if got := newSpread(numbers); got != want {
			t.Errorf("%v: %v, want %v", numbers, got, want)
		}
	}
	if got := ratios([]float64{1, 9}, []float64{2, 3}); got[0] != 0.5 || got[1] != 3 {
		t.Errorf("ratios %v", got)
	}
}

// TestInvocation checks that the handler's side of the contract can read an invocation, and that its envelope has the size.
func TestInvocation(t *testing.T) {
	const url = "http://127.0.0.1:1/orders"
	for _, m := range []message{small, large, {kib: 1, mode: text}, {kib: 48, mode: text}, {kib: 1, mode: binary, delayed: true}} {
		t.Run(strings.ReplaceAll(fmt.Sprint(m, " delayed ", m.delayed), " ", "_"), func(t *testing.T) {
			raw, idAt := m.request("127.0.0.1:7071", url, time.Now())
			copy(raw[idAt:], strings.Repeat("f", idLength))
			r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				Data     struct{ Message string }
				Metadata struct {
					DequeueCount string
					Call         struct{ Body string }
				}
			}
			if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
				t.Fatal(err)
			}
			var content []byte
			if m.mode == text {
				var s string
				err = json.Unmarshal([]byte(got.Data.Message), &s)
				content = []byte(s)
			} else {
				content, err = base64.StdEncoding.DecodeString(got.Data.Message)
			}
			var envelope struct{ Call struct{ URL, Body string } }
			if err != nil || json.Unmarshal(content, &envelope) != nil || len(content) != m.contentBytes() || envelope.Call.URL != url {
				t.Errorf("error %v, envelope of %d bytes, want %d: %.200s", err, len(content), m.contentBytes(), content)
			}
			if copied := got.Metadata.Call.Body == envelope.Call.Body; copied != (m.mode == text) || got.Metadata.DequeueCount != "1" {
				t.Errorf("metadata %+v", got.Metadata)
			}
			if r.Header.Get("X-Azure-Functions-InvocationId") != strings.Repeat("f", idLength) ||
				r.Header.Get("X-Bench-Call-Bytes") != fmt.Sprint(len(envelope.Call.Body)) {
				t.Errorf("header %v", r.Header)
			}
		})
	}
}

func mustTarget(t *testing.T) *callTarget {
	t.Helper()
	s, err := newCallTarget(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.answer(http.StatusOK)
	return s
}

// newLoad returns a load whose invocations go to the target directly, so that they count as calls.
func newLoad(s *callTarget, parallel int) load {
	l := load{target: s, address: s.Addr, parallel: parallel}
	now := time.Now() // one time for both, because the number of its digits varies
	l.request, l.idAt = small.request(s.Addr, s.url(), now)
	l.callBytes = int64(len(small.invocation(s.url(), now)))
	return l
}

func TestLoad(t *testing.T) {
	for name, test := range map[string]struct {
		n      int64
		status int
		change func(*load)
		want   string
	}{
		"all":        {14, 200, func(*load) {}, ""},
		"refused":    {14, 500, func(*load) {}, "answered 500, want 200"},
		"other_size": {14, 200, func(l *load) { l.callBytes++ }, "want one of"},
		"no_calls":   {14, 200, func(l *load) { l.target = new(callTarget) }, "14 invocations led to 0 calls"},
	} {
		t.Run(name, func(t *testing.T) {
			s := mustTarget(t)
			s.answer(test.status)
			l := newLoad(s, 3)
			test.change(&l)
			n, took, err := l.run(t.Context(), times(test.n))
			if test.want == "" && (err != nil || n != test.n || took <= 0) || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%d in %v, error %v; want %q", n, took, err, test.want)
			}
		})
	}
}

func TestLoadInterrupted(t *testing.T) {
	s := mustTarget(t)
	s.behave(behavior{hang: true})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := newLoad(s, 3).run(ctx, times(3)); err == nil {
		t.Error("calls that hang were answered")
	}
}

func TestProcess(t *testing.T) {
	b := &bench{project: project, messages: t.Output(), work: t.TempDir(), target: mustTarget(t)}
	if err := b.build(t.Context(), "./handler/tools/bench/floor", "floor"); err != nil {
		t.Fatal(err)
	}
	mustStart := func(t *testing.T) *process {
		t.Helper()
		p, err := start(t.Context(), filepath.Join(b.work, "floor"), nil, "TARGET="+b.target.url())
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	t.Run("stopped", func(t *testing.T) {
		p := mustStart(t)
		if err := p.stop(); err != nil || p.started <= 0 {
			t.Errorf("started in %v, stopped with %v", p.started, err)
		}
		if conn, err := new(net.Dialer).DialContext(t.Context(), "tcp4", p.address); err == nil {
			t.Error("it still listens", conn.Close())
		}
	})
	t.Run("exited", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := start(ctx, "/bin/sh", []string{"-c", "echo no such target >&2"})
		if err == nil || !strings.Contains(err.Error(), "no answer") || !strings.Contains(err.Error(), "sh exited: no such target") {
			t.Errorf("error %v, want what the program printed", err)
		}
	})
	t.Run("load", func(t *testing.T) {
		p := mustStart(t)
		if n, _, err := b.load(p, large, 2).run(t.Context(), times(7)); err != nil || n != 7 {
			t.Errorf("%d calls, %v", n, err)
		}
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestAllRead checks that an answer counts as unread until its caller has read it.
func TestAllRead(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("measured on Linux only")
	}
	s := mustTarget(t)
	s.behave(behavior{Answer: target.Answer{Status: http.StatusOK, Length: target.Huge, Sent: sentBytes}, hang: true})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url(), strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Transport{}).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	await := func(want bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := testbed.Await(ctx, func() bool { return s.hanging.Load() == 1 && allRead(s.Addr) == want }); err != nil {
			t.Fatal(err)
		}
	}
	await(false)
	if _, err := io.CopyN(io.Discard, response.Body, sentBytes); err != nil {
		t.Fatal(err)
	}
	await(true)
	if bytes, err := memory(os.Getpid(), "VmHWM"); err != nil || bytes < 1<<20 {
		t.Errorf("peak %v, %v", bytes, err)
	}
}
