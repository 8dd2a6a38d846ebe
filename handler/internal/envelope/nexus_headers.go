package envelope

import (
	"slices"
	"strings"
	"unicode/utf8"

	"asynccaller/handler/internal/dotnet"
)

// NexusWarnings says which headers of a Nexus message the C# app cannot read or send, so that it refuses the message or
// fails to make the call. It is empty for other content.
func NexusWarnings(content []byte) (warnings []string) {
	e, err := Parse(content)
	if err != nil {
		return nil
	}
	n, ok := e.format.(*nexus)
	if !ok {
		return nil
	}
	callback, _ := dotnet.ParseRequest(n.callBack) // empty without a callback
	for of, call := range map[part]Call{
		partCall: e.Call, partCallback: {Header: callback.Header, Spelling: callback.Spelling},
	} {
		for name, values := range call.Header {
			header := string(of) + ".headers." + call.Spelling.Of(name)
			switch {
			case !dotnet.IsReadable(name, values):
				warnings = append(warnings,
					header+": not every .NET can read the value, and a C# function app that cannot refuses the message")
			case !isASCII(values):
				warnings = append(warnings,
					header+": .NET sends no value outside ASCII, so a C# function app fails to make the call")
			}
		}
	}
	slices.Sort(warnings)
	return warnings
}

func isASCII(values []string) bool {
	return !slices.ContainsFunc(values, func(value string) bool {
		return strings.ContainsFunc(value, func(r rune) bool { return r >= utf8.RuneSelf })
	})
}
