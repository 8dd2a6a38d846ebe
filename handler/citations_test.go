package main

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCitationsLeadSomewhere checks each citation of a page in a comment: the page exists, and so does the heading if the
// citation has one, as in docs/host.md, "Answers".
func TestCitationsLeadSomewhere(t *testing.T) {
	all := pages(t)
	citation := regexp.MustCompile(`\bdocs/[\w-]+\.md(?:, "([^"]*)")?`)
	cited := 0
	for _, paths := range goFiles(t) {
		for _, path := range paths {
			for _, comment := range comments(t, path) {
				for _, match := range citation.FindAllStringSubmatch(comment, -1) {
					cited++
					name, _, _ := strings.Cut(match[0], ",")
					page, exists := all[filepath.Join("..", name)]
					heading := regexp.MustCompile(`(?m)^#+ ` + regexp.QuoteMeta(match[1]) + `$`)
					switch {
					case !exists:
						t.Errorf("%s cites %s, which does not exist", path, name)
					case match[1] != "" && !heading.MatchString(prose(page)):
						t.Errorf("%s cites %s, which has no such heading", path, match[0])
					}
				}
			}
		}
	}
	if cited < 20 {
		t.Errorf("only %d citations were found", cited)
	}
}

// comments returns the comments of a Go file, each in one line.
func comments(t *testing.T, path string) (texts []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range file.Comments {
		texts = append(texts, strings.Join(strings.Fields(group.Text()), " "))
	}
	return texts
}
