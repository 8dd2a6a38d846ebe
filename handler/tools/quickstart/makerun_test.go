package quickstart

import (
	"cmp"
	"strings"
	"testing"

	"asynccaller/handler/internal/program/demo/target"
)

// TestMakeRun: the programs of docs/senders.md deliver with make run.
func TestMakeRun(t *testing.T) {
	t.Parallel()
	_, found := start(t, newDemo(t, "-empty"), `(?s)In another terminal, in this folder:\n\n`+
		`(?:  export AzureWebJobsStorage='(.+?)'\n)?.*--url http://127\.0\.0\.1:\d+/.*\n$`)
	connection := cmp.Or(found[1], "UseDevelopmentStorage=true")
	server, err := target.Start(t.Context())
	must(t, err)
	t.Cleanup(server.Close)
	for language, send := range programs(t) {
		send(t, connection, language, server.URL("200"), server.URL("204"))
		await(t, "the callback", func() bool { return len(server.Calls("order-"+language+".callback")) > 0 })
		calls := server.Calls("order-" + language)
		if len(calls) != 1 || !strings.Contains(string(calls[0].Body), `"order":"`+language+`"`) {
			t.Errorf("%s: the target received %+v, want one call with a body of that order", language, calls)
		}
	}
}
