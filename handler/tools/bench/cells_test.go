package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// newFloorBed is a bed whose product is a second floor, which puts back only where it has a storage.
func newFloorBed(t *testing.T, storing bool) *bed {
	t.Helper()
	b := &bed{target: newTarget(), storage: newStorage(), floorStorage: newStorage()}
	t.Cleanup(func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	})
	target := "TARGET=" + b.target.url()
	b.floorProgram = newFloorProgram(t, target, "STORAGE="+b.floorStorage.messages("q"))
	b.productProgram = b.floorProgram
	b.productProgram.name, b.productProgram.env = productName, []string{target}
	if storing {
		b.productProgram.env = append(b.productProgram.env, "STORAGE="+b.storage.messages("q"))
	}
	if err := b.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestMeasure(t *testing.T) {
	b := newFloorBed(t, true)
	for name, test := range map[string]struct {
		cell    cell
		storage float64
	}{
		"delivered":  {cell{1, modeBinary, 2, http.StatusOK}, 0},
		"reschedule": {cell{48, modeText, 2, http.StatusServiceUnavailable}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			const rounds = 2
			m, err := b.measure(t.Context(), test.cell, rounds, 20*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			if m.cell != test.cell || m.Rounds != rounds || m.Storage != test.storage || m.FloorStorage != test.storage {
				t.Errorf("%v: %d rounds, want %d; %v and %v storage transactions, want %v", m.cell, m.Rounds, rounds, m.Storage, m.FloorStorage, test.storage)
			}
			if m.RateRatio.Min <= 0 || m.Floor.P99.Min <= 0 || m.Product.P50.Min <= 0 || m.P99Added == (spread{}) {
				t.Errorf("%+v", m)
			}
		})
	}
}

func TestAlternate(t *testing.T) {
	var order strings.Builder
	err := alternate(3,
		func() error { order.WriteString("a"); return nil },
		func() error { order.WriteString("b"); return nil },
	)
	if err != nil || order.String() != "abbaab" {
		t.Errorf("%s, %v, want each first in every second round", order.String(), err)
	}
	for name, test := range map[string]struct{ a, b error }{"first": {io.EOF, nil}, "second": {nil, io.EOF}} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			err := alternate(2, func() error { calls++; return test.a }, func() error { calls++; return test.b })
			if !errors.Is(err, io.EOF) || calls > 2 {
				t.Errorf("error %v after %d calls, want it to end with the first error", err, calls)
			}
		})
	}
}

// TestMeasureRefuses: numbers of something else than what is measured end the run.
func TestMeasureRefuses(t *testing.T) {
	b := newFloorBed(t, false)
	busy := cell{1, modeBinary, 2, http.StatusServiceUnavailable}
	t.Run("not_reschedule", func(t *testing.T) {
		_, err := b.measure(t.Context(), busy, 1, 20*time.Millisecond)
		if err == nil || !strings.Contains(err.Error(), "not written to storage") {
			t.Errorf("error %v, want that nothing was rescheduled", err)
		}
	})
	t.Run("other_bytes", func(t *testing.T) {
		taken := cell{1, modeBinary, 2, http.StatusOK}
		want := b.callSizes(taken)
		b.target.answer(http.StatusOK)
		var s series
		if err := b.round(t.Context(), b.product, taken, want, 20*time.Millisecond, &s); err != nil || s.answered == 0 || len(s.rate) != 1 {
			t.Fatalf("%v, %+v", err, s)
		}
		want.put = 100
		err := b.round(t.Context(), b.product, taken, want, 20*time.Millisecond, &s)
		if err == nil || !strings.Contains(err.Error(), "product, 1 KiB binary, 2, 200: 0 bytes reschedule") {
			t.Errorf("error %v, want what is missing", err)
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := b.measure(ctx, busy, 1, time.Second); err == nil {
			t.Error("it measured on")
		}
	})
}

// TestHold: fresh processes, with calls that hang, and with answers that stall.
func TestHold(t *testing.T) {
	if most() == 0 {
		t.Log("the system does not tell of memory")
		return
	}
	b := newFloorBed(t, false)
	h, err := b.holding(t.Context(), newHeld(20, 48), 2)
	if err != nil {
		t.Fatal(err)
	}
	if h.Floor.Min <= 0 || h.Product.Min <= 0 || b.target.hanging.Load() != 0 {
		t.Errorf("%+v, %d still hang", h, b.target.hanging.Load())
	}
	if _, err := b.hold(t.Context(), b.floorProgram, newHeld(5, 1), manner{status: 200, sent: 1000, hang: true}); err != nil {
		t.Error(err)
	}
	p, err := b.peaking(t.Context(), peak{KiB: 1}, 1, 20*time.Millisecond)
	if err != nil || p.Floor.Median <= 0 || p.Product.Median <= 0 {
		t.Errorf("%+v, %v", p, err)
	}
}
