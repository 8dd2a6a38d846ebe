//go:build !long

package simulation

// divisor divides the number of envelopes, because all of them take minutes. `make test-long` sends all.
const divisor = 10
