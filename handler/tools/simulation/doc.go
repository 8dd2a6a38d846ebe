// Package simulation has tests only: weeks of retries, and targets that are slow, hang or are down, in virtual time.
// The decisions are those of the product's code; the Functions host is a model of its polling. There is no storage, no
// network and no waiting, so thousands of envelopes pass through an outage in less than a second.
package simulation
