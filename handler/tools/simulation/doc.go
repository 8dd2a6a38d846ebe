// Package simulation has tests only: weeks of retries in virtual time, decided by the product's code. There is no
// storage, no network and no waiting, so thousands of envelopes pass through an outage in less than a second.
package simulation
