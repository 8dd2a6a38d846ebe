//go:build race

package e2e_test

// With the race detector, as in CI, tests of many messages are shorter, because Azurite slows down with the number of
// messages.
const (
	// interruptions is how often runs are interrupted, interruptedMessages how many messages they process.
	interruptions       = 10
	interruptedMessages = 300
	// scale divides the 10,000 messages of TestPoisonAtScale.
	scale = 10
)
