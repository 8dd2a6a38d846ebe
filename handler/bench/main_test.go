package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// project is the project's folder, from this one.
const project = "../.."

// TestRun measures everything once, shortly: the numbers mean nothing, but all are there.
func TestRun(t *testing.T) {
	var out, talk bytes.Buffer
	o := options{short: true, rounds: 1, time: 100 * time.Millisecond, json: true}
	if err := run(t.Context(), project, o, &out, &talk); err != nil {
		t.Fatalf("%v\n%s", err, talk.String())
	}
	var r report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Cells) != len(cells(true)) {
		t.Errorf("%d cells", len(r.Cells))
	}
	for _, c := range r.Cells {
		wantStorage := map[int]float64{200: 0, 503: 1}[c.Status]
		if c.Floor.Rate.Median <= 0 || c.Product.P99.Median <= 0 || c.RateRatio.Median <= 0 || c.Storage != wantStorage {
			t.Errorf("%v: %+v", c.cell, c)
		}
	}
	if r.Start.Floor.Median <= 0 || r.Start.Product.Median <= 0 || r.Connections < 1 || r.ProductBytes <= r.FloorBytes {
		t.Errorf("%+v", r)
	}
	for _, h := range r.Held {
		if h.Product <= 0 || h.Floor <= 0 {
			t.Errorf("memory of a call in flight: %+v", h)
		}
	}
}

func TestRunElsewhere(t *testing.T) {
	err := run(t.Context(), t.TempDir(), options{}.complete(), io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "project's folder") {
		t.Errorf("error %v, want where to run", err)
	}
}

// newFloor builds the floor.
func newFloor(t *testing.T, env ...string) program {
	t.Helper()
	p := program{name: "floor", executable: filepath.Join(t.TempDir(), "floor"), env: env}
	if err := build(t.Context(), project, "./handler/bench/floor", p.executable, io.Discard); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProcess(t *testing.T) {
	target := newTarget()
	t.Cleanup(target.close)
	p := newFloor(t, "TARGET="+target.url())
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
	_, err := newFloor(t).start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "TARGET must be set") {
		t.Errorf("error %v, want what the program said", err)
	}
}
