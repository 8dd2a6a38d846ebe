//go:build !race

package e2e_test

// See race_test.go.
const (
	interruptions       = 50
	interruptedMessages = 2000
	scale               = 1
	outageMessages      = 5000
	outageRate          = 200
	outageSlack         = 0
	manyRows            = 100_000
)

// hostileMessages is more than the handler calls at a time of these kinds.
const hostileMessages = 600

// hostileKinds are the messages of TestMemoryOfHostileMessages.
var hostileKinds = []string{"headers", "header_values", "callback_headers", "unknown_members", "body", "nexus_headers"}
