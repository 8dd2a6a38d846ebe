package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/app/functionapp"
)

// onlyCommands makes a command with subcommands show its help, and refuse everything that is not the name of one of
// them, with the commands that were perhaps meant.
func onlyCommands(command *cobra.Command) {
	const mostMistakes = 2 // in a name, as cobra has it by default
	command.SuggestionsMinimumDistance = mostMistakes
	command.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	command.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return fmt.Errorf("unknown command %q for %q%s", args[0], cmd.CommandPath(), hint(cmd, args))
	}
	command.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if cmd != command { // one of the group
			return err
		}
		return cmp.Or(cmd.Args(cmd, cmd.Flags().Args()), err) // the flag belongs to the command that was meant
	})
}

// hint says which commands were perhaps meant by words of which the first is no subcommand of cmd.
func hint(cmd *cobra.Command, words []string) string {
	word, group := words[0], ""
	if word == "poison" || word == "scheduled" { // once groups of commands
		word, group = words[min(1, len(words)-1)], "calls"
	}
	earlier := map[string]string{
		"requeue": "calls retry", "expedite": "calls retry", "move": "calls retry --to QUEUE --as-is",
		"cancel": "calls delete", "queues": "status", "schedule": "explain FILE", "clear": "targets set HOST --clear",
		"watch": "status --watch",
	}
	switch {
	case group != "":
		earlier["run"] = "calls retry" // the former `scheduled run`
	case !cmd.HasParent():
		earlier["host"] = "work --app DIR"
	}
	found := commandsNamed(cmd.Root(), word, group)
	if len(found) == 0 {
		found = commandsNamed(cmd.Root(), word, "")
	}
	switch {
	case word == "keep":
		return ": the timer function " + functionapp.KeeperTimer + " of the app does it"
	case word == "show" && cmd.Name() == "runs":
		found = []string{"runs list RUN"}
	case earlier[word] != "":
		found = []string{earlier[word]}
	case len(found) == 0 && group != "":
		found = []string{group}
	case len(found) == 0:
		for _, name := range cmd.SuggestionsFor(word) {
			found = append(found, strings.TrimSpace(pathOf(cmd)+" "+name))
		}
	}
	if len(found) == 0 {
		return ""
	}
	return "; did you mean `" + programName + " " + strings.Join(found, "` or `"+programName+" ") + "`?"
}

// commandsNamed returns the commands below one whose name is a word, and whose path begins with a group.
func commandsNamed(command *cobra.Command, word, group string) (found []string) {
	for _, child := range command.Commands() {
		if child.Name() == word && strings.HasPrefix(pathOf(child), group) {
			found = append(found, pathOf(child))
		}
		found = append(found, commandsNamed(child, word, group)...)
	}
	return found
}

// pathOf returns a command as a user writes it after the name of the program.
func pathOf(command *cobra.Command) string {
	return strings.TrimSpace(strings.TrimPrefix(command.CommandPath(), programName))
}
