package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

// release makes a release for these platforms, because each one costs some seconds. It returns the files, and what was
// printed.
func release(t *testing.T, project string, platforms ...platform) (files map[string]string, printed string) {
	t.Helper()
	var out strings.Builder
	dist := filepath.Join(project, "dist")
	if err := makeRelease(t.Context(), project, dist, "Contoso/async-caller", platforms, &out); err != nil {
		t.Fatal(err)
	}
	return tree(t, filepath.Join(project, "dist", "release")), out.String()
}

func TestRelease(t *testing.T) {
	project := newRepository(t)
	mustGit(t, project, "tag", "v1.2.3")
	mustWrite(t, project, map[string]string{"dist/release/of-before.zip": "x"})
	files, printed := release(t, project, functionApp, platform{"windows", "amd64"})

	want := []string{
		"SHA256SUMS", "async-caller_1.2.3_app.zip", "async-caller_1.2.3_linux_amd64.cdx.json",
		"async-caller_1.2.3_linux_amd64.tar.gz", "async-caller_1.2.3_windows_amd64.cdx.json",
		"async-caller_1.2.3_windows_amd64.zip", "notes.md",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(files))); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if !regexp.MustCompile(`dist.release has version 1\.2\.3, commit [0-9a-f]{40}\n$`).MatchString(printed) {
		t.Errorf("printed %q", printed)
	}
	const atTag = "https://github.com/Contoso/async-caller/blob/v1.2.3/"
	for _, want := range []string{
		"### Added\n\n- [first](" + atTag + "docs/a.md)\n",
		"\n    gh attestation verify async-caller_1.2.3_linux_amd64.tar.gz --repo Contoso/async-caller\n",
		"\n    gh attestation verify oci://ghcr.io/contoso/async-caller:1.2.3 --repo Contoso/async-caller\n",
		"\n    gh attestation verify oci://ghcr.io/contoso/async-caller:1.2.3-worker --repo Contoso/async-caller\n",
	} {
		if !strings.Contains(files["notes.md"], want) {
			t.Errorf("want %q in the notes:\n%s", want, files["notes.md"])
		}
	}
	if files["async-caller_1.2.3_app.zip"] != mustRead(t, filepath.Join(project, "dist", archive)) {
		t.Error("the app is not the package that `make deploy` and azd use")
	}
	checkSums(t, files)

	zip := mustUnzip(t, filepath.Join(project, "dist", "release", "async-caller_1.2.3_windows_amd64.zip"))
	unpacked := untar(t, files["async-caller_1.2.3_linux_amd64.tar.gz"])
	checkBOM(t, files["async-caller_1.2.3_windows_amd64.cdx.json"], zip["async-caller.exe"].content)
	for archive, test := range map[string]struct {
		files      map[string]packedFile
		executable string
		magic      string
	}{"zip": {zip, "async-caller.exe", "MZ"}, "tar": {unpacked, "async-caller", "\x7fELF"}} {
		if diff := cmp.Diff([]string{"README.md", test.executable}, slices.Sorted(maps.Keys(test.files))); diff != "" {
			t.Errorf("files in the %s (-want +got):\n%s", archive, diff)
		}
		if e := test.files[test.executable]; e.mode != 0o755 || !strings.HasPrefix(e.content, test.magic) {
			t.Errorf("the executable in the %s has mode %v and begins with %.4q", archive, e.mode, e.content)
		}
		want := "[a](" + atTag + "docs/a.md#b), [c](https://example.com/c), [here](#d)\n"
		if diff := cmp.Diff(want, test.files["README.md"].content); diff != "" {
			t.Errorf("README.md in the %s (-want +got):\n%s", archive, diff)
		}
	}
}

func checkSums(t *testing.T, files map[string]string) {
	t.Helper()
	var want strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if name != "SHA256SUMS" && name != "notes.md" {
			fmt.Fprintf(&want, "%x  %s\n", sha256.Sum256([]byte(files[name])), name)
		}
	}
	if diff := cmp.Diff(want.String(), files["SHA256SUMS"]); diff != "" {
		t.Errorf("SHA256SUMS (-want +got):\n%s", diff)
	}
}

// checkBOM checks that an SBOM is about an executable for Windows, and has nothing of the machine that made it.
func checkBOM(t *testing.T, text, executable string) {
	t.Helper()
	type component struct {
		Name, Version, PURL string
		Licenses            []struct{ License struct{ ID string } }
	}
	type origin struct {
		Name string
		URL  []string
	}
	var bom struct {
		BOMFormat, SerialNumber string
		Metadata                struct {
			Timestamp  string
			Authors    []origin
			Supplier   origin
			Tools      []struct{ Hashes []any }
			Component  component
			Properties []struct{ Name, Value string }
		}
		Components []component
	}
	if err := json.Unmarshal([]byte(text), &bom); err != nil {
		t.Fatal(err)
	}
	main := component{Name: "asynccaller", Version: "v1.2.3", PURL: "pkg:golang/asynccaller@v1.2.3"}
	if diff := cmp.Diff(main, bom.Metadata.Component); bom.BOMFormat != "CycloneDX" || diff != "" {
		t.Errorf("the SBOM is about (-want +got):\n%s", diff)
	}
	std, _, _ := strings.Cut(runtime.Version(), " ") // experiments follow
	if len(bom.Components) != 1 || bom.Components[0].Name != "std" || bom.Components[0].Version != std {
		t.Fatalf("the components are %+v, want Go's standard library", bom.Components)
	}
	if got := fmt.Sprint(bom.Components[0].Licenses); got != "[{{BSD-3-Clause}}]" {
		t.Errorf("the licence of Go's standard library is %s", got)
	}
	properties := map[string]string{}
	for _, property := range bom.Metadata.Properties {
		properties[property.Name] = property.Value
	}
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(executable)))
	if properties["cdx:gomod:build:env:GOOS"] != "windows" || properties["cdx:gomod:binary:hash:SHA-256"] != sum {
		t.Errorf("the SBOM is about %v, want an executable for Windows with the sum %s", properties, sum)
	}
	if bom.SerialNumber != "" || bom.Metadata.Tools[0].Hashes != nil {
		t.Errorf("the SBOM differs from machine to machine: %+v", bom)
	}
	if m := bom.Metadata; m.Timestamp != "2026-01-02T03:04:05Z" || len(m.Authors) != 1 ||
		m.Authors[0].Name != "Contoso/async-caller" ||
		!cmp.Equal(m.Supplier, origin{"Contoso/async-caller", []string{"https://github.com/Contoso/async-caller"}}) {
		t.Errorf("want the repository as author and supplier, and the time of the commit: %+v", m)
	}
}

// TestLicences: the SBOMs name the licence of every module that gets into an executable.
func TestLicences(t *testing.T) {
	all := map[string][]string{}
	for _, p := range []platform{functionApp, {"windows", "arm64"}} {
		licences, err := licencesOf(t.Context(), projectRoot, p)
		if err != nil {
			t.Fatal(err)
		}
		var components []any
		for path := range licences {
			components = append(components, object{"name": path})
		}
		if err := setLicences(object{"components": components}, licences); err != nil {
			t.Error(err)
		}
		maps.Copy(all, licences)
	}
	for path, want := range map[string]string{
		"github.com/Azure/azure-sdk-for-go/sdk/azcore": "[MIT]", "github.com/google/uuid": "[BSD-3-Clause]",
		"github.com/spf13/cobra": "[Apache-2.0]", "github.com/inconshreveable/mousetrap": "[Apache-2.0]", // on Windows
	} {
		if got := fmt.Sprint(all[path]); got != want {
			t.Errorf("%s has the licences %s, want %s", path, got, want)
		}
	}
	err := setLicences(object{"components": []any{object{"name": "example.com/unknown"}}}, all)
	if err == nil || !strings.Contains(err.Error(), "example.com/unknown has no known licence") {
		t.Errorf("a module without a licence: %v", err)
	}
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

func untar(t *testing.T, archive string) map[string]packedFile {
	t.Helper()
	compressed, err := gzip.NewReader(strings.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]packedFile{}
	for r := tar.NewReader(compressed); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		content, readErr := io.ReadAll(r)
		if err := errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		files[header.Name] = packedFile{header.FileInfo().Mode(), string(content)}
	}
}

// A user can build a release again, elsewhere and with other settings, and compare the sums.
func TestReleaseIsReproducible(t *testing.T) {
	project := newRepository(t)
	mustGit(t, project, "tag", "v1.2.3")
	first, _ := release(t, project, functionApp)

	clone := filepath.Join(t.TempDir(), "another", "folder")
	mustGit(t, ".", "clone", "-q", project, clone)
	t.Setenv("GOFLAGS", "-buildvcs=false -ldflags=-X=main.x=y")
	t.Setenv("GOOS", "plan9")
	t.Setenv("GOAMD64", "v3")
	t.Setenv("TZ", "Asia/Tokyo")
	second, _ := release(t, clone, functionApp)
	for name, content := range first {
		if second[name] != content {
			t.Errorf("%s differs: %d bytes, before %d", name, len(second[name]), len(content))
		}
	}
	if len(first) != len(second) {
		t.Errorf("%d files, before %d", len(second), len(first))
	}
}

// This project, built twice: neither the folder nor the time is in the executable. It is built as `make build` does,
// which `make demo` does as well, so that the test costs little.
func TestProjectIsReproducible(t *testing.T) {
	setGit(t)
	var executables []string
	for _, folder := range []string{"one", "the/other"} {
		project := filepath.Join(t.TempDir(), filepath.FromSlash(folder))
		copySource(t, project)
		mustGit(t, project, "init", "-q")
		commit(t, project)
		mustGit(t, project, "tag", "v1.2.3")
		output := filepath.Join(project, "dist", "async-caller")
		if err := compile(t.Context(), project, output); err != nil {
			t.Fatal(err)
		}
		executables = append(executables, mustRead(t, output))
		if strings.Contains(executables[0], filepath.Dir(project)) {
			t.Errorf("the executable contains the name of the folder %s", filepath.Dir(project))
		}
	}
	if executables[0] != executables[1] {
		t.Errorf("the executables differ: %d and %d bytes", len(executables[0]), len(executables[1]))
	}
}

// copySource copies the Go code of this project.
func copySource(t *testing.T, project string) {
	t.Helper()
	files := map[string]string{".gitignore": "/dist/\n"}
	for _, name := range []string{"go.mod", "go.sum"} {
		files[name] = mustRead(t, filepath.Join(projectRoot, name))
	}
	folder := filepath.Join(projectRoot, "handler")
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.Name() == "node_modules", entry.Name() == "testdata":
			return filepath.SkipDir
		case !entry.IsDir() && !strings.HasSuffix(path, "_test.go"):
			name, err := filepath.Rel(projectRoot, path)
			files[filepath.ToSlash(name)] = mustRead(t, path)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, project, files)
}

func TestVersionOfRelease(t *testing.T) {
	const unknown = `^devel, unknown commit$`
	tests := map[string]struct {
		prepare func(t *testing.T, project string)
		want    string
	}{
		"no_tag":     {func(*testing.T, string) {}, `^0\.0\.0-20260102030405-[0-9a-f]{12}, commit [0-9a-f]{40}$`},
		"no_history": {func(t *testing.T, project string) { removeAll(t, project, ".git") }, unknown},
		"broken_git": {func(t *testing.T, project string) { removeAll(t, project, ".git/HEAD") }, unknown},
		"no_git":     {func(t *testing.T, _ string) { t.Setenv("PATH", goFolder(t)) }, unknown},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			project := newRepository(t)
			test.prepare(t, project)
			_, printed := release(t, project, functionApp)
			_, version, _ := strings.Cut(strings.TrimSpace(printed), " has version ")
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

func removeAll(t *testing.T, project, path string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(project, path)); err != nil {
		t.Fatal(err)
	}
}

// TestShallowClone: a clone without history has the version of its tag.
func TestShallowClone(t *testing.T) {
	project := newRepository(t)
	mustWrite(t, project, map[string]string{"README.md": "y"})
	commit(t, project)
	mustGit(t, project, "tag", "v1.2.3")
	clone := filepath.Join(t.TempDir(), "clone")
	mustGit(t, ".", "clone", "-q", "--depth=1", "file://"+filepath.ToSlash(project), clone)
	if _, printed := release(t, clone, functionApp); !strings.Contains(printed, "version 1.2.3, commit") {
		t.Errorf("printed %q", printed)
	}
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
