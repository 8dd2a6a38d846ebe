// Floor is the simplest possible custom handler: it reads an invocation into a reused buffer, posts as many bytes as the
// handler's call has to TARGET, and answers the Functions host that all is well. The load generator sends the number of
// bytes in a header. Floor parses no message and decides nothing, so its cost is the cost of HTTP with net/http.
// `make bench` compares the handler with it.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

// callHeader has the number of bytes of the call.
const callHeader = "X-Bench-Call-Bytes"

// maxIdlePerHost is above the number of calls in parallel, so that connections are kept.
const maxIdlePerHost = 64

func main() {
	server := &http.Server{
		Addr:              "127.0.0.1:" + os.Getenv("FUNCTIONS_CUSTOMHANDLER_PORT"),
		Handler:           newFloor(os.Getenv("TARGET")),
		ReadHeaderTimeout: time.Minute,
	}
	fmt.Fprintln(os.Stderr, "floor:", server.ListenAndServe())
	os.Exit(1)
}

// floor answers invocations.
type floor struct {
	client http.Client
	target string
	// buffers holds the buffers of invocations that were answered.
	buffers sync.Pool
}

func newFloor(target string) *floor {
	return &floor{
		client:  http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: maxIdlePerHost, DisableCompression: true}},
		target:  target,
		buffers: sync.Pool{New: func() any { return new([]byte) }},
	}
}

// ServeHTTP answers GET at once, as the handler does, and makes the call of a POST.
func (f *floor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		if err := f.deliver(r); err != nil {
			http.Error(w, "the invocation failed", http.StatusInternalServerError)
			return
		}
	}
	w.Header()["Content-Type"] = []string{"application/json"}
	_, _ = w.Write([]byte(`{}`)) // the host may have hung up
}

func (f *floor) deliver(r *http.Request) error {
	size := int(r.ContentLength)
	call, err := strconv.Atoi(r.Header.Get(callHeader))
	if err != nil || call < 0 || call > size {
		return errors.New("the length of the invocation or of its call is missing or wrong")
	}
	buffer := f.buffers.Get().(*[]byte)
	if len(*buffer) < size {
		*buffer = make([]byte, size)
	}
	if _, err := io.ReadFull(r.Body, (*buffer)[:size]); err != nil {
		return err
	}
	err = f.post(r.Context(), (*buffer)[:call])
	if err == nil {
		f.buffers.Put(buffer) // the target reads the body to its end before it answers, so nothing else reads it now
	}
	return err
}

// post makes the call and reads the answer to its end, so that the connection is kept.
func (f *floor) post(ctx context.Context, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.target, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "text/plain")
	response, err := f.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err
}
