package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"asynccaller/handler/tools/freeport"
	"asynccaller/handler/tools/testbed"
)

// unusedAddress returns an address without a listener.
func unusedAddress(tb testing.TB) string {
	tb.Helper()
	address, err := freeport.Address(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return address
}

// handler is `async-caller serve` without a host: the test posts the invocations and reads the log, or does not.
type handler struct {
	t       testing.TB
	command *exec.Cmd
	url     string
	client  *http.Client
}

// serve starts the handler in the app folder, with both outputs to one writer, and waits until it answers.
func (f *fixture) serve(t *testing.T, output io.Writer, env ...string) *handler {
	t.Helper()
	return serveIn(t, f.app, output, env...)
}

func serveIn(tb testing.TB, app string, output io.Writer, env ...string) *handler {
	tb.Helper()
	_, port, _ := net.SplitHostPort(unusedAddress(tb))
	h := &handler{
		t: tb, url: "http://127.0.0.1:" + port + "/", command: exec.CommandContext(tb.Context(), executable, "serve"),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: patience},
	}
	h.command.Dir, h.command.Stdout, h.command.Stderr = app, output, output
	h.command.Env = append(os.Environ(), "FUNCTIONS_CUSTOMHANDLER_PORT="+port, "ASYNC_CALLER_TARGETS_ALLOW=127.0.0.1,*")
	h.command.Env = append(h.command.Env, env...)
	if err := h.command.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = h.command.Process.Kill()
		_ = h.command.Wait()
		h.client.CloseIdleConnections()
	})
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	if err := testbed.Await(ctx, h.answers); err != nil {
		tb.Fatalf("the handler does not answer: %v", err)
	}
	return h
}

// answers reports whether the handler answers GET /.
func (h *handler) answers() bool {
	request, err := http.NewRequestWithContext(h.t.Context(), http.MethodGet, h.url, http.NoBody)
	if err != nil {
		return false
	}
	response, err := h.client.Do(request)
	return err == nil && response.Body.Close() == nil
}

// invoke posts the invocation of an envelope as the Functions host does, and returns the status and the body of the
// answer.
func (h *handler) invoke(envelope string) (int, string) {
	h.t.Helper()
	return h.post(envelope, `{"DequeueCount":"1","Id":"\"0b6aa4b6-1b4c-4f07-9e0d-1a2f0c9f4a11\""}`)
}

// post posts an invocation with these metadata.
func (h *handler) post(envelope, metadata string) (int, string) {
	h.t.Helper()
	body := fmt.Sprintf(`{"Data":{"message":%q},"Metadata":%s}`,
		base64.StdEncoding.EncodeToString([]byte(envelope)), metadata)
	request, err := http.NewRequestWithContext(h.t.Context(), http.MethodPost, h.url+"AC-standard",
		strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json; charset=utf-8")
	request.Header.Set("X-Azure-Functions-InvocationId", "2f3c0a3e-6c0f-4d55-8b5a-52e3c0b8a001")
	response, err := h.client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

// invokeAll posts an envelope many times, from eight connections, and returns how many invocations succeeded.
func (h *handler) invokeAll(envelope string, times int64) int64 {
	var posted, succeeded atomic.Int64
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for posted.Add(1) <= times {
				if status, _ := h.invoke(envelope); status == http.StatusOK {
					succeeded.Add(1)
				}
			}
		})
	}
	group.Wait()
	return succeeded.Load()
}

func connection(connectionString string) string { return "AzureWebJobsStorage=" + connectionString }

func envelopeTo(url string) string {
	return fmt.Sprintf(`{"asyncCaller":1,"requestId":"r1","retry":{"schedule":["1m"]},"call":{"url":%q}}`, url)
}

// TestUnreadLog checks that a host that does not read the handler's output, or does not any more, gets all its answers,
// and that the handler stops nevertheless.
func TestUnreadLog(t *testing.T) {
	needsHost(t, "the handler runs alone")
	t.Parallel()
	const invocations = 400 // more lines than a pipe holds
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(target.Close)
	f := newFixture(t, options{})
	for _, name := range []string{"never_read", "reader_gone"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			output, write, err := os.Pipe()
			f.must(err)
			t.Cleanup(func() { _ = output.Close() })
			h := f.serve(t, write, connection(f.connectionString))
			f.must(write.Close())
			if name == "reader_gone" {
				f.must(output.Close())
			}
			if n := h.invokeAll(envelopeTo(target.URL), invocations); n != invocations {
				t.Fatalf("%d of %d invocations succeeded", n, invocations)
			}
			began := time.Now()
			f.must(h.command.Process.Signal(syscall.SIGTERM))
			if err := h.command.Wait(); err == nil || h.command.ProcessState.ExitCode() != 1 ||
				time.Since(began) > 20*time.Second {
				t.Errorf("after SIGTERM the handler ended after %v: %v, want exit status 1", time.Since(began), err)
			}
		})
	}
}

// TestHostGoneAtTheStart checks that a handler ends with its host even if the host ended before the handler could watch
// it: the log of a handler that a host has started leads nowhere then.
func TestHostGoneAtTheStart(t *testing.T) {
	needsHost(t, "the handler runs alone")
	t.Parallel()
	f := newFixture(t, options{})
	output, write, err := os.Pipe()
	f.must(err)
	h := f.serve(t, write, connection(f.connectionString), "FUNCTIONS_CUSTOMHANDLER_WORKER_ID=1")
	f.must(errors.Join(write.Close(), output.Close()))
	h.invoke(envelopeTo("http://127.0.0.1:1/")) // which logs
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = h.command.Wait() // by a signal
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the handler has not ended")
	}
}

// TestUnaskedAnswers checks that the bytes that a target sends without being asked, which net/http prints, do not reach
// the handler's output.
func TestUnaskedAnswers(t *testing.T) {
	needsHost(t, "the handler runs alone")
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	closed := make(chan struct{}, 1)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				in := bufio.NewReader(conn)
				if _, err := http.ReadRequest(in); err == nil {
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
					time.AfterFunc(200*time.Millisecond,
						func() { _, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nX: C4nary\r\n\r\n") })
					_, _ = in.ReadByte() // until the handler closes the connection
					closed <- struct{}{}
				}
			}()
		}
	}()
	f := newFixture(t, options{})
	var output bytes.Buffer
	h := f.serve(t, &output, connection(f.connectionString))
	if status, text := h.invoke(envelopeTo("http://" + listener.Addr().String())); status != http.StatusOK {
		t.Errorf("answered %d %s", status, text)
	}
	<-closed
	f.must(h.command.Process.Signal(os.Interrupt))
	_ = h.command.Wait()
	if text := output.String(); strings.Contains(text, "C4nary") || !strings.Contains(text, "settled") {
		t.Errorf("printed %s", text)
	}
}
