//go:build long

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
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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

// TestRelease: a user can build a release again, elsewhere and with other settings, and compare the sums.
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

	clone := filepath.Join(t.TempDir(), "another", "folder")
	mustGit(t, ".", "clone", "-q", project, clone)
	t.Setenv("GOFLAGS", "-buildvcs=false -ldflags=-X=main.x=y")
	t.Setenv("GOOS", "plan9")
	t.Setenv("GOAMD64", "v3")
	t.Setenv("TZ", "Asia/Tokyo")
	again, _ := release(t, clone, functionApp)
	for name, content := range again {
		if files[name] != content && name != sums {
			t.Errorf("%s differs: %d bytes, before %d", name, len(content), len(files[name]))
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
