//go:build long

package e2e_test

// See short_test.go.
const (
	scale          = 1
	outageMessages = 5000
	outageRate     = 200
	outageSlack    = 0
	manyRows       = 100_000
	rejectedCalls  = 5000
)

// hostileMessages is more than the handler calls at a time of these kinds.
const hostileMessages = 600

// hostileKinds are the messages of TestMemoryOfHostileMessages.
var hostileKinds = []string{"headers", "header_values", "callback_headers", "unknown_members", "body", "nexus_headers"}
