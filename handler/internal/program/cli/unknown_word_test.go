package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestUnknownWord: a word that is no command here is answered with the command of this name elsewhere, or with what an
// earlier command is called today.
func TestUnknownWord(t *testing.T) {
	t.Parallel()
	root, tree := &cobra.Command{Use: programName}, newRoot(Env{})
	add := func(to *cobra.Command, names ...string) *cobra.Command {
		command := &cobra.Command{Use: names[0], Run: func(*cobra.Command, []string) {}}
		to.AddCommand(command)
		for _, name := range names[1:] {
			command.AddCommand(&cobra.Command{Use: name, Run: command.Run})
		}
		onlyCommands(command)
		return command
	}
	onlyCommands(root)
	add(root, "calls", "list", "export", "retry", "delete", "edit")
	add(root, "targets", "list", "pause", "set")
	add(root, "runs", "list", "undo")
	add(root, "status")
	add(root, "send")
	for line, want := range map[string]string{
		"requeue r1":              "calls retry",
		"requeue --all --yes":     "calls retry",
		"poison requeue --all":    "calls retry",
		"scheduled expedite r1":   "calls retry",
		"scheduled run --all":     "calls retry", // so called in version 0.1.0
		"poison watch":            "status --watch",
		"host --app dist":         "work --app DIR",
		"poison move --to parked": "calls retry --to QUEUE --as-is",
		"scheduled cancel":        "calls delete",
		"poison delete":           "calls delete",
		"scheduled list --json":   "calls list",
		"poison nonsense":         "calls",
		"poison":                  "calls",
		"poison send":             "send",
		"poison queues":           "status",
		"schedule --policy 5s":    "explain FILE",
		"targets clear t.example": "targets set HOST --clear",
		"runs show x":             "runs list RUN",
		"pause t.example":         "targets pause",
		"runs pause":              "targets pause",
		"calls pause":             "targets pause",
		"set t.example":           "targets set", // not send
		"list":                    "calls list` or `async-caller runs list` or `async-caller targets list",
		"stats":                   "status",
		"runs lst":                "runs list",
		"nonsense":                "",
		"runs nonsense --x":       "",
	} {
		root.SetArgs(strings.Fields(line))
		root.SilenceErrors, root.SilenceUsage = true, true
		err := root.Execute()
		first, _, _ := strings.Cut(want, "`")
		if want != "" && !has(tree, strings.Fields(first)...) {
			t.Errorf("%s: there is no command %s", line, first)
		}
		if want != "" {
			want = "; did you mean `async-caller " + want + "`?"
		}
		if err == nil || !strings.HasPrefix(err.Error(), "unknown command ") || !strings.HasSuffix(err.Error(), want) ||
			want == "" && !strings.HasSuffix(err.Error(), `"`) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
	for _, line := range []string{"keep", "poison keep --dry-run"} {
		root.SetArgs(strings.Fields(line))
		if err := root.Execute(); err == nil || !strings.HasSuffix(err.Error(), "AC-poison-keeper of the app does it") {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// has reports whether there is a command with this path. Arguments in capitals and flags follow it.
func has(root *cobra.Command, path ...string) bool {
	found, rest, err := root.Find(path)
	followed := len(rest) == 0 || strings.HasPrefix(rest[0], "--") || rest[0] == strings.ToUpper(rest[0])
	return err == nil && found != root && followed
}
