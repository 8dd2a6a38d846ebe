package e2e_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/storage"
)

// viewerConnection returns the connection string of the fixture's account with a signature that allows to read and to
// list, and nothing else.
func (f *fixture) viewerConnection() string {
	parts := map[string]string{}
	for part := range strings.SplitSeq(f.connectionString, ";") {
		name, value, _ := strings.Cut(part, "=")
		parts[name] = value
	}
	const version, services, types, allowed, start = "2021-06-08", "qt", "sco", "rl", "2020-01-01T00:00:00Z"
	end := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	key, err := base64.StdEncoding.DecodeString(parts["AccountKey"])
	f.must(err)
	mac := hmac.New(sha256.New, key)
	fmt.Fprint(mac, strings.Join([]string{
		parts["AccountName"], allowed, services, types, start, end, "", "", version, "", "",
	}, "\n"))
	signature := url.Values{
		"sv": {version}, "ss": {services}, "srt": {types}, "sp": {allowed}, "st": {start}, "se": {end},
		"sig": {base64.StdEncoding.EncodeToString(mac.Sum(nil))},
	}
	return "QueueEndpoint=" + parts["QueueEndpoint"] + ";TableEndpoint=" + parts["TableEndpoint"] +
		";SharedAccessSignature=" + signature.Encode()
}

// listed runs `calls list` with a connection and returns the number of lines, what the command said, and its exit code.
func (f *fixture) listed(connection string, env ...string) (lines int, said string, code int) {
	f.t.Helper()
	command, stdout, stderr := f.operate("calls", "list", "--state", "poison", "--json")
	command.Env = append(command.Env, append(env, "AzureWebJobsStorage="+connection)...)
	err := command.Run()
	if exited, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exited.ExitCode()
	} else {
		f.must(err)
	}
	return strings.Count(stdout.String(), "\n"), stderr.String(), code
}

// TestDeadLettersOfAViewer: lists show every dead letter, also to somebody who may only read, and receive none.
func TestDeadLettersOfAViewer(t *testing.T) {
	onlyLocal(t, "it needs the monitor every second")
	t.Parallel()
	const rejected = 40 // more than can be peeked at
	f := newFixture(t, options{tables: true})
	f.stageMonitor()
	f.must(f.store.Create(t.Context(), poisonQueue))
	f.start(nil)
	f.await("the monitor to have read the queue", func() bool { // once, it receives the dead letters of others
		return strings.Contains(f.entities(storage.ScheduledTable), fmt.Sprintln(poisonQueue, record.ReadingID))
	})
	for n := range rejected {
		f.put(fmt.Sprintf("r%d", n), "400", "")
	}
	f.await("all dead letters", func() bool { return f.count(poisonQueue) == rejected })
	viewer := f.viewerConnection()
	for _, connection := range []string{f.connectionString, viewer} {
		f.await("all rows", func() bool {
			lines, said, code := f.listed(connection)
			return lines == rejected && code == 0 && strings.Contains(said, format.Messages(rejected))
		})
	}
	for _, line := range []string{"status", "show r5", "calls list --group-by error", "targets list", "runs list"} {
		command, _, stderr := f.operate(strings.Fields(line)...)
		command.Env = append(command.Env, "AzureWebJobsStorage="+viewer)
		if err := command.Run(); err != nil {
			t.Errorf("%s: %v: %s", line, err, stderr)
		}
	}
	lines, said, code := f.listed(viewer, "ASYNC_CALLER_TABLES=off")
	if lines != 32 || code != 4 || !strings.Contains(said, "only the first 32 of about "+format.Number(rejected)) {
		t.Errorf("without the table: %d lines, exit code %d: %s", lines, code, said)
	}
	first, err := f.store.Peek(t.Context(), poisonQueue, storage.MaxBatch)
	f.must(err)
	for _, m := range first {
		if m.DequeueCount != 0 {
			t.Errorf("%s was received", m.ID)
		}
	}
}
