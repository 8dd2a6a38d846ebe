package azure

import (
	"context"
	"errors"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
)

// hostContainer is where the Functions host keeps its locks and the state of timers.
const hostContainer = "azure-webjobs-hosts"

// noID is a name that no blob has.
const noID = "00000000-0000-0000-0000-000000000000"

// ErrNoBlobs means that the settings do not tell where the blobs of the account are.
var ErrNoBlobs = errors.New("the connection has no blob service, where the host keeps its locks and the state of timers")

// ProbeBlobs reports whether the Functions host may use the blobs of a connection's account. It deletes a blob that does not
// exist. The request is one for a message, which has the same form and the same signature: DELETE /container/messages/id. So it
// needs no client for blobs, which would bring ten more modules.
func ProbeBlobs(ctx context.Context, conn Connection) error {
	if conn.BlobEndpoint == "" {
		return ErrNoBlobs
	}
	conn.Endpoint = conn.BlobEndpoint
	store, err := Open(conn)
	if err != nil {
		return err
	}
	defer store.Close()
	_, err = store.service.NewQueueClient(hostContainer).DeleteMessage(ctx, noID, "none", nil)
	if response, ok := errors.AsType[*azcore.ResponseError](err); ok && response.StatusCode == http.StatusNotFound {
		return nil
	}
	return describe("delete from blob container "+hostContainer, err)
}
