//go:build race

package simulation

// slowdown divides the number of envelopes: the race detector makes everything ten times slower.
const slowdown = 10
