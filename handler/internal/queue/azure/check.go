package azure

import (
	"fmt"
	"regexp"

	"asynccaller/handler/internal/queue"
)

// The checks here are those that the service cannot make, because the request would mean something else,
// and those that save a request that cannot succeed.

// checkName refuses a bad name, which could lead the URL's path elsewhere.
func checkName(name string) error {
	if !queue.ValidName(name) {
		return fmt.Errorf("not the name of a queue: %w", queue.ErrRefused)
	}
	return nil
}

// wellFormedID is wider than the UUIDs that the service uses.
var wellFormedID = regexp.MustCompile(`^[A-Za-z0-9-]+$`)

// checkReceipt refuses what no message has. To delete the message with an empty id would be to delete all
// messages of the queue: the URL is that of Clear Messages.
func checkReceipt(id, popReceipt string) error {
	if !wellFormedID.MatchString(id) || popReceipt == "" {
		return fmt.Errorf("not the id and receipt of a message: %w", queue.ErrStale)
	}
	return nil
}
