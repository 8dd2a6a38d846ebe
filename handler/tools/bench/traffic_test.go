package main

import (
	"strings"
	"testing"
)

func TestTrafficCheck(t *testing.T) {
	for name, test := range map[string]struct {
		got      traffic
		messages int
		sizes    sizes
		want     string // empty: all is well
	}{
		"delivered":       {traffic{10, 1000, 0}, 10, sizes{100, 0}, ""},
		"reschedule":      {traffic{10, 1000, 2000}, 10, sizes{100, 200}, ""},
		"date_differs":    {traffic{10, 1000, 2199}, 10, sizes{100, 200}, ""},
		"call_missing":    {traffic{9, 900, 0}, 10, sizes{100, 0}, "9 calls of 10 messages"},
		"call_repeated":   {traffic{11, 1100, 0}, 10, sizes{100, 0}, "11 calls of 10 messages"},
		"call_too_short":  {traffic{10, 999, 0}, 10, sizes{100, 0}, "calls of 999 bytes in all, want 10 of 100"},
		"put_missing":     {traffic{10, 1000, 1700}, 10, sizes{100, 200}, "1700 bytes reschedule, want about 10 times 200"},
		"put_too_large":   {traffic{10, 1000, 2300}, 10, sizes{100, 200}, "2300 bytes reschedule"},
		"put_for_nothing": {traffic{10, 1000, 1}, 10, sizes{100, 0}, "1 bytes reschedule"},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.got.check(test.messages, test.sizes)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// TestTrafficOf: each program's puts are counted apart, and what was before does not count.
func TestTrafficOf(t *testing.T) {
	target, product, floor := newTarget(), newStorage(), newStorage()
	t.Cleanup(target.close)
	t.Cleanup(product.close)
	t.Cleanup(floor.close)
	b := &bed{target: target, storage: product, floorStorage: floor}
	target.calls.Store(5)
	target.received.Store(50)
	product.received.Store(7)
	floor.received.Store(9)
	for name, put := range map[string]int64{productName: 7, floorName: 9} {
		p := &process{program: program{name: name}}
		if got, want := b.traffic(p), (traffic{5, 50, put}); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
		if got, want := b.traffic(p).since(traffic{1, 20, 3}), (traffic{4, 30, put - 3}); got != want {
			t.Errorf("%s since: %+v, want %+v", name, got, want)
		}
	}
}
