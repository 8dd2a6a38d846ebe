package cli

import (
	"slices"
	"strings"

	"asynccaller/handler/internal/plain/format"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// commandLine returns a command line for the journal and the list of runs. It has the flags that say what was changed,
// without values that may be secrets.
func commandLine(cmd *cobra.Command, args []string) string {
	words := strings.Fields(strings.TrimPrefix(cmd.CommandPath(), programName))
	for _, arg := range args {
		words = append(words, format.ShellWord(arg))
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if slices.Contains([]string{"app", "runs", "json", "yes"}, f.Name) { // they say nothing about the change
			return
		}
		texts := f.Annotations[annotationTexts]
		switch {
		case f.Value.Type() == "bool":
			words = append(words, "--"+f.Name)
			return
		case texts == nil:
			texts = []string{f.Value.String()}
		}
		for _, text := range texts {
			words = append(words, "--"+f.Name+" "+publicText(f.Name, text))
		}
	})
	return strings.Join(words, " ")
}

// hidden stands for a value that may be a secret.
const hidden = "…"

// publicText returns the argument of a flag as a word of a shell. Of one that may be a secret it keeps the name of the
// member or of the header.
func publicText(flag, text string) string {
	name, separator := "", ""
	switch flag {
	case "set":
		name, separator = text, "="
	case "set-header":
		if strings.HasPrefix(text, "@") { // the name of a file
			return format.ShellWord(text)
		}
		name, separator = text, ":"
	case textFlag, "jq":
		return hidden
	default:
		return format.ShellWord(text)
	}
	name, _, found := strings.Cut(name, separator)
	if !found {
		return hidden
	}
	return format.ShellWord(name+separator) + hidden
}
