package e2e_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"asynccaller/handler/internal/storage"
)

// TestHistoryOfHostileSender: messages whose texts and trails are as large as a sender can make them cost no other call
// its row, so that none of the others is made twice.
func TestHistoryOfHostileSender(t *testing.T) {
	f := newFixture(t, options{tables: true})
	f.start([]string{"ASYNC_CALLER_HISTORY=check"})
	attempt := fmt.Sprintf(`{"at":"2026-11-01T00:00:00Z","error":%q}`, strings.Repeat("<", 100))
	trail := "[" + strings.Repeat(attempt+",", 99) + attempt + "]"
	callOut := nexusCallOut("PUT", "/answer/200", f.target.Addr, nexusBody)
	hostile := func(n int) {
		id := fmt.Sprint("hostile", n)
		f.put(id, "200", `,"trail":`+trail)
		f.putContent(fmt.Appendf(nil, `{"Organization":%q,"OriginalRequestId":%[1]q,"Trail":%s,`+
			`"RawRequest":{"Id":%q,"CallOut":%q}}`, strings.Repeat("<", 12<<10), trail, id,
			storage.Base64.Encode([]byte(callOut))))
	}
	const messages = 20
	for round := range 2 { // the sender of the others puts them twice
		for n := range messages {
			hostile(messages*round + n)
			f.put(fmt.Sprint("r", n), "200", "")
		}
		f.awaitEmpty()
	}
	for n := range messages {
		id := fmt.Sprint("r", n)
		if calls := f.target.Calls(id); len(calls) != 1 {
			t.Errorf("%s was called %d times", id, len(calls))
		}
	}
	for _, id := range []string{"r0", "r19", "hostile0", "hostile39"} {
		command := exec.CommandContext(t.Context(), executable, "show", id, "--json", "--app", f.app)
		command.Env = append(command.Environ(), "AzureWebJobsStorage="+f.connectionString)
		output, err := command.Output()
		var call struct {
			Reason  string
			TraceID string `json:"traceId"`
		}
		if err == nil {
			err = json.Unmarshal(output, &call)
		}
		if err != nil || call.Reason != "delivered" || call.TraceID == "" {
			t.Errorf("%s: %v, %s", id, err, output)
		}
	}
	if n := f.count(poisonQueue); n > 0 {
		t.Errorf("%d dead letters", n)
	}
	f.mustDeliverOnce()
}
