// Package e2e holds the end-to-end tests: the real executable as the local host starts it, real Azurite,
// real HTTP, real signals. Each test is a promise of the README.
package e2e
