package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"
)

// draft is an envelope as the flags of send describe it.
type draft struct {
	URL, Method, Body, BodyFile, JSONBody string
	Headers                               []string
	Timeout, Callback, Context, RequestID string
	NotBefore, Deadline, Retry, GiveUp    string
	Priority                              int
	// flags are those that describe it; given tells which of them the user gave, if only as "".
	flags *pflag.FlagSet
}

func (d *draft) given(name string) bool { return d.flags.Changed(name) }

// newDraft returns a draft and the flags that describe it.
func newDraft() *draft {
	flags := pflag.NewFlagSet("envelope", pflag.ContinueOnError)
	d := &draft{flags: flags}
	flags.SortFlags = false
	flags.StringVar(&d.URL, "url", "", "URL to call (required without FILE)")
	flags.StringVar(&d.Method, "method", "", "HTTP method (default POST with a body, else GET)")
	flags.StringArrayVar(&d.Headers, "header", nil, "header as 'Name: value'; may be repeated")
	flags.StringVar(&d.Body, "body", "", "body as text")
	flags.StringVar(&d.BodyFile, "body-file", "", `file that holds the body, "-" for standard input`)
	flags.StringVar(&d.JSONBody, "json-body", "", "body as JSON, sent as application/json")
	flags.StringVar(&d.Timeout, "timeout", "", "how long the call may last (default as configured)")
	flags.StringVar(&d.Callback, "callback", "", "URL that is told the outcome")
	flags.StringVar(&d.Context, "context", "", "JSON that is handed back in the callback")
	flags.IntVar(&d.Priority, "priority", 0, "queue: 1 to 10; without it the standard queue")
	flags.StringVar(&d.NotBefore, "not-before", "", "no call before: a time (RFC 3339), or a duration from now")
	flags.StringVar(&d.Deadline, "deadline", "", "give up after: a time (RFC 3339), or a duration from now")
	flags.StringVar(&d.Retry, "retry", "", "policy name, delays such as 5s,1m,10m, or a JSON object")
	flags.StringVar(&d.GiveUp, "give-up", "", "dead-letter, drop or fault (default as configured)")
	flags.StringVar(&d.RequestID, "request-id", "", "name of the call (default a new one)")
	return d
}

// checkUnused refuses flags that describe an envelope beside a file that holds envelopes.
func (d *draft) checkUnused() error {
	var unused []string
	d.flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed {
			unused = append(unused, "--"+flag.Name)
		}
	})
	if len(unused) == 0 {
		return nil
	}
	return fmt.Errorf("%s: the envelopes are those in FILE: leave out either", strings.Join(unused, ", "))
}

// wireDraft is the draft's JSON.
type wireDraft struct {
	AsyncCaller int             `json:"asyncCaller"`
	RequestID   string          `json:"requestId,omitempty"`
	Call        wireCall        `json:"call"`
	Callback    *wireCallback   `json:"callback,omitempty"`
	Context     json.RawMessage `json:"context,omitempty"`
	Priority    int             `json:"priority,omitempty"`
	NotBefore   string          `json:"notBefore,omitempty"`
	Deadline    string          `json:"deadline,omitempty"`
	Retry       json.RawMessage `json:"retry,omitempty"`
	GiveUp      string          `json:"giveUp,omitempty"`
}

type wireCall struct {
	URL        string              `json:"url"`
	Method     string              `json:"method,omitempty"`
	Headers    map[string][]string `json:"headers,omitempty"`
	Body       *string             `json:"body,omitempty"`
	BodyBase64 *string             `json:"bodyBase64,omitempty"`
	JSON       json.RawMessage     `json:"json,omitempty"`
	Timeout    string              `json:"timeout,omitempty"`
}

type wireCallback struct {
	URL string `json:"url"`
}

// encode makes the envelope's JSON. What the values mean is checked where every envelope is, here only
// what has no place in JSON.
func (d *draft) encode(now time.Time, stdin io.Reader) ([]byte, error) {
	switch {
	case d.URL == "":
		return nil, errors.New("--url is missing (or name a FILE with envelopes)")
	case d.given("priority") && d.Priority == 0:
		return nil, errors.New("--priority: want a whole number from 1 to 10")
	}
	wire := wireDraft{
		AsyncCaller: 1,
		RequestID:   d.RequestID,
		Call:        wireCall{URL: d.URL, Method: d.Method, Timeout: d.Timeout},
		Priority:    d.Priority,
		GiveUp:      d.GiveUp,
	}
	if d.Callback != "" {
		wire.Callback = &wireCallback{URL: d.Callback}
	}
	var errs [6]error
	wire.Call.Headers, errs[0] = parseHeaderFlags(d.Headers)
	errs[1] = d.encodeBody(&wire.Call, stdin)
	if d.given("context") {
		wire.Context, errs[2] = jsonFlag("--context", d.Context)
	}
	wire.NotBefore, errs[3] = momentFlag("--not-before", d.NotBefore, now)
	wire.Deadline, errs[4] = momentFlag("--deadline", d.Deadline, now)
	wire.Retry, errs[5] = retryFlag(d.Retry)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(wire); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func (d *draft) encodeBody(call *wireCall, stdin io.Reader) error {
	given := 0
	for _, name := range []string{"body", "body-file", "json-body"} {
		if d.given(name) {
			given++
		}
	}
	if given > 1 {
		return errors.New("--body, --body-file and --json-body exclude one another")
	}
	switch {
	case d.given("body"):
		call.Body = &d.Body
	case d.given("json-body"):
		var err error
		call.JSON, err = jsonFlag("--json-body", d.JSONBody)
		return err
	case d.given("body-file"):
		content, err := readBody(d.BodyFile, stdin)
		if err != nil {
			return fmt.Errorf("--body-file: %w", err)
		}
		text := string(content)
		if utf8.Valid(content) {
			call.Body = &text
			return nil
		}
		text = base64.StdEncoding.EncodeToString(content)
		call.BodyBase64 = &text
	}
	return nil
}

func readBody(path string, stdin io.Reader) ([]byte, error) {
	input := stdin
	if path != "-" {
		file, err := os.Open(path) //nolint:gosec // the operator names it
		if err != nil {
			return nil, err
		}
		defer file.Close()
		input = file
	}
	content, err := io.ReadAll(io.LimitReader(input, maxInputBytes+1))
	if len(content) > maxInputBytes {
		return nil, errors.New("the body is larger than any message")
	}
	return content, err
}

func parseHeaderFlags(lines []string) (map[string][]string, error) {
	headers := map[string][]string{}
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, errors.New("--header: want 'Name: value'")
		}
		headers[name] = append(headers[name], strings.TrimSpace(value))
	}
	return headers, nil
}

func jsonFlag(name, value string) (json.RawMessage, error) {
	if !json.Valid([]byte(value)) {
		return nil, fmt.Errorf("%s: not JSON", name)
	}
	return json.RawMessage(value), nil
}

// momentFlag reads a time, or a duration from now.
func momentFlag(name, value string, now time.Time) (string, error) {
	if value == "" {
		return "", nil
	}
	if d, err := time.ParseDuration(value); err == nil {
		return now.Add(d).UTC().Format(time.RFC3339Nano), nil
	}
	if _, err := time.Parse(time.RFC3339Nano, value); err != nil {
		return "", fmt.Errorf("%s %q: give a time such as 2026-01-31T12:00:00Z, or a duration from now such as 2h", name, value)
	}
	return value, nil
}

// retryFlag makes the member retry: a JSON object as it is, a list of delays, or else a policy's name.
func retryFlag(value string) (json.RawMessage, error) {
	if strings.HasPrefix(value, "{") {
		return jsonFlag("--retry", value)
	}
	if value == "" {
		return nil, nil
	}
	delays := strings.Split(value, ",")
	if _, err := time.ParseDuration(delays[0]); err != nil {
		return json.Marshal(value)
	}
	return json.Marshal(map[string][]string{"schedule": delays})
}
