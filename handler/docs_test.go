package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
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

// TestArchitectureIsTheTree compares the packages of docs/architecture.md, folder by folder, with those in the tree.
func TestArchitectureIsTheTree(t *testing.T) {
	document := read(t, "../docs/architecture.md")
	listed := map[string]bool{}
	folder := ""
	list := mustMatch(t, document, `(?s) The product is in handler/internal.*?\n\n(.*?)\n\nhandler/tools`)[0]
	for line := range strings.Lines(list) {
		indent := len(line) - len(strings.TrimLeft(line, " "))
		names, _, _ := strings.Cut(strings.TrimSpace(line), "  ")
		switch indent {
		case 4:
			name, _, _ := strings.Cut(names, ":")
			folder = "internal/" + name
		case 6:
			for name := range strings.FieldsSeq(names) {
				listed[path.Join(folder, name)] = true
			}
		}
	}
	for folder := range goFiles(t) {
		kind, name, _ := strings.Cut(filepath.ToSlash(folder), "/")
		switch {
		case kind == "tools" && name != "":
			name, _, _ = strings.Cut(name, "/")
			if !strings.Contains(document, "`"+name+"`") {
				t.Errorf("docs/architecture.md does not list the tool %s", name)
			}
		case kind == "internal":
			if !listed[filepath.ToSlash(folder)] {
				t.Errorf("docs/architecture.md does not list %s", folder)
			}
			delete(listed, filepath.ToSlash(folder))
		}
	}
	for folder := range listed {
		t.Errorf("docs/architecture.md lists %s, which does not exist", folder)
	}
}

// TestDocumentsNameRealTests: a promise whose test is gone is only a sentence.
func TestDocumentsNameRealTests(t *testing.T) {
	declared := map[string]bool{"TestCamelCase": true} // the form of a name, in CONTRIBUTING.md
	declaration := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	for _, paths := range goFiles(t) {
		for _, path := range paths {
			for _, match := range declaration.FindAllStringSubmatch(read(t, path), -1) {
				declared[match[1]] = true
			}
		}
	}
	atLeast := map[string]int{"../docs/reliability.md": 30}
	for document, text := range pages(t) {
		named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(text, -1)
		if len(named) < atLeast[document] {
			t.Errorf("%s names only %d tests", document, len(named))
		}
		for _, name := range named {
			if !declared[name[1]] {
				t.Errorf("%s names %s, which does not exist", document, name[1])
			}
		}
	}
}

// pages returns the Markdown pages of the project by their paths.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		hidden := strings.HasPrefix(entry.Name(), ".") && path != ".."
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (hidden || entry.Name() == "node_modules" || path == "../dist"):
			return fs.SkipDir
		case strings.HasSuffix(path, ".md"):
			found[path] = read(t, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// prose returns a page without its code.
func prose(page string) string {
	page = regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(page, "")
	return regexp.MustCompile("(?m)^    .*$").ReplaceAllString(page, "")
}

// anchors returns the anchors of a page's headings, as GitHub makes them.
func anchors(page string) map[string]bool {
	found := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(prose(page), -1) {
		anchor := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(match[1]), "")
		found[strings.ReplaceAll(anchor, " ", "-")] = true
	}
	return found
}

// links returns the files and anchors to which a page links.
func links(page string) (found [][2]string) {
	for _, match := range regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]*))?\)`).FindAllStringSubmatch(prose(page), -1) {
		found = append(found, [2]string{match[1], match[2]})
	}
	return found
}

func TestLinksLeadSomewhere(t *testing.T) {
	all := pages(t)
	for name, page := range all {
		for _, link := range links(page) {
			path := filepath.Join(filepath.Dir(name), link[0])
			if link[0] == "" {
				path = name
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if link[1] != "" && !anchors(all[path])[link[1]] {
				t.Errorf("%s: %s has no heading #%s", name, path, link[1])
			}
		}
	}
}

// TestReadmeLinksEveryPage: each page is one click from README, once in its table of the documentation.
func TestReadmeLinksEveryPage(t *testing.T) {
	all := pages(t)
	_, table, _ := strings.Cut(all["../README.md"], "\n## Documentation\n")
	linked := map[string]int{}
	for _, link := range links(table) {
		linked[filepath.Join("..", link[0])]++
	}
	for name := range all {
		if name != "../README.md" && linked[name] != 1 {
			t.Errorf("README's table of the documentation has %d links to %s, want 1", linked[name], name)
		}
	}
}

// TestGoVersion: the README names the version of Go that go.mod requires.
func TestGoVersion(t *testing.T) {
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "../go.mod"))[1]
	if readme := read(t, "../README.md"); !strings.Contains(readme, "You need Go "+version+" ") {
		t.Errorf("README does not say that Go %s is needed", version)
	}
}

// brokenText matches the place where a text of the code goes on in the next line.
var brokenText = regexp.MustCompile(`" \+\s+"`)

// product returns the text of the product's files that match a pattern, without tests.
func product(t *testing.T, pattern string) string {
	t.Helper()
	var text strings.Builder
	for _, paths := range goFiles(t) {
		for _, path := range paths {
			if matched, err := filepath.Match(pattern, path); err != nil || matched &&
				!strings.HasSuffix(path, "_test.go") {
				text.WriteString(read(t, path))
			}
		}
	}
	return brokenText.ReplaceAllString(text.String(), "")
}

// TestLogPage compares docs/log.md with the fields, reasons, actions and messages of the code.
func TestLogPage(t *testing.T) {
	page := read(t, "../docs/log.md")
	notLogged := map[string]bool{"call": true, "due": true, "cancelled": true}
	constants := product(t, "internal/deliver/logs/logs.go") + product(t, "internal/rules/decision/decision.go") +
		product(t, "internal/rules/decision/outcome.go")
	names := regexp.MustCompile(`(?m)^\t\w+ *(?:Action|Reason|Failure)? *= "([a-z_]+)"`).
		FindAllStringSubmatch(constants, -1)
	for _, name := range names {
		if !notLogged[name[1]] && !strings.Contains(page, "`"+name[1]+"`") {
			t.Errorf("docs/log.md does not have `%s`", name[1])
		}
	}
	code := product(t, "internal/*/*/*.go")
	notServed := product(t, "internal/app/listener/*.go") // its lines are in the log of the local host
	messages := regexp.MustCompile(`\.\s*Msgf?\(\s*"([^"]+)"`).FindAllStringSubmatch(code, -1)
	if len(names) < 50 || len(messages) < 15 {
		t.Errorf("only %d names and %d messages in the code", len(names), len(messages))
	}
	var begins []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*`) \\| [a-z, ]+ \\|").FindAllStringSubmatch(page, -1) {
		for _, begin := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			begins = append(begins, begin[1])
			if !strings.Contains(code, `"`+begin[1]) {
				t.Errorf("docs/log.md: no line begins with %s", begin[1])
			}
		}
	}
	for _, message := range messages {
		isDescribed := slices.ContainsFunc(append(begins, "settled"),
			func(begin string) bool { return strings.HasPrefix(message[1], begin) })
		if !isDescribed && !strings.Contains(notServed, message[0]) {
			t.Errorf("docs/log.md does not have the line %q", message[1])
		}
	}
}
