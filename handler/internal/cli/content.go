package cli

import (
	"fmt"
	"io"
	"strings"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/mask"
	"asynccaller/handler/internal/terminal"
)

// contentDetails is what show says about the content of a message.
type contentDetails struct {
	// Answer and Call describe an envelope, Content a message that is none.
	Answer  *mask.Answer `json:"answer,omitempty"`
	Call    *mask.Call   `json:"call,omitempty"`
	Content string       `json:"content,omitempty"`
}

func newContentDetails(content []byte, secrets mask.Secrets) (d contentDetails) {
	e, err := envelope.Parse(content)
	if err != nil {
		d.Content = string(mask.ShowContent(content, secrets))
		return d
	}
	d.Call = new(mask.ShowCall(e, secrets))
	d.Answer = mask.ShowAnswer(e, secrets)
	return d
}

func (d contentDetails) print(out io.Writer) {
	if d.Answer != nil {
		fmt.Fprint(out, "\nlatest answer\n")
		printAnswer(out, *d.Answer)
	}
	if d.Call != nil {
		fmt.Fprint(out, "\ncall\n")
		printCall(out, *d.Call)
	}
	if d.Content != "" {
		fmt.Fprint(out, "\ncontent\n")
		printBlock(out, d.Content)
	}
}

func printCall(out io.Writer, c mask.Call) {
	terminal.PrintLine(out, "  request", "%s %s", c.Method, c.URL)
	label := "  headers"
	for _, h := range c.Headers {
		terminal.PrintLine(out, label, "%s: %s", h.Name, h.Value)
		label = ""
	}
	body := bodyText(c.BodyKind, c.BodyBytes, c.Body)
	if c.Truncated {
		body += ", truncated here"
	}
	terminal.PrintLine(out, "  body", "%s", body)
	printBlock(out, c.Body)
	terminal.PrintField(out, "  callback", c.Callback)
	if c.Context != "" {
		terminal.PrintLine(out, "  context", "json")
		printBlock(out, c.Context)
	}
}

// bodyText describes a body, of which shown is shown.
func bodyText(kind mask.BodyKind, length int, shown string) string {
	if kind == mask.BodyNone {
		return "none"
	}
	text := fmt.Sprintf("%s, %d bytes", kind, length)
	if shown == "" {
		text += ", not shown without --reveal"
	}
	return text
}

func printAnswer(out io.Writer, a mask.Answer) {
	terminal.PrintLine(out, "  status", "%d", a.Status)
	terminal.PrintField(out, "  media type", a.MediaType)
	body := bodyText(a.BodyKind, a.BodyBytes, a.Body)
	switch {
	case a.Truncated && a.BodyBytes == 0:
		body = "not kept: it broke off, or its encoding is not supported"
	case a.Truncated:
		body += ", only the beginning"
	}
	terminal.PrintLine(out, "  body", "%s", body)
	printBlock(out, a.Body)
}

// printBlock writes an indented text without wrapping it.
func printBlock(out io.Writer, text string) {
	for line := range strings.Lines(text) {
		fmt.Fprintf(out, "    %s\n", strings.TrimSuffix(line, "\n"))
	}
}
