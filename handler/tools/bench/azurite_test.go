package main

import (
	"strings"
	"testing"
	"time"

	"asynccaller/handler/tools/azurite/azuritetest"
)

// TestSDKQueue: a round counts only when all messages are there, and each begins with none.
func TestSDKQueue(t *testing.T) {
	server := azuritetest.Run(t)
	q, err := newSDKQueue(t.Context(), server.ConnectionString, "ac-binary")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.close)
	var rates []float64
	fill := func() (time.Duration, error) { return q.fill(t.Context(), put{text: "eA==", delay: 5 * time.Second}) }
	for range 2 {
		if err := q.round(t.Context(), &rates, fill); err != nil {
			t.Fatal(err)
		}
	}
	if len(rates) != 2 || rates[0] <= 0 || rates[1] <= 0 {
		t.Errorf("rates %v", rates)
	}
	err = q.round(t.Context(), &rates, func() (time.Duration, error) { return 1, nil })
	if err == nil || !strings.Contains(err.Error(), "does not have the 480 messages") || len(rates) != 2 {
		t.Errorf("error %v and rates %v of a round that wrote nothing", err, rates)
	}
}

func TestNoAzurite(t *testing.T) {
	t.Setenv("PATH", "") // no node, no npm
	_, err := startAzurite(t.Context(), t.Output())
	if err == nil || !strings.Contains(err.Error(), "install Node.js") || !strings.Contains(err.Error(), "-azurite=false") {
		t.Errorf("error %v, want what to do", err)
	}
}
