package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"asynccaller/handler/internal/storage"
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

// putAll puts texts on a queue, unencoded.
func (f *fixture) putAll(name string, texts []string) {
	f.t.Helper()
	f.must(f.store.Create(f.t.Context(), name))
	next := make(chan string)
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for text := range next {
				err := errors.New("not tried")
				for try := 0; try < 3 && err != nil; try++ {
					_, err = f.store.Put(f.t.Context(), name, storage.Item{Text: text})
				}
				if err != nil {
					f.t.Error(err)
				}
			}
		})
	}
	for _, text := range texts {
		next <- text
	}
	close(next)
	writers.Wait()
}

// stageTimer adds a timer function to the app, with a run each second instead of its schedule.
func (f *fixture) stageTimer(name, schedule string) {
	f.t.Helper()
	function, err := os.ReadFile(filepath.Join("../../../functions", name, "function.json"))
	f.must(err)
	if !bytes.Contains(function, []byte(schedule)) {
		f.t.Fatalf("the schedule of %s is not %s: %s", name, schedule, function)
	}
	f.must(os.Mkdir(filepath.Join(f.app, name), 0o700))
	function = bytes.Replace(function, []byte(schedule), []byte(`"* * * * * *"`), 1)
	f.must(os.WriteFile(filepath.Join(f.app, name, "function.json"), function, 0o600))
}
