package azure

import (
	"fmt"
	"regexp"

	"asynccaller/handler/internal/queue"
)

// These checks catch requests that the service would understand differently, and requests that cannot succeed.

// checkName refuses a bad name, which could change the path of the URL.
func checkName(name string) error {
	if !queue.ValidName(name) {
		return fmt.Errorf("not the name of a queue: %w", queue.ErrRefused)
	}
	return nil
}

// wellFormedID matches more than the UUIDs that the service uses.
var wellFormedID = regexp.MustCompile(`^[A-Za-z0-9-]+$`)

// checkReceipt refuses an invalid id and an empty receipt. Deleting the message with an empty id would delete all
// messages of the queue, because the URL is that of Clear Messages.
func checkReceipt(id, popReceipt string) error {
	if !wellFormedID.MatchString(id) || popReceipt == "" {
		return fmt.Errorf("not the id and receipt of a message: %w", queue.ErrStale)
	}
	return nil
}
