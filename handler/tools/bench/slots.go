//go:build unix

package main

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"asynccaller/handler/tools/target"
	"asynccaller/handler/tools/testbed"
)

const (
	// smallLimit is the handler's memory limit on an instance of 512 MB (serve.TuneMemory).
	smallLimit = "256MiB"
	// smallMiB leaves room for what does not count for that limit, as the executable does not.
	smallMiB = 256 + 24
)

// measureSlots measures the memory of a handler with the limit of a small instance at its largest: it makes as many calls as
// it ever does, by https and with the largest message, and their target stalls within long answers. Then all answers end
// at once, and all messages are rescheduled at once.
func (b *bench) measureSlots(ctx context.Context, r *report, calls int) error {
	server := httptest.NewTLSServer(b.target)
	defer server.Close()
	trusted := filepath.Join(b.work, "certificate.pem")
	if err := os.WriteFile(trusted, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		return err
	}
	b.say("memory: %d calls by https, limit %s", calls, smallLimit)
	var stalled, rescheduled []float64
	for range min(b.rounds, freshProcesses) {
		until := make(chan struct{})
		b.target.behave(behavior{Answer: target.Answer{Status: http.StatusServiceUnavailable, Sent: sentBytes}, hang: true, until: until})
		err := b.withHandler(ctx, b.azurite.ConnectionString, func(p *process) error {
			before, after, err := b.fill(ctx, p, server, calls, until)
			stalled, rescheduled = append(stalled, before), append(rescheduled, after)
			return err
		}, "GOMEMLIMIT="+smallLimit, "GOGC=600", "SSL_CERT_FILE="+trusted) // 600 as with serve.TuneMemory
		if err != nil {
			return fmt.Errorf("%d calls by https: %w", calls, err)
		}
	}
	r.add(fmt.Sprintf("memory, MiB: %d calls by https, %v", calls, large), atMost, smallMiB, stalled...)
	r.add("memory, MiB: all of them rescheduled at once", atMost, smallMiB, rescheduled...)
	return nil
}

// fill returns the peak of a handler's memory in MiB when all calls stall, and when all messages have been rescheduled.
func (b *bench) fill(ctx context.Context, p *process, server *httptest.Server, calls int, until chan struct{}) (stalled, rescheduled float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, holdLimit)
	defer cancel()
	posted := make(chan error, 1)
	go func() {
		defer cancel() // calls that do not stall end the wait
		_, _, err := b.loadTo(p, large, calls, server.URL).run(ctx, times(int64(calls)))
		posted <- err
	}()
	address := server.Listener.Addr().String()
	waited := testbed.Await(ctx, func() bool { return b.target.hanging.Load() == int64(calls) && allRead(address) })
	stalled, err = memory(p.pid(), "VmHWM")
	close(until)
	err = errors.Join(waited, err, <-posted)
	rescheduled, errAfter := memory(p.pid(), "VmHWM")
	return stalled / (1 << 20), rescheduled / (1 << 20), errors.Join(err, errAfter)
}
