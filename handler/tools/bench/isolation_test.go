//go:build unix

package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/tools/storageproxy"
)

func TestPercentile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for want, numbers := range map[float64][]float64{0: nil, 7: {7}, 9: {9, 1, 2}, 99: hundred} {
		if got := percentile99(numbers); got != want {
			t.Errorf("p99 of %d numbers is %v, want %v", len(numbers), got, want)
		}
	}
}

// TestLatencies checks that a call that is not delivered in time counts as a long one, and that others do not count.
func TestLatencies(t *testing.T) {
	begin := time.Now()
	at := func(seconds float64) time.Time { return begin.Add(time.Duration(seconds * float64(time.Second))) }
	a := &app{calls: []sentCall{
		{sent: at(-1), arrived: at(1)},            // before
		{sent: at(1), arrived: at(3)},             // took 2 s
		{sent: at(10)},                            // never
		{sent: at(59), arrived: at(70)},           // too late
		{sent: at(61), arrived: at(62)},           // after
		{target: 1, sent: at(1), arrived: at(60)}, // another target's
	}}
	end := 60 + lastCalls.Seconds()
	seconds, delivered := a.latencies(begin, at(60))
	if want := []float64{2, end - 10, end - 59}; !slices.Equal(seconds, want) || delivered != 1./3 {
		t.Errorf("%v s, %v delivered; want %v and a third", seconds, delivered, want)
	}
}

func TestReschedulesAreCounted(t *testing.T) {
	a := &app{calls: make([]sentCall, 2)}
	put := func(to string, delay time.Duration, id, attempts, status int) {
		text := storage.Base64.Encode(fmt.Appendf(nil, `{"requestId":"%d","attempts":%d}`, id, attempts))
		r := storageproxy.Request{Operation: storageproxy.Put, Queue: to, Text: text, Delay: delay}
		a.Before(r)
		a.After(r, storageproxy.Answer{Status: status})
	}
	put(appQueue, 0, 0, 0, 201)           // the sender
	put(appQueue, time.Second, 0, 0, 201) // no call
	put(appQueue, time.Second, 0, 1, 503) // storage refuses it
	put(appQueue, time.Second, 0, 1, 201) // a call that failed
	put(appQueue, time.Second, 0, 1, 201)
	put(appQueue, time.Second, 1, 1, 201)
	put(appQueue+"-poison", time.Second, 1, 2, 201)
	if a.refused != 2 || a.failed != 2 || a.calls[0].refused != 2 || a.calls[1].refused != 0 || a.transactions != 7 {
		t.Errorf("%d without a call, %d after one, %d transactions, calls %+v", a.refused, a.failed, a.transactions, a.calls)
	}
}

// TestMostly checks that every hanging target gets the same number of calls.
func TestMostly(t *testing.T) {
	for _, others := range []int{1, 5, 20} {
		next, calls := mostly(others), map[int]int{}
		for range 2000 {
			calls[next()]++
		}
		want := map[int]int{0: 200}
		for n := range others {
			want[1+n] = 1800 / others
		}
		if fmt.Sprint(calls) != fmt.Sprint(want) {
			t.Errorf("%d hanging targets: %v, want %v", others, calls, want)
		}
	}
}
