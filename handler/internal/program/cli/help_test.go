package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestHelp checks that every command has a short and a long help text and examples, and that they fit a
// terminal.
func TestHelp(t *testing.T) {
	const widest = 100
	root := newRoot(Env{})
	for _, command := range withSubcommands(root) {
		t.Run(strings.ReplaceAll(command.CommandPath(), " ", "_"), func(t *testing.T) {
			if command.Short == "" || command.Long == "" {
				t.Errorf("Short %q, Long %q", command.Short, command.Long)
			}
			if command.Runnable() && command.Example == "" {
				t.Error("no Example")
			}
			var help bytes.Buffer
			command.SetOut(&help)
			if err := command.Help(); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(help.String()) {
				line = strings.TrimSuffix(line, "\n")
				if width := utf8.RuneCountInString(line); width > widest {
					t.Errorf("%d columns, at most %d fit: %s", width, widest, line)
				}
				if strings.Contains(line, "(default )") {
					t.Errorf("an empty default: %s", line)
				}
			}
		})
	}
}

// TestFewFlags: a command has at most fifteen flags besides those that select and edit messages.
func TestFewFlags(t *testing.T) {
	const most = 15
	described := []string{ // once, in docs/commands.md
		"all", "due-within", "environment", "force", "group", "host", "limit", "method", "organization", "path",
		"queue", "reason", "request-id", "since", "state", "status", "text", "until",
		"delete-header", "edit", "jq", "replace-host", "set", "set-header",
	}
	for _, command := range withSubcommands(newRoot(Env{})) {
		var others []string
		count := func(flag *pflag.Flag) {
			if command.Name() == "send" || !slices.Contains(described, flag.Name) {
				others = append(others, flag.Name)
			}
		}
		command.NonInheritedFlags().VisitAll(count)
		command.InheritedFlags().VisitAll(count)
		if len(others) > most {
			t.Errorf("%s has %d: %s", command.CommandPath(), len(others), others)
		}
	}
}

// withSubcommands returns a command and all commands below it.
func withSubcommands(command *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{command}
	for _, child := range command.Commands() {
		all = append(all, withSubcommands(child)...)
	}
	return all
}
