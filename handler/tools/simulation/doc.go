// Package simulation holds tests only: weeks of retries in virtual time, by the code that decides in
// production. There is no storage, no network and no waiting, so that thousands of envelopes can live
// through an outage in less than a second.
package simulation
