package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// goFiles lists the Go files below this folder, by the package folder they are in.
func goFiles(t *testing.T) map[string][]string {
	t.Helper()
	files := map[string][]string{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.Name() == "node_modules":
			return filepath.SkipDir
		case strings.HasSuffix(path, ".go"):
			files[filepath.Dir(path)] = append(files[filepath.Dir(path)], path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	for folder, paths := range goFiles(t) {
		documented := false
		for _, path := range paths {
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			documented = documented || (file.Doc != nil && !strings.HasSuffix(path, "_test.go"))
		}
		if !documented {
			t.Errorf("%s has no package comment", folder)
		}
	}
}

func TestArchitectureListsEveryPackage(t *testing.T) {
	document := read(t, "../docs/architecture.md")
	for folder := range goFiles(t) {
		_, top, _ := strings.Cut(filepath.ToSlash(folder), "/")
		top, _, _ = strings.Cut(top, "/")
		if top != "" && !strings.Contains(document, "`"+top+"`") {
			t.Errorf("docs/architecture.md does not list the package %s", top)
		}
	}
}

// TestDocumentsNameRealTests: a promise whose test is gone is only a sentence.
func TestDocumentsNameRealTests(t *testing.T) {
	declared := map[string]bool{}
	declaration := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	for _, paths := range goFiles(t) {
		for _, path := range paths {
			for _, match := range declaration.FindAllStringSubmatch(read(t, path), -1) {
				declared[match[1]] = true
			}
		}
	}
	for document, atLeast := range map[string]int{
		"../docs/architecture.md": 20, "../docs/retry.md": 4, "../docs/capacity.md": 3, "../docs/performance.md": 2,
	} {
		named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(read(t, document), -1)
		if len(named) < atLeast {
			t.Errorf("%s names only %d tests", document, len(named))
		}
		for _, name := range named {
			if !declared[name[1]] {
				t.Errorf("%s names %s, which does not exist", document, name[1])
			}
		}
	}
}

func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)\)`)
	for _, document := range []string{
		"../README.md", "../CONTRIBUTING.md", "../docs/architecture.md", "../docs/envelope.md", "../docs/operating.md", "../docs/retry.md", "../docs/targets.md",
		"../docs/nexus.md", "../docs/reliability.md", "../docs/performance.md", "../docs/capacity.md", "../SECURITY.md", "../deploy/README.md",
		"../docs/senders.md", "../docs/tutorial.md",
	} {
		for _, match := range link.FindAllStringSubmatch(read(t, document), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(document), match[1])); err != nil {
				t.Errorf("%s: %v", document, err)
			}
		}
	}
}
