package cli

import (
	"io"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/program/terminal"
)

// printCredentials prints which credentials targets.json gives to targets.
func printCredentials(out io.Writer, credentials []account.Credential) {
	var rows [][]string
	for _, c := range credentials {
		rows = append(rows, []string{c.Pattern, text.Printable(c.Credential)})
	}
	terminal.PrintTable(out, rows, terminal.Name("TARGET"), terminal.Flex("CREDENTIAL", 40))
}
