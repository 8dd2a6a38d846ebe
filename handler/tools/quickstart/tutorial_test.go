package quickstart

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const tutorial = "docs/tutorial.md"

// TestTutorial runs the commands of the tutorial on a demo that stays, with the executable alone, and compares their
// output with the one that it shows.
func TestTutorial(t *testing.T) {
	t.Parallel()
	folder, executable := t.TempDir(), filepath.Join(bin, "async-caller")
	env := environ("XDG_STATE_HOME="+filepath.Join(folder, "state"), "PATH="+filepath.Dir(executable)+":/usr/bin:/bin")
	port := fmt.Sprint(20_000 + 3*rand.IntN(4_000))                    // other programs use the ports of the tutorial
	demo := exec.Command(executable, "demo", "--stay", "--port", port) //nolint:noctx // Ctrl-C ends it
	demo.Dir, demo.Env = t.TempDir(), env
	terminal, found := start(t, demo, `(?s)paste:\n\n  export (\S+)='(.+?)'\n  export (\S+)='(.+?)'\n.*`+
		`The target is http://(\S+)\. .*\n$`)
	env = append(env, found[1]+"="+found[2], found[3]+"="+found[4])
	printed := terminal.String
	commands := 0
	for _, s := range steps(read(t, tutorial)) {
		line := strings.ReplaceAll(s.command, "http://127.0.0.1:8099/", "http://"+found[5]+"/")
		commands++
		switch {
		case s.command == "":
			awaitOutput(t, step{"the first terminal", "...\n" + s.output + "...\n"}, printed)
			commands--
		case s.command == "async-caller demo --stay":
			awaitOutput(t, s, printed)
		case looks.MatchString(s.command):
			awaitOutput(t, s, func() string {
				output, _ := shell(t, folder, env, line) // it may find nothing yet
				return output
			})
		default:
			output, err := shell(t, folder, env, line)
			if err != nil || !shows(output, s.output) {
				t.Fatalf("%s: error %v, the output is\n%s\nwant\n%s", line, err, output, s.output)
			}
		}
	}
	if commands < 10 {
		t.Errorf("%s has only %d commands", tutorial, commands)
	}
}

// step is a command of the tutorial with its output. Without a command, it is output of the demo.
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
