package outbound_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/tools/freeport"
)

// refusedAddress returns an address that refuses connections.
func refusedAddress(t *testing.T) string {
	t.Helper()
	address, err := freeport.Address(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func TestConnectionRefused(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		o := newClient(t, longTimeout).Do(t.Context(), secretCall(t, scheme, refusedAddress(t)))
		if got := summary(o); got != "0 connect: connection refused" {
			t.Errorf("%s: got %s", scheme, got)
		}
	}
}

func TestUnresolvedHost(t *testing.T) {
	for detail, err := range map[string]error{
		"the host name cannot be resolved":       errors.New("no name server"),
		"the name server did not answer in time": context.DeadlineExceeded,
		"the host name does not exist":           nil,
	} {
		client := newClient(t, longTimeout)
		if err != nil {
			client.Resolve(&net.Resolver{
				PreferGo: true,
				Dial:     func(context.Context, string, string) (net.Conn, error) { return nil, err },
			})
		} else {
			client.Resolve(newNames(t, nil).resolver())
		}
		o := client.Do(t.Context(), secretCall(t, "http", canary+".example"))
		wantFailure(t, o, decision.FailureDNS)
		if o.Detail != detail {
			t.Errorf("the detail is %q, want %q", o.Detail, detail)
		}
	}
}
