package cli

import (
	"fmt"
	"io"
	"strings"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/terminal"
)

// commandTarget names a message in a command. The queue saves reading the others.
func commandTarget(id, queueName string) string {
	return shellWord(id) + " --queue " + shellWord(queueName)
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

// shellWord quotes a text for a shell if necessary. Every command that is printed with a text from elsewhere uses it.
func shellWord(text string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,@%+"
	isPlain := strings.Trim(text, plain) == ""
	if text != "" && isPlain {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
