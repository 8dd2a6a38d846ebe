// Package bounds reads values that must lie within bounds. It is pure.
package bounds

import (
	"cmp"
	"fmt"
)

// Range has the lowest and the highest value that are allowed.
type Range[T cmp.Ordered] struct {
	lowest, highest T
}

// New returns the range from the lowest to the highest value, both included.
func New[T cmp.Ordered](lowest, highest T) Range[T] { return Range[T]{lowest, highest} }

// Contains reports whether a value is in the range. NaN is in none.
func (r Range[T]) Contains(value T) bool { return r.lowest <= value && value <= r.highest }

// Parse reads a text with parse. It returns false if parse fails, or if the value is not in the range.
func (r Range[T]) Parse(text string, parse func(string) (T, error)) (T, bool) {
	value, err := parse(text)
	return value, err == nil && r.Contains(value)
}

// String returns the range for an error: "from 1 to 10".
func (r Range[T]) String() string { return fmt.Sprintf("from %v to %v", r.lowest, r.highest) }
