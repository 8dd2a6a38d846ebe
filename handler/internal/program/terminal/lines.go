package terminal

import (
	"fmt"
	"io"
	"regexp"
	"strings"
)

// LabelWidth is the width of a label, and of the space after it.
const LabelWidth = 15

// PrintLine writes a label and a text. It wraps the text to the width of the terminal.
func PrintLine(out io.Writer, label, format string, args ...any) {
	for _, part := range Wrap(fmt.Sprintf(format, args...), Width(out)-LabelWidth) {
		fmt.Fprintf(out, "%-*s %s\n", LabelWidth-1, label, part)
		label = ""
	}
}

// PrintField writes a label and a text, or nothing if the text is empty.
func PrintField(out io.Writer, label, text string) {
	if text != "" {
		PrintLine(out, label, "%s", text)
	}
}

// program is the name of the executable.
const program = "async-caller"

// commandOrWord matches a command of the executable in backquotes, or a word.
var commandOrWord = regexp.MustCompile("[^\\s`]*`" + program + " [^`\n]*`\\S*|\\S+")

// Wrap breaks a text into lines, at spaces or within words that are longer than a line. A command in backquotes stays
// in one line, however long: a person copies it to a shell.
func Wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range commandOrWord.FindAllString(text, -1) {
		isCommand := strings.Contains(word, " ")
		if line != "" && DisplayWidth(line+" "+word) > width {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
		for DisplayWidth(line) > width && !isCommand {
			part := beginning(line, width)
			lines = append(lines, part)
			line = line[len(part):]
		}
	}
	return append(lines, line)
}
