package main

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestSpread(t *testing.T) {
	for name, test := range map[string]struct {
		numbers []float64
		want    spread
	}{
		"none":         {nil, spread{}},
		"one":          {[]float64{7}, spread{7, 7, 7}},
		"odd_unsorted": {[]float64{9, 1, 4}, spread{4, 1, 9}},
		"even_is_mean": {[]float64{4, 1, 2, 9}, spread{3, 1, 9}},
		"outlier":      {[]float64{2, 2, 2, 2, 1000}, spread{2, 2, 1000}},
	} {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(test.numbers)
			if got := newSpread(test.numbers); got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
			if !slices.Equal(before, test.numbers) {
				t.Errorf("the numbers were put in another order: %v: ratios go by the round", test.numbers)
			}
		})
	}
}

func TestRatios(t *testing.T) {
	for name, test := range map[string]struct {
		product, floor []float64
		want           spread
	}{
		"by_round":          {[]float64{10, 100, 30}, []float64{20, 100, 10}, spread{1, 0.5, 3}},
		"a_slow_round":      {[]float64{50, 5, 50}, []float64{100, 10, 100}, spread{0.5, 0.5, 0.5}},
		"floor_of_nothing":  {[]float64{1, 1}, []float64{0, 2}, spread{0.5, 0.5, 0.5}},
		"not_measured":      {nil, nil, spread{}},
		"one_side_has_more": {[]float64{1, 1, 1}, []float64{2}, spread{0.5, 0.5, 0.5}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ratios(test.product, test.floor); got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

func TestDifferences(t *testing.T) {
	for name, test := range map[string]struct {
		a, b []float64
		want spread
	}{
		"by_round":          {[]float64{10, 100, 31}, []float64{9, 80, 1}, spread{20, 1, 30}},
		"a_slow_round":      {[]float64{2, 50, 2}, []float64{1, 49, 1}, spread{1, 1, 1}},
		"below_zero":        {[]float64{1, 2}, []float64{2, 4}, spread{-1.5, -2, -1}},
		"not_measured":      {nil, nil, spread{}},
		"one_side_has_more": {[]float64{5, 5}, []float64{1}, spread{4, 4, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := differences(test.a, test.b); got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

func TestPercentile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(i + 1)
	}
	for name, test := range map[string]struct {
		sorted []float64
		p      float64
		want   float64
	}{
		"none":           {nil, 99, 0},
		"one":            {[]float64{3}, 99, 3},
		"half_of_two":    {[]float64{3, 5}, 50, 3},
		"half":           {hundred, 50, 50},
		"99":             {hundred, 99, 99},
		"99_of_ten":      {hundred[:10], 99, 10},
		"0_is_the_least": {hundred, 0, 1},
		"100":            {hundred, 100, 100},
	} {
		t.Run(name, func(t *testing.T) {
			if got := percentile(test.sorted, test.p); got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

// TestPercentileCoversItsShare: whatever the numbers, p percent are not above it, and one less would be too few.
func TestPercentileCoversItsShare(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		numbers := make([]float64, 1+random.IntN(300))
		for i := range numbers {
			numbers[i] = float64(random.IntN(50))
		}
		slices.Sort(numbers)
		p := float64(1 + random.IntN(100))
		got := percentile(numbers, p)
		upTo, below := 0, 0
		for _, n := range numbers {
			if n <= got {
				upTo++
			}
			if n < got {
				below++
			}
		}
		share := p / 100 * float64(len(numbers))
		if float64(upTo) < share || float64(below) >= share {
			t.Fatalf("p%v of %v is %v: %d are up to it, %d below, want %v between", p, numbers, got, upTo, below, share)
		}
	}
}
