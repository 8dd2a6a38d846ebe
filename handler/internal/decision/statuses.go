package decision

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
)

// DefaultStatuses are the temporary statuses of Nexus Async Caller.
const DefaultStatuses = "404,408,423,425,429,500-999,!510,!526"

// defaultStatuses is the set of [DefaultStatuses].
var defaultStatuses, _ = ParseStatuses(DefaultStatuses)

// Statuses is the set of response statuses that are temporary. Nil means [DefaultStatuses].
type Statuses map[int]bool

// Temporary reports whether a response with this status is temporary: a later attempt may succeed.
func (s Statuses) Temporary(status int) bool {
	if s == nil {
		s = defaultStatuses
	}
	return s[status]
}

// ParseStatuses reads a list of statuses and ranges, separated by commas: "404,500-599,!510". An exclamation mark
// excludes a status or a range, regardless of the order. 2xx cannot be temporary.
func ParseStatuses(text string) (Statuses, error) {
	included, excluded := Statuses{}, Statuses{}
	var problems []error
	for part := range strings.SplitSeq(text, ",") {
		part, exclude := strings.CutPrefix(strings.TrimSpace(part), "!")
		from, to, err := parseRange(part)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		set := included
		if exclude {
			set = excluded
		}
		for status := from; status <= to; status++ {
			set[status] = true
		}
	}
	if len(problems) == 0 && len(included) == 0 {
		problems = append(problems, errors.New("no status is temporary: no call would be retried"))
	}
	maps.DeleteFunc(included, func(status int, _ bool) bool { return excluded[status] })
	return included, errors.Join(problems...)
}

func parseRange(text string) (from, to int, err error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	from, errFrom := strconv.Atoi(first)
	to, errTo := strconv.Atoi(last)
	switch {
	case errFrom != nil || errTo != nil || from < 100 || to > 999 || from > to:
		return 0, 0, fmt.Errorf("%.20q: want a status such as 404 or a range such as 500-599, from 100 to 999", text)
	case from < 300 && to >= 200:
		return 0, 0, fmt.Errorf("%.20q: 2xx means delivered and is never retried", text)
	}
	return from, to, nil
}
