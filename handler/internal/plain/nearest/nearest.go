// Package nearest finds the name that a misspelt one was meant to be. It is pure.
package nearest

import "strings"

// Name returns the most similar of some names, without regard to letter case; it is empty if there are none. Likely
// reports whether the text is so similar that it was probably meant to be that name.
func Name(text string, names []string) (name string, likely bool) {
	const (
		perMistake = 3   // characters of a name
		longest    = 100 // a longer text is like no name
	)
	text = strings.ToLower(text[:min(len(text), longest)])
	least := -1
	for _, n := range names {
		d := distance(text, strings.ToLower(n))
		if least < 0 || d < least {
			name, least = n, d
		}
	}
	return name, least >= 0 && least <= max(1, len(name)/perMistake)
}

// Hint returns a question that is the end of an error about a text that is none of the names. It is empty if the text
// is probably no misspelling of one.
func Hint(text string, names []string) string {
	if name, likely := Name(text, names); likely {
		return "; did you mean " + name + "?"
	}
	return ""
}

// distance returns how many characters must be inserted, deleted, replaced or swapped with the next one to make one
// text the other.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		for j := range rows[i] {
			if i == 0 || j == 0 {
				rows[i][j] = i + j
				continue
			}
			replaced := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			rows[i][j] = min(replaced, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
