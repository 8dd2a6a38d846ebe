package envelope

import (
	"cmp"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"asynccaller/handler/internal/rules/dotnet"
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

// rewritten returns a call in a form that stays the same when the C# app reads the message and puts it back, with URLs
// and headers as .NET writes them.
func rewritten(c Call) Call {
	header := http.Header{}
	for name, values := range c.Header {
		switch name {
		case "Referer", "Content-Location":
			header[name] = []string{rewrittenURL(strings.Join(values, ", "))}
		default:
			header[name] = dotnet.Rewritten(name, values)
		}
	}
	c.URL, c.Header = rewrittenURL(c.URL), header
	return c
}

var (
	escapes    = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
	unreserved = regexp.MustCompile(`^[A-Za-z0-9._~-]$`) // RFC 3986, 2.3
)

// rewrittenURL returns a URL like .NET's Uri.AbsoluteUri: characters that need no escape without one, other escapes in
// upper case, no dots as segments. It has no fragment, which no call has.
func rewrittenURL(text string) string {
	text = escapes.ReplaceAllStringFunc(EscapeURL(text), func(escape string) string {
		plain, _ := url.PathUnescape(escape) // it is an escape
		if unreserved.MatchString(plain) {
			return plain
		}
		return strings.ToUpper(escape)
	})
	u, err := url.Parse(text)
	if err != nil {
		return text
	}
	u = u.ResolveReference(u)
	u.Path = cmp.Or(u.Path, "/")
	u.Fragment, u.RawFragment = "", ""
	return u.String()
}

func isASCII(values []string) bool {
	return !slices.ContainsFunc(values, func(value string) bool {
		return strings.ContainsFunc(value, func(r rune) bool { return r >= utf8.RuneSelf })
	})
}
