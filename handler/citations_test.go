package main

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// citation matches a page and the headings that are cited after it, such as docs/host.md, "Metadata" and "Answers".
	citation = regexp.MustCompile(`\b(docs/[\w-]+\.md)(,? "[^"]*"(?:(?:,| and) "[^"]*")*)?`)
	quoted   = regexp.MustCompile(`"([^"]*)"`)
)

// TestCitationsLeadSomewhere checks each citation in a comment: the page exists, and has the headings.
func TestCitationsLeadSomewhere(t *testing.T) {
	all := pages(t)
	cited := 0
	for _, paths := range goFiles(t) {
		for _, path := range paths {
			for _, match := range citation.FindAllStringSubmatch(comments(t, path), -1) {
				page, exists := all[filepath.Join("..", match[1])]
				if !exists {
					t.Errorf("%s cites %s, which does not exist", path, match[1])
				}
				for _, heading := range quoted.FindAllStringSubmatch(match[2], -1) {
					cited++
					if !regexp.MustCompile(`(?m)^#+ ` + regexp.QuoteMeta(heading[1]) + `$`).MatchString(prose(page)) {
						t.Errorf("%s cites %s, which has no heading %s", path, match[1], heading[0])
					}
				}
			}
		}
	}
	if cited < 20 {
		t.Errorf("only %d cited headings were found", cited)
	}
}

// comments returns the comments of a Go file, each in one line.
func comments(t *testing.T, path string) string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, group := range file.Comments {
		lines = append(lines, strings.Join(strings.Fields(group.Text()), " "))
	}
	return strings.Join(lines, "\n")
}
