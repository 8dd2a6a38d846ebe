package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/net/http/httpguts"

	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/storage"
)

// flagSet declares the flags of a command. It collects the errors of flags declared by [parsed], so that a
// command reports all of them at once. Unlike cobra's, these errors do not quote an argument that may be a
// secret.
type flagSet struct {
	*pflag.FlagSet
	command  *cobra.Command
	problems []error
}

// flagsOf returns the flags of a command. The help lists them in the order of their declaration.
func flagsOf(command *cobra.Command) *flagSet {
	command.Flags().SortFlags = false
	return &flagSet{FlagSet: command.Flags(), command: command}
}

// err returns an error that joins the problems of all parsed flags, or nil.
func (f *flagSet) err() error { return usageError(errors.Join(f.problems...)) }

// refuse adds a problem if the flags are invalid.
func (f *flagSet) refuse(invalid bool, problem string) {
	if invalid {
		f.problems = append(f.problems, errors.New(problem))
	}
}

// annotationTexts is the annotation with the texts that were given for a flag.
const annotationTexts = "texts"

// parsed declares a flag whose argument parse reads into target.
func parsed[T any](f *flagSet, target *T, name, usage string, parse func(string) (T, error)) {
	f.Func(name, usage, func(text string) error {
		texts := append(f.Lookup(name).Annotations[annotationTexts], text)
		_ = f.SetAnnotation(name, annotationTexts, texts) // the flag exists
		value, err := parse(text)
		*target = value
		if !utf8.ValidString(text) {
			err = errNotUTF8
		}
		if err != nil {
			f.problems = append(f.problems, fmt.Errorf("--%s: %w", name, err))
		}
		return nil
	})
}

// errNotUTF8 is the error for a text that JSON cannot hold: the program that gave it has another encoding.
var errNotUTF8 = errors.New("not UTF-8; `send --body @FILE` sends a body of any bytes")

// plainFlag declares a flag whose argument may be any text in UTF-8.
func plainFlag(f *flagSet, target *string, name, usage string) {
	parsed(f, target, name, usage, func(text string) (string, error) { return text, nil })
}

// parsedList declares a flag that may be repeated. Parse reads each argument.
func parsedList[T any](f *flagSet, target *[]T, name, usage string, parse func(string) (T, error)) {
	parsed(f, target, name, usage, func(text string) ([]T, error) {
		value, err := parse(text)
		return append(*target, value), err
	})
}

// parsedCSV declares a flag that may be repeated or have several arguments, separated by commas.
func parsedCSV[T any](f *flagSet, target *[]T, name, usage string, parse func(string) (T, error)) {
	parsed(f, target, name, usage, func(text string) ([]T, error) {
		values := *target
		var problems []error
		for part := range strings.SplitSeq(text, ",") {
			value, err := parse(part)
			values = append(values, value)
			problems = append(problems, err)
		}
		return values, errors.Join(problems...)
	})
}

// durationFrom returns a function that reads a duration that is not below a minimum.
func durationFrom(shortest time.Duration) func(string) (time.Duration, error) {
	return within(bounds.New(shortest, math.MaxInt64), "a duration such as 90s, 6h or 2d", bounds.ParseDuration)
}

// suggest completes the argument of a flag with fixed values.
func (f *flagSet) suggest(flag string, values ...string) {
	completion := cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	_ = f.command.RegisterFlagCompletionFunc(flag, completion) // the flag exists
}

// parseMoment reads a time, or a duration from now. An empty text is the zero time.
func parseMoment(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	d, err := bounds.ParseDuration(text)
	if err != nil {
		return parseTime(text, "a duration from now", err)
	}
	return time.Now().Add(d).UTC(), nil
}

// parseAgo reads a time, or how long ago it was.
func parseAgo(text string) (time.Time, error) {
	d, err := bounds.ParseDuration(text)
	if err != nil || d < 0 {
		return parseTime(text, "how long ago it was", err)
	}
	return time.Now().Add(-d), nil
}

// parseTime reads a time that is not in the year 1, which for a program means that there is none. NoDuration says why
// the text is not the alternative.
func parseTime(text, alternative string, noDuration error) (time.Time, error) {
	at, err := bounds.ParseTime(text)
	switch {
	case errors.Is(noDuration, bounds.ErrTooLong):
		return at, fmt.Errorf("%.40q: %w", text, noDuration)
	case err != nil:
		return at, fmt.Errorf("%.40q: want a time such as 2026-01-31T12:00:00Z, or %s, such as 2h", text, alternative)
	case at.IsZero():
		return at, fmt.Errorf("%.40q is no time, but the default of many programs: omit the flag, or give a later time",
			text)
	}
	return at, nil
}

// parseJSON reads a JSON value. The error says where the text stops being one.
func parseJSON(text string) (json.RawMessage, error) {
	_, err := strictjson.Depth([]byte(text))
	if err != nil && hasLostQuotes(text) {
		err = fmt.Errorf("%w; the shell seems to have changed the quotes: give the JSON in a file (send --body @FILE, "+
			`calls retry --edit), or write '{"id":42}' in PowerShell 7.3 and later, and '{\"id\":42}' in earlier ones`,
			err)
	}
	return json.RawMessage(text), err
}

// hasLostQuotes reports whether a text looks like JSON without its double quotes, with backslashes before them, or
// within the quotes of another shell.
func hasLostQuotes(text string) bool {
	text = strings.TrimLeft(text, " \t\r\n")
	if text == "" || !strings.Contains(`{["'\`, text[:1]) {
		return false
	}
	hasNone := !strings.Contains(text, `"`) && strings.ContainsFunc(text, unicode.IsLetter)
	return hasNone || text[0] == '\'' || strings.Contains(strings.ReplaceAll(text, " ", ""), `{\"`)
}

// parseRetry reads a retry policy as an envelope's member retry: a JSON object, a list of delays, or a name. An empty
// text is no policy.
func parseRetry(text string) (json.RawMessage, error) {
	switch {
	case text == "":
		return nil, nil
	case strings.HasPrefix(text, "{"):
		return parseJSON(text)
	}
	if err := checkDelays(text); err != nil {
		return nil, err
	}
	delays := strings.Split(text, ",")
	if _, err := bounds.ParseDuration(delays[0]); err != nil {
		return json.Marshal(text)
	}
	return json.Marshal(map[string][]string{"schedule": delays})
}

// checkDelays refuses a text that can be neither the name of a policy, which begins with a letter, nor a list of
// delays. A number alone is not one: for a user it means attempts, for an envelope seconds.
func checkDelays(text string) error {
	const want = `want the name of a policy, delays such as 5s,1m, or for attempts {"maxAttempts":5}`
	first := text[0] | ('a' - 'A') // in lower case
	if 'a' <= first && first <= 'z' {
		return nil
	}
	for delay := range strings.SplitSeq(text, ",") {
		if delay != "" && strings.Trim(delay, "+-.0123456789") == "" {
			return fmt.Errorf("%.40q is a number without a unit: %s", delay, want)
		}
		_, err := bounds.ParseDuration(delay)
		switch {
		case errors.Is(err, bounds.ErrTooLong):
			return fmt.Errorf("%.40q: %w", delay, err)
		case err != nil:
			return fmt.Errorf("%.40q: %s", delay, want)
		}
	}
	return nil
}

// headerUsage is the form of the argument of each flag that declares headers.
const headerUsage = "as 'Name: value', or @FILE with one on each line; may be repeated"

// headerFlag declares a flag --header that adds headers to target.
func headerFlag(f *flagSet, target *http.Header, add func(header http.Header, name, value string), usage string) {
	parsedHeaders(f, "header", usage, func(text string) error {
		name, value, _ := strings.Cut(text, ":")
		value = strings.TrimSpace(value)
		switch {
		case name == text || !httpguts.ValidHeaderFieldName(name):
			return errors.New("want 'Name: value'")
		case !httpguts.ValidHeaderFieldValue(value):
			return errors.New("the value has a control character")
		case *target == nil:
			*target = http.Header{}
		}
		add(*target, name, value)
		return nil
	})
}

// parsedHeaders declares a flag for headers and passes each header to add. Its argument is a header, or @FILE with one
// on each line, because other users of the machine can see arguments. The errors name the line, but do not quote the
// header, which may be a secret.
func parsedHeaders(f *flagSet, flag, usage string, add func(text string) error) {
	parsed(f, new(any), flag, usage, func(argument string) (any, error) {
		path, isFile := strings.CutPrefix(argument, "@")
		switch {
		case !isFile:
			return nil, add(argument)
		case path == "" || path == "-": // standard input is for the envelope or its body
			return nil, errors.New("want the name of a file after @")
		}
		content, err := readText(Env{}, path)
		if err != nil {
			return nil, err
		}
		return nil, eachLine(path, string(content), add)
	})
}

// eachLine passes the lines of a file that are not blank to see.
func eachLine(path, content string, see func(line string) error) error {
	var problems []error
	number := 0
	isBlank := true
	for line := range strings.Lines(content) {
		number++
		if strings.TrimSpace(line) == "" {
			continue
		}
		isBlank = false
		err := errNotUTF8
		if utf8.ValidString(line) {
			err = see(strings.TrimRight(line, "\r\n"))
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s, line %d: %w", path, number, err))
		}
	}
	if isBlank {
		return fmt.Errorf("%s has no headers", path)
	}
	return errors.Join(problems...)
}

// groupByFlag declares --group-by with the criteria that it takes.
func groupByFlag(f *flagSet, target *message.By, criteria []message.By) {
	usage := "count messages by this `property`: " + message.Names(criteria)
	parsed(f, target, "group-by", usage, func(text string) (message.By, error) {
		return message.ParseBy(text, criteria)
	})
	var names []string
	for _, by := range criteria {
		names = append(names, string(by))
	}
	f.suggest("group-by", names...)
}

func parseQueue(name string) (string, error) {
	if !storage.ValidName(name) {
		const want = "%.70q is not a queue name: want 3 to 63 lower-case letters, digits and single dashes"
		return "", fmt.Errorf(want, name)
	}
	return name, nil
}

// allowedStatuses returns the statuses that an answer can have.
func allowedStatuses() bounds.Range[int] { return bounds.New(100, 999) }

func parseStatus(text string) (int, error) {
	return within(allowedStatuses(), "a number "+allowedStatuses().String(), strconv.Atoi)(text)
}

// atLeast returns a function that reads a whole number that is not below a minimum.
func atLeast(minimum int) func(string) (int, error) {
	return within(bounds.New(minimum, math.MaxInt), fmt.Sprintf("a whole number of at least %d", minimum), strconv.Atoi)
}

// within returns a function that reads an argument with parse and refuses a value outside a range. Want describes
// the values that are allowed.
func within[T cmp.Ordered](
	allowed bounds.Range[T], want string, parse func(string) (T, error),
) func(string) (T, error) {
	return func(text string) (T, error) {
		value, err := parse(text)
		switch {
		case errors.Is(err, bounds.ErrTooLong):
			return value, fmt.Errorf("%.40q: %w", text, err)
		case err != nil || !allowed.Contains(value):
			return value, fmt.Errorf("%.40q: want %s", text, want)
		}
		return value, nil
	}
}
