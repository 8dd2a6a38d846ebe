//go:build !long

package e2e_test

import "time"

// Tests of many messages are shorter than in `make test-long`, because Azurite slows down with the number of messages.
const (
	// scale divides the 10,000 messages of TestPoisonAtScale and TestRequeueManyKilledTwice.
	scale = 10
	// outageMessages wait for a target that was down. They are run at outageRate a second, and may take outageSlack
	// longer or shorter than that.
	outageMessages = 400
	outageRate     = 50
	outageSlack    = 2 * time.Second
	// manyRows is how many scheduled messages are listed: more than a page of 1,000.
	manyRows = 3000
	// rejectedCalls become dead letters within seconds.
	rejectedCalls = 200
)

// hostileMessages is more than the handler calls at a time of these kinds.
const hostileMessages = 300

// hostileKinds are the messages of TestMemoryOfHostileMessages.
var hostileKinds = []string{"headers", "unknown_members"}
