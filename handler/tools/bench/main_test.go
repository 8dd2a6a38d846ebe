package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// project is the project's folder, from this one.
const project = "../../.."

// TestRun measures everything once, shortly: the numbers mean nothing, but all are there.
func TestRun(t *testing.T) {
	var out, talk bytes.Buffer
	o := options{short: true, rounds: 1, time: 100 * time.Millisecond, azurite: true, json: true, strict: true}
	runErr := run(t.Context(), project, o, &out, &talk)
	var r report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v, %v\n%s", runErr, err, talk.String())
	}
	if want := missed(r.Limits); fmt.Sprint(runErr) != fmt.Sprint(want) {
		t.Errorf("error %v, want %v", runErr, want)
	}
	if len(r.Cells) != len(cells(true)) {
		t.Errorf("%d cells", len(r.Cells))
	}
	for _, c := range r.Cells {
		wantStorage := map[int]float64{200: 0, 503: 1}[c.Status]
		if c.Floor.Rate.Median <= 0 || c.Product.P99.Median <= 0 || c.RateRatio.Median <= 0 {
			t.Errorf("%v: %+v", c.cell, c)
		}
		if c.Storage != wantStorage || c.FloorStorage != wantStorage {
			t.Errorf("%v: %v storage transactions, the floor %v; want %v", c.cell, c.Storage, c.FloorStorage, wantStorage)
		}
	}
	if r.Start.Floor.Median <= 0 || r.Start.Product.Median <= 0 || r.Connections < 1 || r.ProductBytes <= r.FloorBytes || r.DeadLetter != 1 {
		t.Errorf("%+v", r)
	}
	if len(r.Reschedule) == 0 {
		t.Error("nothing was rescheduled into Azurite")
	}
	for _, p := range r.Reschedule {
		if p.SDK.Median <= 0 || p.Product.Median <= 0 || p.Ratio.Median <= 0 {
			t.Errorf("reschedule into Azurite: %+v", p)
		}
	}
	if diff := cmp.Diff([]counted{{200, roundMessages, 0}, {503, roundMessages, 1}, {400, roundMessages, 1}}, r.Counted); diff != "" {
		t.Errorf("storage transactions before Azurite: %s", diff)
	}
	if most() > 0 {
		checkMemory(t, r)
	}
}

func checkMemory(t *testing.T, r report) {
	t.Helper()
	if len(r.Held) != len(inFlight(true)) || len(r.Answering) != 2 || len(r.Peaks) != 3 {
		t.Errorf("held %v, answering %v, peaks %v", r.Held, r.Answering, r.Peaks)
	}
	for _, h := range r.Held {
		if h.Product.Median <= 0 || h.Floor.Median <= 0 || h.Calls < 1 {
			t.Errorf("memory of a call in flight: %+v", h)
		}
	}
	for _, a := range r.Answering {
		// Less, and the target has stalled before it answered.
		if a.Added.Median < answeredBytes/2 {
			t.Errorf("an answer of 1 GiB adds %v bytes: nothing was read of it", a.Added.Median)
		}
	}
	for _, p := range r.Peaks {
		if p.Product.Median <= r.Idle.Product.Min || (p.Floor.Median <= 0) != (p.Answer > 0) {
			t.Errorf("peak memory: %+v, idle %+v", p, r.Idle)
		}
	}
}

func TestRunElsewhere(t *testing.T) {
	err := run(t.Context(), t.TempDir(), options{}.complete(), io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "project's folder") {
		t.Errorf("error %v, want where to run", err)
	}
}

// newFloorProgram builds the floor.
func newFloorProgram(t *testing.T, env ...string) program {
	t.Helper()
	p := program{name: floorName, executable: filepath.Join(t.TempDir(), "floor"), env: env}
	if err := build(t.Context(), project, "./handler/tools/bench/floor", p.executable, io.Discard); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProcess(t *testing.T) {
	target := newTarget()
	t.Cleanup(target.close)
	p := newFloorProgram(t, "TARGET="+target.url())
	t.Run("stopped", func(t *testing.T) {
		r, err := p.start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if r.started <= 0 {
			t.Errorf("started in %v", r.started)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if conn, err := new(net.Dialer).DialContext(t.Context(), "tcp4", r.address); err == nil {
			t.Error("it answers after it was stopped", conn.Close())
		}
	})
	t.Run("ended_by_itself", func(t *testing.T) {
		r, err := p.start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := r.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-r.ended
		if err := r.stop(); err == nil || !strings.Contains(err.Error(), "floor ended by itself") {
			t.Errorf("error %v, want that it ended", err)
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := p.start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		<-r.ended
		if err := r.stop(); err != nil {
			t.Errorf("%v, though the run was interrupted", err)
		}
	})
}

func TestProcessThatCannotStart(t *testing.T) {
	_, err := newFloorProgram(t).start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "TARGET must be set") {
		t.Errorf("error %v, want what the program said", err)
	}
}
