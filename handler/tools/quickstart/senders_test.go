package quickstart

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/format"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/retry"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/emulator"
	"asynccaller/handler/tools/azurite"
	"asynccaller/handler/tools/testbed"
)

const (
	senders   = "docs/senders.md"
	mainQueue = "async-caller"
)

// sample returns the program of docs/senders.md in a language.
func sample(t *testing.T, language string) string {
	t.Helper()
	return blocks(t, language)[0]
}

// sampleWithGzip returns the program with a gzipBody, as the page says.
func sampleWithGzip(t *testing.T, language string) string {
	t.Helper()
	program, call := sample(t, language), blocks(t, language)[1]
	for _, change := range map[string][][2]string{
		"go": {
			{`"asyncCaller": 1`, `"asyncCaller": 2`},
			{`map[string]any{"url": url, "json": map[string]any{"order": order, "item": "book"}},`, "call,"},
			{"\tenvelope, err :=", call + "\tenvelope, err :="},
			{"import (\n", "import (\n\t\"bytes\"\n\t\"compress/gzip\"\n"},
		},
		"js": {
			{"asyncCaller: 1", "asyncCaller: 2"},
			{`call: { url, json: { order, item: "book" } }`, "call"},
			{"  const envelope =", call + "  const envelope ="},
			{"import {", "import { gzipSync } from \"node:zlib\";\nimport {"},
		},
	}[language] {
		if !strings.Contains(program, change[0]) {
			t.Fatalf("the program in %s has no %q", language, change[0])
		}
		program = strings.Replace(program, change[0], change[1], 1)
	}
	return program
}

func blocks(t *testing.T, language string) []string {
	t.Helper()
	found := regexp.MustCompile("(?s)\n```"+language+"\n(.*?)\n```\n").FindAllStringSubmatch(read(t, senders), -1)
	if len(found) != 2 {
		t.Fatalf("%s has %d blocks in %s, want a program and a call with gzipBody", senders, len(found), language)
	}
	return []string{found[0][1] + "\n", found[1][1] + "\n"}
}

// program runs a sample with these arguments.
type program func(t *testing.T, connection string, args ...string)

// programs are the samples that run here.
func programs(t *testing.T) map[string]program {
	t.Helper()
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	executable, err := buildSample()
	must(t, err)
	withGzip := filepath.Join(dir, "gzip")
	mustRun(t, project, os.Environ(), "go", "build", "-o", withGzip, write("gzip.go", sampleWithGzip(t, "go")))
	checkInstalled(t)
	modules, err := filepath.Abs("node_modules")
	must(t, err)
	must(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
	run := func(command ...string) program {
		return func(t *testing.T, connection string, args ...string) {
			t.Helper()
			mustRun(t, dir, environ("AzureWebJobsStorage="+connection), command[0], append(command[1:], args...)...)
		}
	}
	return map[string]program{
		"go": run(executable), "go_gzip": run(withGzip),
		"js":      run("node", write("send.mjs", sample(t, "js"))),
		"js_gzip": run("node", write("gzip.mjs", sampleWithGzip(t, "js"))),
	}
}

// buildSample builds the sample in Go, once.
var buildSample = sync.OnceValues(func() (executable string, err error) {
	page, err := os.ReadFile(filepath.Join(project, senders))
	_, text, _ := strings.Cut(string(page), "\n```go\n")
	text, _, _ = strings.Cut(text, "\n```\n")
	source, executable := filepath.Join(bin, "send.go"), filepath.Join(bin, "send")
	err = errors.Join(err, os.WriteFile(source, []byte(text), 0o600))
	if err != nil {
		return "", err
	}
	output, err := exec.CommandContext(context.Background(), "go", "build", "-o", executable, source).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the sample in Go: %w\n%s", err, output)
	}
	return executable, nil
})

func checkInstalled(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("node_modules/.installed"); err != nil {
		t.Fatal("the packages from npm are not installed: run `make npm`")
	}
}

// checkEnvelope checks that the handler accepts an envelope, and that it is the one that every sample makes, perhaps as
// gzip.
func checkEnvelope(t *testing.T, content []byte, order, url, callback string) {
	t.Helper()
	inflated, _ := envelope.Inflate(content)
	if !bytes.Equal(inflated, content) {
		content = bytes.Replace(inflated, []byte(`"asyncCaller":2`), []byte(`"asyncCaller":1`), 1)
		content = bytes.Replace(content, []byte(`"headers":{"Content-Type":"application/json"},`), nil, 1)
	}
	var got, want any
	must(t, json.Unmarshal(content, &got))
	must(t, json.Unmarshal(fmt.Appendf(nil, `{"asyncCaller": 1, "requestId": "order-%[1]s", "call": {"url": %[2]q, "json": {"order": %[1]q, "item": "book"}},
		"callback": {"url": %[3]q}, "context": {"order": %[1]q}, "retry": {"baseDelay": "10s", "maxDelay": "1h"}}`, order, url, callback), &want))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the envelopes of the samples differ (-want +got):\n%s", diff)
	}
	rules := decision.Rules{Expiration: time.Hour, Retry: retry.Default()}
	if in := rules.Open(content, "m1", storage.Base64.MaxContentBytes(), time.Now()); in.Malformed != nil {
		t.Errorf("the handler does not accept %s: %v", content, in.Malformed)
	}
	for _, unknown := range envelope.UnknownMembers(content) {
		t.Error(unknown)
	}
}

// TestSendersThatRun sends with the samples in Go and JavaScript.
func TestSendersThatRun(t *testing.T) {
	t.Parallel()
	host, err := functionapp.LoadHost(project, nil)
	must(t, err)
	server, err := emulator.Start(t.Context(), emulator.Options{})
	must(t, err)
	t.Cleanup(server.Close)
	connection := server.ConnectionString
	store, err := testbed.OpenStore(connection)
	must(t, err)
	t.Cleanup(store.Close)
	for language, send := range programs(t) {
		t.Run(language, func(t *testing.T) {
			const url, callback = "https://example.com/orders?a=1&b=<å>", "https://example.com/done"
			for range 2 { // the first time there is no queue
				send(t, connection, "4711", url, callback)
				messages, err := store.Receive(t.Context(), mainQueue, storage.MaxBatch, time.Hour)
				must(t, err)
				if len(messages) != 1 {
					t.Fatalf("%d messages on %s, want 1", len(messages), mainQueue)
				}
				if year := messages[0].ExpiresAt.Year(); year != 9999 {
					t.Errorf("the message expires in %d, want never", year)
				}
				content, err := host.Queues.MessageEncoding.Decode(messages[0].Text)
				if err != nil {
					t.Fatalf("it is not encoded as host.json says: %v", err)
				}
				checkEnvelope(t, content, "4711", url, callback)
			}
		})
	}
}

// evaluated is the result of evaluate.mjs for a sample.
type evaluated struct {
	Envelope json.RawMessage
	Error    string
}

// source is a sample that cannot run here.
type source struct {
	Language string `json:"language"`
	Source   string `json:"source"`
}

// evaluate parses samples and computes their envelopes.
func evaluate(t *testing.T, samples []source, variables map[string]string) (results []evaluated) {
	t.Helper()
	checkInstalled(t)
	input, err := json.Marshal(map[string]any{"samples": samples, "variables": variables})
	must(t, err)
	var errors bytes.Buffer
	command := exec.CommandContext(t.Context(), "node", "evaluate.mjs")
	command.Stdin, command.Stderr = bytes.NewReader(input), &errors
	output, err := command.Output()
	if err != nil {
		t.Fatalf("node evaluate.mjs: %v\n%s", err, &errors)
	}
	must(t, json.Unmarshal(output, &results))
	return results
}

var variables = map[string]string{
	"order": "4711", "url": "https://example.com/orders",
	"callback": "https://example.com/done",
}

// TestSendersThatDoNotRun parses the samples in C# and Python, whose packages are not on npm: it checks the syntax,
// evaluates the object that is assigned to envelope, and looks for the encoding and the time-to-live.
func TestSendersThatDoNotRun(t *testing.T) {
	csharp, python := sample(t, "csharp"), sample(t, "python")
	for i, result := range evaluate(t, []source{{"csharp", csharp}, {"python", python}}, variables) {
		if result.Error != "" {
			t.Fatalf("sample %d: %s", i+1, result.Error)
		}
		checkEnvelope(t, result.Envelope, variables["order"], variables["url"], variables["callback"])
	}
	calls := []source{
		{"csharp", strings.Replace(blocks(t, "csharp")[1], "var call =", "var envelope =", 1)},
		{"python", strings.Replace(blocks(t, "python")[1], "call =", "envelope =", 1)},
	}
	values := map[string]string{"headers": "H", "gzipBody": "G", "gzip_body": "G"}
	maps.Copy(values, variables)
	for i, result := range evaluate(t, calls, values) {
		var call map[string]any
		err := json.Unmarshal(result.Envelope, &call)
		if result.Error != "" || err != nil || call["url"] != values["url"] || call["gzipBody"] != "G" ||
			call["headers"] == nil {
			t.Errorf("call %d: %s%s", i+1, result.Envelope, result.Error)
		}
	}
	for program, parts := range map[string][]string{
		csharp: {
			"MessageEncoding = QueueMessageEncoding.Base64", "DefaultAzureCredential(), options)",
			`"async-caller", options)`, "timeToLive: TimeSpan.FromSeconds(-1)",
		},
		python: {
			`"message_encode_policy": TextBase64EncodePolicy()`, "DefaultAzureCredential(), **encoding)",
			`"async-caller", **encoding)`, "time_to_live=-1",
		},
	} {
		for _, part := range parts {
			if strings.Count(program, part) != 1 {
				t.Errorf("%s is not there once", part)
			}
		}
	}
}

// TestSendersAsDescribed checks what docs/senders.md says around the programs.
func TestSendersAsDescribed(t *testing.T) {
	document := read(t, senders)
	program := sample(t, "go")
	if formatted, err := format.Source([]byte(program)); err != nil || string(formatted) != program {
		t.Errorf("the program in Go is not formatted: %v", err)
	}
	for language, separator := range map[string]string{"go": "\" +\n\t\"", "python": "\"\n    \""} {
		connection := strings.ReplaceAll(sample(t, language), separator, "")
		want := "AccountName=" + azurite.AccountName + ";AccountKey=" + azurite.AccountKey +
			";QueueEndpoint=http://127.0.0.1:10001/" + azurite.AccountName + `"`
		if !strings.Contains(connection, want) {
			t.Errorf("the program in %s has another connection string of Azurite", language)
		}
	}
	var manifest struct{ Dependencies map[string]string }
	text, err := os.ReadFile("package.json")
	must(t, err)
	must(t, json.Unmarshal(text, &manifest))
	installs := regexp.MustCompile(`\n    npm install (.*)\n`).FindStringSubmatch(document)
	if installs == nil {
		t.Fatal("there is no npm install")
	}
	for name := range strings.FieldsSeq(installs[1]) {
		if manifest.Dependencies[name] == "" {
			t.Errorf("package.json does not have %s", name)
		}
	}
	module := read(t, "go.mod")
	gets := regexp.MustCompile(`\n    go get (.*)\n`).FindStringSubmatch(document)
	if gets == nil {
		t.Fatal("there is no go get")
	}
	for path := range strings.FieldsSeq(gets[1]) {
		if !strings.Contains(module, path+" v") || !strings.Contains(program, `"`+path+`"`) {
			t.Errorf("the program in Go does not import %s, or go.mod does not have it", path)
		}
	}
}
