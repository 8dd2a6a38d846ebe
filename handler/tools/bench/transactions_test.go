package main

import (
	"net/http"
	"strings"
	"testing"

	"asynccaller/handler/tools/faults/storageproxy"
)

// TestCountingProxy: each request counts, and one that Azurite did not carry out is known.
func TestCountingProxy(t *testing.T) {
	var seen countingProxy
	for _, status := range []int{http.StatusCreated, http.StatusNotFound, 0} {
		if order := seen.Before(storageproxy.Request{}); order != (storageproxy.Order{}) {
			t.Errorf("it interferes: %+v", order)
		}
		if order := seen.After(storageproxy.Request{}, storageproxy.Answer{Status: status}); order != (storageproxy.Order{}) {
			t.Errorf("it interferes: %+v", order)
		}
	}
	if seen.requests.Load() != 3 || seen.failed.Load() != 2 {
		t.Errorf("%d requests, %d failed; want 3 and 2", seen.requests.Load(), seen.failed.Load())
	}
}

// TestCountingOne: what does not call its target settles nothing, so its transactions mean nothing.
func TestCountingOne(t *testing.T) {
	b := newFloorBed(t, true)
	called := b.target
	b.target = newTarget() // which nobody calls
	_, err := b.countingOne(t.Context(), b.product, cell{1, modeBinary, 2, http.StatusOK}, &countingProxy{})
	b.target.close()
	b.target = called
	if err == nil || !strings.Contains(err.Error(), "0 calls of 480 messages") {
		t.Errorf("error %v, want that nothing was called", err)
	}
}
