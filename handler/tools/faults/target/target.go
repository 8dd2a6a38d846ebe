// Package target is a server that plays targets and senders. It answers by script, in all the ways in
// which HTTP can go wrong, and lets somebody interfere before, during and after each call.
package target

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"asynccaller/handler/tools/faults/door"
	"asynccaller/handler/tools/faults/schedule"
)

// Call is a call that arrived.
type Call struct {
	// ID is the message's; that of a callback ends with [schedule.CallbackSuffix].
	ID string
	// Attempt is the handler's number for it.
	Attempt int
	// Told is the status that a callback reports; 0 for other calls.
	Told int
}

// Partner decides how calls are answered. Its methods are called by many goroutines at once; one that
// reports false has the connection cut.
type Partner interface {
	// Arrived is called when a call's header has arrived and the target knows nothing of it yet.
	Arrived(c Call) bool
	// Answer is called when the target has the whole call; it says what it answers.
	Answer(c Call) (schedule.Word, bool)
	// Answered is called when the answer is on its way.
	Answered(c Call)
}

// Target is a running server.
type Target struct {
	*door.Door
	partner Partner
}

// Open starts a target on a free port.
func Open(ctx context.Context, partner Partner) (*Target, error) {
	t := &Target{partner: partner}
	mux := http.NewServeMux()
	mux.HandleFunc("/call/{id}", func(w http.ResponseWriter, r *http.Request) { t.answer(w, r, r.PathValue("id")) })
	mux.HandleFunc("/callback/{id}", func(w http.ResponseWriter, r *http.Request) {
		t.answer(w, r, r.PathValue("id")+schedule.CallbackSuffix)
	})
	var err error
	t.Door, err = door.Open(ctx, mux)
	return t, err
}

// CallURL is where a message's call goes; CallbackURL where its sender wants to be told.
func (t *Target) CallURL(id string) string { return "http://" + t.Addr + "/call/" + id }

// CallbackURL is where a message's sender wants to be told.
func (t *Target) CallbackURL(id string) string { return "http://" + t.Addr + "/callback/" + id }

// IDOf is the id of the message whose call, or callback, goes to a URL; empty when it is none of ours.
func IDOf(rawURL string) string {
	if _, id, ok := strings.Cut(rawURL, "/callback/"); ok {
		return id + schedule.CallbackSuffix
	}
	_, id, _ := strings.Cut(rawURL, "/call/")
	return id
}

// maxCallBytes is above what a message can hold.
const maxCallBytes = 1 << 20

func (t *Target) answer(w http.ResponseWriter, r *http.Request, id string) {
	attempt, _ := strconv.Atoi(r.Header.Get("X-Async-Caller-Attempt")) // 0 when it is missing, which no attempt is
	call := Call{ID: id, Attempt: attempt}
	if !t.partner.Arrived(call) {
		door.Cut(w)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxCallBytes))
	if err != nil {
		door.Cut(w)
		return
	}
	if strings.HasSuffix(id, schedule.CallbackSuffix) {
		var told struct{ StatusCode int }
		_ = json.Unmarshal(body, &told) // 0 is a status that nobody planned
		call.Told = told.StatusCode
	}
	word, ok := t.partner.Answer(call)
	if !ok {
		door.Cut(w)
		return
	}
	say(w, r, word)
	t.partner.Answered(call)
}

// say answers as the word wants it.
func say(w http.ResponseWriter, r *http.Request, word schedule.Word) {
	switch word {
	case schedule.Reset:
		door.Cut(w)
	case schedule.Hang:
		<-r.Context().Done() // the caller has left, or the server is closed
	case schedule.Close:
		write(w, "")
	case schedule.HalfHead:
		write(w, "HTTP/1.1 200 OK\r\nContent-Ty")
	case schedule.HalfBody503:
		write(w, "HTTP/1.1 503 Busy\r\nContent-Length: 1000\r\n\r\nnot all")
	case schedule.HalfBody200:
		write(w, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nnot all")
	case schedule.Garbage:
		write(w, "\x00\x16\x03\x01 this is not HTTP\r\n\r\n\xff\xfe")
	case schedule.DripHead:
		drip(w, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	case schedule.DripBody200:
		w.Header().Set("Content-Length", "600")
		w.WriteHeader(http.StatusOK)
		dripBody(w, r)
	case schedule.Huge200:
		huge(w)
	default:
		status, err := strconv.Atoi(string(word))
		if err != nil {
			status = http.StatusInternalServerError
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, `{"said":true}`)
		_ = http.NewResponseController(w).Flush() // what comes after happens when the answer is out
	}
}

// write writes raw text and closes the connection.
func write(w http.ResponseWriter, text string) {
	conn, ok := door.Take(w)
	if !ok {
		return
	}
	_, _ = io.WriteString(conn, text) // the caller may have left
	_ = conn.Close()
}

// dripPause makes an answer of 1 byte a second.
const dripPause = time.Second

// drip writes raw text slowly, until the caller leaves.
func drip(w http.ResponseWriter, text string) {
	conn, ok := door.Take(w)
	if !ok {
		return
	}
	defer func() { _ = conn.Close() }()
	for i := range len(text) {
		if _, err := io.WriteString(conn, text[i:i+1]); err != nil || left(conn) {
			return
		}
	}
}

// left waits a drip and reports whether the other side has closed the connection meanwhile.
func left(conn net.Conn) bool {
	_ = conn.SetReadDeadline(time.Now().Add(dripPause))
	_, err := conn.Read(make([]byte, 1))
	timeout, ok := err.(net.Error) //nolint:errorlint // net.Conn returns it as it is
	return err != nil && (!ok || !timeout.Timeout())
}

func dripBody(w http.ResponseWriter, r *http.Request) {
	ticker := time.NewTicker(dripPause)
	defer ticker.Stop()
	for {
		if _, err := io.WriteString(w, "x"); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush() // an error shows at the next write
		select {
		case <-ticker.C:
		case <-r.Context().Done():
			return
		}
	}
}

// hugeBytes is the length of a huge answer: 1 GiB.
const hugeBytes = 1 << 30

// huge writes until all is written or, sooner, the caller has had enough.
func huge(w http.ResponseWriter) {
	w.Header().Set("Content-Length", strconv.Itoa(hugeBytes))
	w.WriteHeader(http.StatusOK)
	block := make([]byte, 1<<20)
	for range hugeBytes / len(block) {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}
