// Package quickstart runs the programs of docs/senders.md, and the commands of docs/tutorial.md and of the pages for
// operators, in tests.
package quickstart
