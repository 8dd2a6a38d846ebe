package cli

import (
	"fmt"
	"io"

	"asynccaller/handler/internal/format"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/terminal"
)

// commandTarget names a message in a command. The queue saves reading the others.
func commandTarget(id, queueName string) string {
	return format.ShellWord(id) + " --queue " + format.ShellWord(queueName)
}

// printCommands prints commands for a message, which a person may copy to a shell. There are none for an id or a queue
// that storage cannot have given: somebody has forged the row, or the account.
func printCommands(out io.Writer, id, queueName string, commands []string) {
	fmt.Fprint(out, "\nnext\n")
	if !storage.ValidID(id) || !storage.ValidName(queueName) {
		terminal.PrintLine(out, "  warning", "no commands are shown: storage gives no such id, or has no such queue")
		return
	}
	for _, command := range commands {
		fmt.Fprintf(out, "  %s %s\n", programName, command)
	}
}
