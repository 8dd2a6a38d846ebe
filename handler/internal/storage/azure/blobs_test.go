package azure

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"asynccaller/handler/internal/storage"
)

// TestProbeBlobs checks the probe with a real blob service, and that it does nothing else than delete a blob that does
// not exist.
func TestProbeBlobs(t *testing.T) {
	conn := mustConnect(t)
	if err := ProbeBlobs(t.Context(), conn); err != nil {
		t.Errorf("without a container: %v", err)
	}
	wrong := conn
	wrong.AccountKey = canaryKey
	err := ProbeBlobs(t.Context(), wrong)
	if !errors.Is(err, storage.ErrDenied) ||
		!strings.HasPrefix(err.Error(), "delete from blob container azure-webjobs-hosts: 403 ") {
		t.Errorf("wrong key: %v", err)
	}
	mustHideSecrets(t, err)

	var requests []string
	for status, want := range map[int]error{
		http.StatusNotFound: nil, http.StatusForbidden: storage.ErrDenied, http.StatusBadRequest: storage.ErrRefused,
	} {
		url := startServer(t, func(w http.ResponseWriter, r *http.Request) {
			requests = append(requests, r.Method+" "+r.URL.Path)
			answerWith(status, "SomeCode")(w, r)
		})
		err := ProbeBlobs(t.Context(), Connection{BlobEndpoint: url + "/acct", SAS: canarySAS})
		if !errors.Is(err, want) {
			t.Errorf("%d: %v, want %v", status, err, want)
		}
	}
	if len(requests) != 3 || !strings.HasPrefix(requests[0], "DELETE /acct/azure-webjobs-hosts/messages/") {
		t.Errorf("requests: %q", requests)
	}
}
