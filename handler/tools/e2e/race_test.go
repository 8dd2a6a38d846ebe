//go:build race

package e2e_test

// With the race detector, as in CI, tests of many messages are shorter: Azurite takes time for each message
// that grows with the number of all.
const (
	// interruptions are how many times runs are cut short, interruptedMessages how many messages they are
	// about.
	interruptions       = 10
	interruptedMessages = 300
	// scale divides the 10,000 messages of TestPoisonAtScale.
	scale = 10
)
