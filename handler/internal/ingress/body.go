package ingress

import (
	"bytes"
	"fmt"
	"net/http"
	"sync"
)

// maxPooled is the size of the largest buffer that is used again: a rare giant must not be kept for ever.
const maxPooled = 512 << 10

// buffers are for what the host sends. A message is decoded out of it, so the buffer is free before the call
// is made, which may take minutes.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func takeBuffer() *bytes.Buffer { return buffers.Get().(*bytes.Buffer) }

func giveBack(buffer *bytes.Buffer) {
	if buffer.Cap() <= maxPooled {
		buffer.Reset()
		buffers.Put(buffer)
	}
}

// readInvocation reads and parses the body of the host's POST.
func readInvocation(w http.ResponseWriter, r *http.Request, binding string, withLease bool) (invocation, error) {
	buffer := takeBuffer()
	defer giveBack(buffer)
	body := r.Body
	if 0 <= r.ContentLength && r.ContentLength <= maxInvocationBytes { // under func start; net/http reads no more
		buffer.Grow(int(r.ContentLength) + bytes.MinRead)
	} else { // in Azure, where the length is not told, and for what is too long
		body = http.MaxBytesReader(w, body, maxInvocationBytes)
	}
	if _, err := buffer.ReadFrom(body); err != nil {
		return invocation{}, fmt.Errorf("reading the invocation: %w", err)
	}
	return parseInvocation(buffer.Bytes(), binding, withLease)
}
