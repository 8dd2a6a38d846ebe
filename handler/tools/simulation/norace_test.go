//go:build !race

package simulation

// slowdown divides the number of envelopes.
const slowdown = 1
