package quickstart

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const tutorial = "docs/tutorial.md"

// TestMakeRun does with a running app what the documents tell the reader to do.
func TestMakeRun(t *testing.T) {
	run := startMakeRun(t)
	t.Run("tutorial", func(t *testing.T) { followTutorial(t, run) })
	t.Run("senders", func(t *testing.T) { deliverSenders(t, run) })
}

// TestMakeRunWithBrokenFiles: a file or a setting of the user does not fail the self-test. The app with it, which
// make run starts next, does not start, and its error is the last word.
func TestMakeRunWithBrokenFiles(t *testing.T) {
	folder, newDemo := layOut(t)
	for _, row := range []struct {
		name, targets, setting, want string
		arguments                    []string
	}{
		{
			"missing_secret", `{"*": {"headers": {"Authorization": "$SECRET"}, "statuses": {"reject": [503]}}}`, "",
			"environment variable SECRET is not set",
			[]string{"-stay"},
		},
		{"not_json", `{"127.0.0.1:8099": `, "", "targets.json: not JSON: line 1", []string{"-stay", "-empty"}},
		{
			"wrong_setting", `{"127.0.0.1:8099": {"statuses": {"reject": [503]}}}`, "ASYNC_CALLER_RETRY=sometimes",
			`ASYNC_CALLER_RETRY: "sometimes"`,
			[]string{"-stay", "-empty"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			must(t, os.WriteFile(filepath.Join(folder, "dist", "targets.json"), []byte(row.targets), 0o600))
			demo := newDemo(t.Context(), row.arguments...)
			demo.Env = environ(row.setting)
			output, err := demo.CombinedOutput()
			text := string(output)
			tested := strings.Count(text, " yes\n") == 7 && strings.Contains(text, "delivered      20\n")
			if len(row.arguments) == 1 && !tested {
				t.Error("the self-test did not end as expected")
			}
			for _, want := range []string{row.want, "demo: the app in dist does not start; its error is above\n"} {
				if !strings.Contains(text, want) {
					t.Errorf("the output has no %q", want)
				}
			}
			if err == nil || strings.Contains(text, "Everything keeps running") {
				t.Errorf("error %v of an app that does not start", err)
			}
			if t.Failed() {
				t.Logf("the output is\n%s", text)
			}
		})
	}
}

// step is a command of the tutorial with its output. Without a command, it is output of make run.
type step struct{ command, output string }

// steps returns the indented lines of a document: a line that begins with "$ " is a command, and the lines below are
// its output.
func steps(document string) (found []step) {
	var current *step // nil outside of a block
	blank := ""
	for line := range strings.Lines(document) {
		text, indented := strings.CutPrefix(line, "    ")
		command, isCommand := strings.CutPrefix(text, "$ ")
		if line == "\n" {
			blank += line
			continue
		}
		if !indented {
			current, blank = nil, ""
			continue
		}
		if current == nil || isCommand {
			found = append(found, step{})
			current, blank = &found[len(found)-1], ""
		}
		if isCommand {
			current.command = strings.TrimSpace(command)
		} else {
			current.output += blank + text
		}
		blank = ""
	}
	return found
}

// varying matches what differs from run to run: ids, names of runs, times, durations and ports.
var varying = []struct {
	pattern     *regexp.Regexp
	replacement string
}{
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`\d{8}-\d{6}-(\w+)-\w{4}`), "RUN-$1"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`), "TIME"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\b`), "TIME"},
	{regexp.MustCompile(`(?m)^[0-9a-f]{8}\b`), "ID"},
	{regexp.MustCompile(`\b(\d+(\.\d+)?(ms|s|m|h|d))+\b`), "DURATION"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`ADDRESS/\S*…\S*`), "ADDRESS/…"}, // the port determines where a path is cut
	{regexp.MustCompile(`[ \t]+`), " "},
}

func mask(text string) string {
	for _, v := range varying {
		text = v.pattern.ReplaceAllString(text, v.replacement)
	}
	return text
}

// shows reports whether the documented lines are the whole output, but for what varies. "..." stands for any lines.
func shows(output, documented string) bool {
	pattern := regexp.QuoteMeta(mask(documented))
	pattern = strings.ReplaceAll("\n"+pattern, "\n"+regexp.QuoteMeta("...")+"\n", "\n(?:.*\n)*?")
	return regexp.MustCompile("^" + pattern + "$").MatchString("\n" + mask(output))
}

// looks matches commands that change nothing. The test repeats them until they show what happens in the background.
var looks = regexp.MustCompile(`^async-caller (show|status|calls list)\b`)

// followTutorial runs the commands of the tutorial and compares their output with the one that it shows.
func followTutorial(t *testing.T, run makeRun) {
	env := environ( // the reader has put dist into PATH, for all commands
		"XDG_STATE_HOME="+filepath.Join(run.folder, "state"),
		"PATH="+filepath.Join(run.folder, "dist")+string(os.PathListSeparator)+os.Getenv("PATH"),
	)
	if run.export != "" { // another program uses a standard port
		env = append(env, "AzureWebJobsStorage="+run.export)
	}
	printed := run.output.String
	commands := 0
	for _, s := range steps(read(t, tutorial)) {
		line := strings.ReplaceAll(s.command, "http://127.0.0.1:8099/", "http://"+run.target+"/")
		commands++
		switch {
		case s.command == "":
			awaitOutput(t, step{"the first terminal", "...\n" + s.output + "...\n"}, printed)
			commands--
		case s.command == "make run":
			awaitOutput(t, s, printed)
		case looks.MatchString(s.command):
			awaitOutput(t, s, func() string {
				output, _ := shell(t, run.folder, env, line) // it may find nothing yet
				return output
			})
		default:
			output, err := shell(t, run.folder, env, line)
			if err != nil || !shows(output, s.output) {
				t.Fatalf("%s: error %v, the output is\n%s\nwant\n%s", line, err, output, s.output)
			}
		}
	}
	if commands < 10 {
		t.Errorf("%s has only %d commands", tutorial, commands)
	}
}

// awaitOutput waits until the output is as documented.
func awaitOutput(t *testing.T, s step, output func() string) {
	t.Helper()
	var latest string
	defer func() {
		if t.Failed() {
			t.Logf("%s: the latest output is\n%s\nwant\n%s", s.command, latest, s.output)
		}
	}()
	await(t, s.command, func() bool {
		latest = output()
		return shows(latest, s.output)
	})
}

// shell runs a command as a reader does in the second terminal.
func shell(t *testing.T, dir string, env []string, line string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "sh", "-c", line)
	command.Dir, command.Env = dir, env
	output, err := command.CombinedOutput()
	return string(output), err
}
