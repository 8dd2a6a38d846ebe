package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"asynccaller/handler/tools/testbed"
)

// TestOwnProcess: the real files have the form that the parsers expect.
func TestOwnProcess(t *testing.T) {
	_, err := cpuTime("self")
	now, peak, memoryErr := memory("self")
	if err := errors.Join(err, memoryErr); err != nil {
		t.Fatal(err)
	}
	if now <= 0 || peak < now/2 || most() <= 0 {
		t.Errorf("memory %d, at most %d, %d calls", now, peak, most())
	}
}

// TestAllRead: what a target has sent waits until its caller has read it.
func TestAllRead(t *testing.T) {
	target := newTarget()
	t.Cleanup(target.close)
	target.behave(manner{status: http.StatusOK, announced: gib, sent: answeredBytes, hang: true})
	waiting := func() int64 {
		sockets, err := readProc("self", "net/tcp")
		if err != nil {
			t.Fatal(err)
		}
		bytes, err := parseWaiting(sockets, target.port())
		if err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	body := call(t, target).body
	await(t, func() bool { return waiting() > answeredBytes/2 }) // all but what the client reads ahead
	if _, err := io.CopyN(io.Discard, body, answeredBytes); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return waiting() == 0 })
}

func await(t *testing.T, seen func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := testbed.Await(ctx, seen); err != nil {
		t.Fatal(err)
	}
}
