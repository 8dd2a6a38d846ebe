package cli

import (
	"io"
	"time"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/program/terminal"
)

// printCredentials prints which credentials targets.json gives to targets, and when their tokens end.
func printCredentials(out io.Writer, credentials []account.Credential) {
	now := time.Now()
	var rows [][]string
	for _, c := range credentials {
		rows = append(rows, []string{c.Pattern, text.Printable(c.Credential), tokenText(c.TokenEnds, now)})
	}
	terminal.PrintTable(out, rows, terminal.Name("TARGET"), terminal.Flex("CREDENTIAL", 40), terminal.Left("TOKEN", 0))
}

// tokenText says when a token ends. The time is zero if that is unknown.
func tokenText(ends, now time.Time) string {
	switch {
	case ends.IsZero():
		return "unknown"
	case ends.After(now):
		return "ends in " + format.Age(ends.Sub(now))
	}
	return "ended " + format.Age(now.Sub(ends)) + " ago"
}
