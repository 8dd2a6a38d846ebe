package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
)

// shortID returns the beginning of an id. Commands that expect an id accept it, unless several messages match. A text
// that is no id becomes a word that a person can copy without harm.
func shortID(id string) string {
	if !storage.ValidID(id) {
		return "invalid"
	}
	return strings.ToLower(id[:min(len(id), 8)])
}

// mostReasons is the largest number of reasons that a line lists. A sender of dead letters can invent any number of
// them.
const mostReasons = 5

func reasonsText(counts []account.ReasonCount) string {
	var parts []string
	for i, c := range counts {
		if i == mostReasons {
			parts = append(parts, format.Number(len(counts)-i)+" others")
			break
		}
		parts = append(parts, c.Reason+" "+format.Number(c.Count))
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}

// statusText formats the latest status; 0 means none.
func statusText(status envelope.StatusCode) string {
	if status == 0 {
		return "-"
	}
	return strconv.Itoa(int(status))
}

// remaining formats the time until a moment, which may be unknown or past.
func remaining(at, now time.Time) string {
	switch {
	case at.IsZero():
		return "-"
	case !at.After(now):
		return "past"
	}
	return format.Age(at.Sub(now))
}

// callText describes a call in a list. Method and path may be empty, as in rows of earlier versions.
func callText(method, host, path string) string { return strings.TrimPrefix(method+" "+host+path, " ") }

func policyText(name string, maxAttempts int, limited string) string {
	if maxAttempts > 0 {
		name += fmt.Sprintf(", at most %d attempts", maxAttempts)
	}
	if limited != "" {
		name += " (limited by the operator: " + limited + ")"
	}
	return name
}
