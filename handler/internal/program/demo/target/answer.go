package target

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Answer describes how a call is answered.
type Answer struct {
	// Status is the status that the caller sees; 0 for none.
	Status int
	// Body is sent with the status.
	Body string
	// RetryAfter is sent as the header Retry-After, unless it is empty.
	RetryAfter string
	// Length is the Content-Length of a body of filler; 0 sends it in chunks. Sent is how many bytes of it are sent.
	Length, Sent int64
	// Raw and Drip replace the HTTP response if Then is Close: Raw is sent at once, then Drip at one byte a second.
	Raw, Drip string
	Then      End
}

// End is how an answer ends.
type End int

// The ways to end an answer.
const (
	Finish End = iota // the connection is kept, unless less was sent than announced
	Hang              // nothing more is sent, until the caller closes the connection
	Close             // the connection is closed (FIN)
	Reset             // the connection is reset (RST)
)

// Huge is the length of a huge answer.
const Huge = 1 << 30

// named are the answers that are not a status. In those that end with a status, the caller sees that status.
var named = map[string]Answer{
	"reset":         {Then: Reset},
	"close":         {Then: Close},
	"hang":          {Then: Hang},
	"half-head":     {Raw: "HTTP/1.1 200 OK\r\nContent-Ty", Then: Close},
	"half-body-503": {Status: 503, Length: 1000, Sent: 7},
	"half-body-200": {Status: 200, Length: 1000, Sent: 7},
	"garbage":       {Raw: "\x00\x16\x03\x01 this is not HTTP\r\n\r\n\xff\xfe", Then: Close},
	"drip-head":     {Drip: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Then: Close},
	"drip-body-200": {
		Status: 200, Raw: "HTTP/1.1 200 OK\r\nContent-Length: 600\r\n\r\n",
		Drip: strings.Repeat("x", 600), Then: Close,
	},
	"later-429": {Status: 429, RetryAfter: "30"},
	"huge-200":  {Status: 200, Length: Huge, Sent: Huge},
}

// Parse returns the answer with a name: a status, or one of reset, close, hang, half-head, half-body-503,
// half-body-200, garbage, drip-head, drip-body-200, later-429 and huge-200.
func Parse(name string) (Answer, error) {
	if a, ok := named[name]; ok {
		return a, nil
	}
	status, err := strconv.Atoi(name)
	if err != nil || status < 200 || status > 999 {
		return Answer{}, fmt.Errorf("answer %q: neither a status nor a known name", name)
	}
	return Answer{Status: status, Body: fmt.Sprintf(`{"status":%d}`, status)}, nil
}

// Write answers a request whose body has been read to its end.
func (a Answer) Write(w http.ResponseWriter, r *http.Request) {
	switch a.Then {
	case Reset:
		ResetConnection(w)
	case Close:
		a.writeRaw(w)
	case Finish:
		a.writeHTTP(w)
	case Hang:
		if a.Status != 0 {
			a.writeHTTP(w)
			_ = http.NewResponseController(w).Flush() // the context ends if the caller has left
		}
		<-r.Context().Done()
	}
}

func (a Answer) writeHTTP(w http.ResponseWriter) {
	if a.Length > 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(a.Length, 10))
	}
	if a.RetryAfter != "" {
		w.Header().Set("Retry-After", a.RetryAfter)
	}
	if a.Body != "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(a.Status)
	_, _ = io.WriteString(w, a.Body) // 204 has none; otherwise the caller has left
	block := make([]byte, min(a.Sent, 32<<10))
	for left := a.Sent; left > 0; {
		n, err := w.Write(block[:min(left, int64(len(block)))])
		if err != nil {
			return // the caller has left
		}
		left -= int64(n)
	}
}

// dripPause makes an answer of one byte a second.
const dripPause = time.Second

func (a Answer) writeRaw(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // the caller has left
	}
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, a.Raw)
	for i := 0; i < len(a.Drip) && err == nil; i++ {
		_, err = io.WriteString(conn, a.Drip[i:i+1])
		if err == nil {
			err = waitForClose(conn)
		}
	}
}

// waitForClose waits for a pause, or until the caller closes the connection: that is an error.
func waitForClose(conn net.Conn) error {
	_ = conn.SetReadDeadline(time.Now().Add(dripPause))
	_, err := conn.Read(make([]byte, 1))
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		return nil
	}
	return err
}
