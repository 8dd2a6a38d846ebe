package azure

import (
	"errors"
	"strings"
	"syscall"

	"asynccaller/handler/internal/storage"
)

// Roles are those that the handler and the operators' commands need.
const Roles = "roles " + storage.QueueRole + " and " + storage.TableRole

// Advice returns what to do about an error of storage that does not say it itself. Roles are those that the operation
// needs.
func Advice(err error, roles string) string {
	const setting = storage.ConnectionName
	switch {
	case errors.Is(err, storage.ErrDenied):
		return "check the credential in " + setting + " and the account's firewall, " +
			"or assign the " + roles + " to the identity"
	case errors.Is(err, storage.ErrRefused) && strings.Contains(err.Error(), skipVersionCheck):
		return "a newer Azurite starts with `make azurite`"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens at this address: start Azurite with `make azurite`, or check " + setting
	case errors.Is(err, ErrNoBlobs):
		return "add BlobEndpoint to the connection string, or set " + setting + "__blobServiceUri"
	}
	return ""
}
