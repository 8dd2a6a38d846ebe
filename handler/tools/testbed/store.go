package testbed

import (
	"fmt"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
)

// OpenStore opens the storage account of a connection string.
func OpenStore(connectionString string) (*azure.Queues, error) {
	connection, err := azure.ParseConnection([]string{storage.ConnectionName + "=" + connectionString},
		storage.ConnectionName)
	if err != nil {
		return nil, fmt.Errorf("open storage: %w", err)
	}
	return azure.Open(connection)
}
