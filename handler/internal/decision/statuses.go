package decision

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// DefaultStatuses are the answers that may be others later, as Nexus Async Caller has them.
const DefaultStatuses = "404,408,423,425,429,500-999,!510,!526"

// Statuses says which answers of a target are temporary. The zero value is [DefaultStatuses].
type Statuses struct {
	included, excluded []statusRange
}

type statusRange struct{ from, to int }

func (r statusRange) has(status int) bool { return r.from <= status && status <= r.to }

// ParseStatuses reads a list of statuses and ranges, separated by commas: "404,500-599,!510". What
// stands behind an exclamation mark is taken out, wherever it stands. 2xx cannot be temporary.
func ParseStatuses(text string) (Statuses, error) {
	var s Statuses
	var problems []error
	for part := range strings.SplitSeq(text, ",") {
		part, excluded := strings.CutPrefix(strings.TrimSpace(part), "!")
		r, err := parseRange(part)
		switch {
		case err != nil:
			problems = append(problems, err)
		case excluded:
			s.excluded = append(s.excluded, r)
		default:
			s.included = append(s.included, r)
		}
	}
	if len(problems) == 0 && len(s.included) == 0 {
		problems = append(problems, errors.New("no status is left to be temporary: nothing would ever be tried again"))
	}
	return s, errors.Join(problems...)
}

func parseRange(text string) (statusRange, error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	from, errFrom := strconv.Atoi(first)
	to, errTo := strconv.Atoi(last)
	switch {
	case errFrom != nil || errTo != nil || from < 100 || to > 999 || from > to:
		return statusRange{}, fmt.Errorf("%.20q: want a status such as 404 or a range such as 500-599, from 100 to 999", text)
	case from < 300 && to >= 200:
		return statusRange{}, fmt.Errorf("%.20q: 2xx means delivered and is never tried again", text)
	}
	return statusRange{from, to}, nil
}

// Temporary reports whether a target that answers with this status may answer otherwise later.
func (s Statuses) Temporary(status int) bool {
	if s.included == nil {
		s = defaultStatuses()
	}
	for _, r := range s.excluded {
		if r.has(status) {
			return false
		}
	}
	for _, r := range s.included {
		if r.has(status) {
			return true
		}
	}
	return false
}

func defaultStatuses() Statuses {
	return Statuses{
		included: []statusRange{{404, 404}, {408, 408}, {423, 423}, {425, 425}, {429, 429}, {500, 999}},
		excluded: []statusRange{{510, 510}, {526, 526}},
	}
}
