package main

import "testing"

func TestHeldSays(t *testing.T) {
	for name, test := range map[string]struct {
		held held
		want string
	}{
		"all":   {held{Calls: 1000, Wanted: 1000, KiB: 1}, "1000 calls, 1 KiB"},
		"fewer": {held{Calls: 362, Wanted: 10000, KiB: 48}, "362 of 10000 calls, 48 KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.held.String(); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestInFlight(t *testing.T) {
	for name, test := range map[string]struct {
		short bool
		calls []int
	}{
		"short": {true, []int{1000, 1000}},
		"long":  {false, []int{1000, 1000, 10000, 10000}},
	} {
		t.Run(name, func(t *testing.T) {
			all := inFlight(test.short)
			if len(all) != len(test.calls) {
				t.Fatalf("%v", all)
			}
			for i, h := range all {
				if h.Wanted != test.calls[i] || h.Calls != min(h.Wanted, most()) || h.KiB != []int{1, 48}[i%2] {
					t.Errorf("%+v, want %d calls", h, test.calls[i])
				}
			}
		})
	}
}

func TestPeakSays(t *testing.T) {
	for want, p := range map[string]peak{
		"24 in parallel, 48 KiB":                  {KiB: 48},
		"24 in parallel, 1 KiB, answers of 1 GiB": {KiB: 1, Answer: gib},
	} {
		if got := p.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
