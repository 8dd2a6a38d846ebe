package main

import (
	"math"
	"slices"
)

// spread is a median and what it lies between. The zero value is of no numbers.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// newSpread is the spread of the numbers; the median of an even count is the mean of the middle two.
func newSpread(numbers []float64) spread {
	if len(numbers) == 0 {
		return spread{}
	}
	sorted := slices.Sorted(slices.Values(numbers))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + sorted[middle]) / 2
	}
	return spread{Median: median, Min: sorted[0], Max: sorted[len(sorted)-1]}
}

// ratios is the spread of a/b, round by round: what disturbs a round disturbs both, and cancels out.
// Rounds with nothing below the line are left out.
func ratios(a, b []float64) spread {
	var all []float64
	for i := range min(len(a), len(b)) {
		if b[i] > 0 {
			all = append(all, a[i]/b[i])
		}
	}
	return newSpread(all)
}

// differences is the spread of a-b, round by round.
func differences(a, b []float64) spread {
	var all []float64
	for i := range min(len(a), len(b)) {
		all = append(all, a[i]-b[i])
	}
	return newSpread(all)
}

// percentile is the smallest number that at least p percent of the sorted numbers do not exceed; 0 of
// none.
func percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
