package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// setGit makes Git ignore the user's settings, and make the same commits each time.
func setGit(t *testing.T) {
	t.Helper()
	for name, value := range map[string]string{
		"GIT_CONFIG_GLOBAL": os.DevNull, "GIT_CONFIG_NOSYSTEM": "1",
		"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.com", "GIT_AUTHOR_DATE": "2026-01-02T03:04:05Z",
		"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.com", "GIT_COMMITTER_DATE": "2026-01-02T03:04:05Z",
	} {
		t.Setenv(name, value)
	}
}

func mustGit(t *testing.T, dir string, args ...string) {
	t.Helper()
	if _, err := git(t.Context(), dir, args...); err != nil {
		t.Fatal(err)
	}
}

// newRepository returns a checkout of a small project whose executable is quickly built.
func newRepository(t *testing.T) string {
	t.Helper()
	setGit(t)
	project := newProject(t, "Work")
	mustWrite(t, project, map[string]string{
		"go.mod": "module asynccaller\n\ngo 1.26.0\n", "handler/main.go": "package main\n\nfunc main() {}\n",
		".gitignore": "/dist/\n",
		"README.md":  "[a](docs/a.md#b), [c](https://example.com/c), [here](#d)\n",
		"CHANGELOG.md": "# Changelog\n\n## [Unreleased]\n\nlater\n\n" +
			"## [1.2.3] - 2026-01-02\n\n### Added\n\n- [first](docs/a.md)\n\n## [1.2.2]\n\nold\n",
	})
	mustGit(t, project, "init", "-q")
	commit(t, project)
	return project
}

func commit(t *testing.T, project string) {
	t.Helper()
	mustGit(t, project, "add", "-A")
	mustGit(t, project, "commit", "-q", "-m", "x")
}

// TestReadmeOfAnArchive: the links of this project's README work outside the project.
func TestReadmeOfAnArchive(t *testing.T) {
	page := absolute(mustRead(t, filepath.Join(projectRoot, "README.md")), "https://example.com/at-tag/")
	links := regexp.MustCompile(`\]\([^)]*|\]: *\S+|(?:href|src)=\S+`).FindAllString(page, -1)
	for _, link := range links {
		if !strings.HasPrefix(link, "](https://") && !strings.HasPrefix(link, "](#") {
			t.Errorf("the link %s) does not work in an archive", link)
		}
	}
	if !strings.Contains(page, "](https://example.com/at-tag/docs/commands.md#settings-and-files)") {
		t.Error("the link to docs/commands.md is not absolute")
	}
}

// TestVersion: an executable has the version of its tag, also in a clone without history, or that of its commit.
func TestVersion(t *testing.T) {
	const unknown = `^devel, unknown commit$`
	remove := func(t *testing.T, project, path string) string {
		t.Helper()
		if err := os.RemoveAll(filepath.Join(project, path)); err != nil {
			t.Fatal(err)
		}
		return project
	}
	for name, test := range map[string]struct {
		prepare func(t *testing.T, project string) string // returns the project to build
		want    string
	}{
		"no_tag": {
			func(_ *testing.T, project string) string { return project },
			`^0\.0\.0-20260102030405-[0-9a-f]{12}, commit [0-9a-f]{40}$`,
		},
		"shallow_clone": {func(t *testing.T, project string) string {
			t.Helper()
			mustWrite(t, project, map[string]string{"README.md": "y"})
			commit(t, project)
			mustGit(t, project, "tag", "v1.2.3")
			clone := filepath.Join(t.TempDir(), "clone")
			mustGit(t, ".", "clone", "-q", "--depth=1", "file://"+filepath.ToSlash(project), clone)
			return clone
		}, `^1\.2\.3, commit [0-9a-f]{40}$`},
		"no_history": {func(t *testing.T, project string) string { return remove(t, project, ".git") }, unknown},
		"broken_git": {func(t *testing.T, project string) string { return remove(t, project, ".git/HEAD") }, unknown},
		"no_git": {func(t *testing.T, project string) string {
			t.Helper()
			t.Setenv("PATH", goFolder(t))
			return project
		}, unknown},
	} {
		t.Run(name, func(t *testing.T) {
			project := test.prepare(t, newRepository(t))
			built, err := compileAll(t.Context(), project, t.TempDir(), platforms[:1])
			if err != nil {
				t.Fatal(err)
			}
			version := versionOf(built[0].info) + ", " + commitOf(built[0].info)
			if !regexp.MustCompile(test.want).MatchString(version) {
				t.Errorf("the version is %q, want %s", version, test.want)
			}
		})
	}
}

// goFolder returns the folder of the Go tool, which has no other tools.
func goFolder(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("go")
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(path)
}

func TestRefusedRelease(t *testing.T) {
	t.Setenv("GOTOOLCHAIN", "local") // download no compiler
	type files map[string]string
	tests := map[string]struct {
		files files
		tag   string
		want  string
	}{
		"changed_file":     {files{"README.md": "changed"}, "v1.2.3", "README.md"},
		"new_file":         {files{"new.txt": "x"}, "v1.2.3", "commit or stash these changes\n?? new.txt"},
		"not_in_changelog": {nil, "v1.2.4", "CHANGELOG.md has nothing about the tag v1.2.4: add a section ## [1.2.4]"},
		"older_compiler": {
			files{"go.mod": "module asynccaller\n\ngo 1.26.0\n\ntoolchain go1.999.1\n", "commit": ""},
			"v1.2.3",
			"but go.mod names go1.999.1 for a release: install that version or a later one",
		},
		"code_with_mistakes": {
			files{"handler/main.go": "package main\n\nfunc main() { x }\n", "commit": ""},
			"v1.2.3", "build ",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			project := newRepository(t)
			mustWrite(t, project, test.files)
			if _, ok := test.files["commit"]; ok {
				commit(t, project)
			}
			mustGit(t, project, "tag", test.tag)
			dist := filepath.Join(project, "dist")
			err := makeRelease(t.Context(), project, dist, "contoso/async-caller", platforms[:1], io.Discard)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if _, err := os.Stat(filepath.Join(project, "dist", "release", sums)); err == nil {
				t.Error("there are sums of a release that failed")
			}
		})
	}
}

// TestChangelog: each version has a date and says what changed, the newest first.
func TestChangelog(t *testing.T) {
	text := mustRead(t, filepath.Join(projectRoot, "CHANGELOG.md"))
	headings := regexp.MustCompile(`(?m)^## .*$`).FindAllString(text, -1)
	if len(headings) == 0 {
		t.Error("no versions")
	}
	for _, heading := range headings {
		match := regexp.MustCompile(`^## \[(\d+\.\d+\.\d+\S*)\] - \d{4}-\d\d-\d\d$`).FindStringSubmatch(heading)
		if match == nil && heading == "## [Unreleased]" {
			continue
		}
		if match == nil {
			t.Errorf("%q is not like ## [1.2.3] - 2026-01-02", heading)
		} else if _, ok := changes(text, match[1]); !ok {
			t.Errorf("nothing about %s", match[1])
		}
	}
}
