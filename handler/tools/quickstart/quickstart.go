// Package quickstart runs the programs of docs/senders.md in tests.
package quickstart
