// Floor is the least that a custom handler can do with plain net/http: it takes an invocation into a buffer
// that it has used before, posts as many bytes as the product's call has to TARGET on a connection that is
// kept, with the one header that the sender asks for, and tells the Functions host that all is well. When
// the target is busy and STORAGE is set, it posts as many bytes as the product's Put Message has to there.
// How many that is the load tells in the headers of the invocation. It reads no message and decides nothing,
// so what it costs is what HTTP costs. `make bench` measures the product beside it; it is no part of the
// product.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	portName    = "FUNCTIONS_CUSTOMHANDLER_PORT"
	targetName  = "TARGET"
	storageName = "STORAGE"
	// callHeader and putHeader tell how many bytes the call and the put have.
	callHeader = "X-Bench-Call-Bytes"
	putHeader  = "X-Bench-Put-Bytes"
	// maxInvocationBytes is the handler's own limit.
	maxInvocationBytes = 2 << 20
	readHeaderTimeout  = 30 * time.Second
	// maxIdlePerHost keeps the connections of 256 calls at a time, the most that is measured.
	maxIdlePerHost = 512
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Getenv)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

// run answers until ctx ends, and then ends at once.
func run(ctx context.Context, getenv func(string) string) error {
	port, target, storage := getenv(portName), getenv(targetName), getenv(storageName)
	if port == "" || target == "" {
		return fmt.Errorf("%s and %s must be set: `make bench` does", portName, targetName)
	}
	for name, address := range map[string]string{targetName: target, storageName: storage} {
		if u, err := url.Parse(address); address != "" && (err != nil || u.Host == "") {
			return fmt.Errorf("%s is not a URL", name)
		}
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return fmt.Errorf("listening for invocations: %w", err)
	}
	server := &http.Server{Handler: newFloor(target, storage), ReadHeaderTimeout: readHeaderTimeout}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("answering invocations: %w", err)
	}
	return nil
}

// floor answers invocations.
type floor struct {
	client http.Client
	// storage is empty where nothing is rescheduled.
	target, storage string
	// buffers has the bytes of invocations that were answered.
	buffers sync.Pool
}

func newFloor(target, storage string) *floor {
	return &floor{
		client:  http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: maxIdlePerHost, DisableCompression: true}},
		target:  target,
		storage: storage,
		buffers: sync.Pool{New: func() any { return new([]byte) }},
	}
}

// ServeHTTP answers GET at once, as the handler does, and makes the call of a POST. Whatever status the
// target answers is a success: the product settles every one of them.
func (f *floor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		if err := f.deliver(r); err != nil {
			http.Error(w, "the invocation failed", http.StatusInternalServerError)
			return
		}
	}
	w.Header()["Content-Type"] = []string{"application/json"}
	_, _ = w.Write([]byte(`{"Logs":[]}`)) // a host that hung up has nobody to tell
}

func (f *floor) deliver(r *http.Request) error {
	size, call, put := int(r.ContentLength), length(r, callHeader), length(r, putHeader)
	if size < 0 || max(size, call, put) > maxInvocationBytes {
		return errors.New("no length, or too long")
	}
	buffer := f.buffers.Get().(*[]byte)
	if len(*buffer) < max(size, call, put) {
		*buffer = make([]byte, max(size, call, put))
	}
	if _, err := io.ReadFull(r.Body, (*buffer)[:size]); err != nil {
		return err
	}
	status, err := f.post(r.Context(), f.target, (*buffer)[:call])
	if err == nil && status >= http.StatusInternalServerError && f.storage != "" {
		_, err = f.post(r.Context(), f.storage, (*buffer)[:put])
	}
	if err == nil {
		f.buffers.Put(buffer) // both sides read a body to its end before they answer: nobody else reads it now
	}
	return err
}

// length is what a header of the load's tells; 0 where it tells nothing.
func length(r *http.Request, header string) int {
	n, _ := strconv.Atoi(r.Header.Get(header))
	return max(n, 0)
}

// post sends one request and reads its answer to the end, so that the connection can be used again.
func (f *floor) post(ctx context.Context, to string, body []byte) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "text/plain")
	response, err := f.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}
