// Package quickstart runs the programs of docs/senders.md and the commands of docs/tutorial.md in tests.
package quickstart
