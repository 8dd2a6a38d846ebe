// Package e2e has the end-to-end tests, each for a promise of the pages. They run the real executable under the local
// host, with a real Azurite, real HTTP and real signals.
package e2e
