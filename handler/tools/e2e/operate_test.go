package e2e_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
)

// operate returns `async-caller` with arguments, as an operator runs it in the app folder, and its output.
func (f *fixture) operate(args ...string) (command *exec.Cmd, stdout, stderr *bytes.Buffer) {
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	command = exec.CommandContext(f.t.Context(), executable, args...)
	command.Env = append(os.Environ(), "AzureWebJobsStorage="+f.connectionString,
		"XDG_STATE_HOME="+filepath.Join(f.app, "state"),
		"ASYNC_CALLER_TARGETS_ALLOW=127.0.0.1,*")
	command.Dir, command.Stdout, command.Stderr = f.app, stdout, stderr
	return command, stdout, stderr
}

// mustOperate runs a command with --json that must succeed, and returns the objects that it prints.
func (f *fixture) mustOperate(args ...string) (objects []map[string]any) {
	f.t.Helper()
	command, stdout, stderr := f.operate(append(args, "--json")...)
	if err := command.Run(); err != nil {
		f.t.Fatalf("%q: %v\n%s", args, err, stderr)
	}
	for line := range bytes.Lines(stdout.Bytes()) {
		var object map[string]any
		f.must(json.Unmarshal(line, &object))
		objects = append(objects, object)
	}
	return objects
}

// stageMonitor adds the timer function AC-monitor to the app, with a run each second.
func (f *fixture) stageMonitor() {
	f.t.Helper()
	function, err := os.ReadFile("../../../functions/AC-monitor/function.json")
	f.must(err)
	eachSecond := bytes.Replace(function, []byte(`"0 * * * * *"`), []byte(`"* * * * * *"`), 1)
	if bytes.Equal(eachSecond, function) {
		f.t.Fatalf("AC-monitor has another schedule: %s", function)
	}
	f.must(os.Mkdir(filepath.Join(f.app, "AC-monitor"), 0o700))
	f.must(os.WriteFile(filepath.Join(f.app, "AC-monitor", "function.json"), eachSecond, 0o600))
}
