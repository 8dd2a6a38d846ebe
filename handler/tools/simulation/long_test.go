//go:build long

package simulation

// divisor divides the number of envelopes.
const divisor = 1
