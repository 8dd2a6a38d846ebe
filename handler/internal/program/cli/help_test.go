package cli

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
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

// withSubcommands returns a command and all commands below it.
func withSubcommands(command *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{command}
	for _, child := range command.Commands() {
		all = append(all, withSubcommands(child)...)
	}
	return all
}
