package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"asynccaller/handler/internal/storage"
)

// TestHostMadePoison checks that the messages that the Functions host moves to the poison queue are listed with a
// reason.
func TestHostMadePoison(t *testing.T) {
	needsHost(t, "what a worker moves never expires, and its lease lasts 6 minutes")
	t.Parallel()
	f := newFixture(t, options{})
	f.start([]string{"AzureFunctionsJobHost__extensions__queues__maxDequeueCount=1"}, "--max-handler-errors", "-1")
	f.put("faulty", "400", `,"giveUp":"fault"`)
	_, err := f.store.Put(t.Context(), mainQueue, storage.Item{Text: "not base64, and no JSON"})
	f.must(err)
	f.put("crashing", "hang,200", "")
	f.await("the call that hangs", func() bool { return len(f.target.Calls("crashing")) == 1 })
	f.must(f.host.KillHandler())
	f.await("the host to have moved all three",
		func() bool { return f.count(poisonQueue) == 3 && f.count(mainQueue) == 0 })

	want := map[string]struct{ reason, detail string }{
		"faulty":   {"host_gave_up", "giveUp is fault"},
		"":         {"undecodable", "not base64"},
		"crashing": {"host_gave_up", "no failure was recorded"},
	}
	for _, m := range f.mustOperate("calls", "list", "--state", "poison") {
		id, _ := m["requestId"].(string)
		if w := want[id]; m["reason"] != w.reason || !strings.Contains(fmt.Sprint(m["detail"]), w.detail) ||
			m["expiresAt"] == nil {
			t.Errorf("%q: %v, %v, expires %v; want %v", id, m["reason"], m["detail"], m["expiresAt"], w)
		}
		delete(want, id)
	}
	if len(want) > 0 {
		t.Errorf("not listed: %v", want)
	}

	f.mustOperate("calls", "retry", "--state", "poison", "--request-id", "crashing", "--yes")
	f.await("the call that crashed", func() bool { return len(f.target.Calls("crashing")) == 2 })
}
