package main

import (
	"archive/tar"
	"archive/zip"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	goversion "go/version"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	// releases is the folder of the files of a release, in dist.
	releases = "release"
	// sums lists the SHA-256 sums of the other files, as `sha256sum -c` reads them. Notes is the text of the release.
	sums  = "SHA256SUMS"
	notes = "notes.md"
)

// platforms are those of a release.
var platforms = []platform{
	functionApp,
	{"linux", "arm64"},
	{"darwin", "arm64"},
	{"darwin", "amd64"},
	{"windows", "amd64"},
	{"windows", "arm64"},
}

// repositoryName matches the names of repositories on GitHub.
var repositoryName = regexp.MustCompile(`^[A-Za-z0-9-]+/[A-Za-z0-9._-]+$`)

// makeRelease makes the files of a release: for each platform an archive with the executable and its SBOM, the package,
// and the sums. The same commit makes the same files with the same version of Go, wherever it is built. The repository
// is where the release is published, for links. The package stays in dist as well.
func makeRelease(
	ctx context.Context, project, dist, repository string, platforms []platform, out io.Writer,
) error {
	if !repositoryName.MatchString(repository) {
		return fmt.Errorf("%q is no repository of GitHub: give it as owner/name", repository)
	}
	if err := errors.Join(checkNoChanges(ctx, project), checkCompiler(ctx, project)); err != nil {
		return err
	}
	folder := filepath.Join(dist, releases)
	if err := errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o755)); err != nil {
		return err
	}
	built, err := os.MkdirTemp(dist, "built-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(built) }()
	executables, err := compileAll(ctx, project, built, platforms)
	if err != nil {
		return err
	}
	version := versionOf(executables[0].info)
	if err := writeNotes(project, folder, repository, version); err != nil {
		return err
	}
	files := filesAt(repository, executables[0].info)
	prefix := filepath.Join(folder, executable+"_"+version+"_")
	for _, e := range executables {
		path := prefix + e.system + "_" + e.processor
		if err := packExecutable(project, files, e, path); err != nil {
			return err
		}
		if err := writeSBOM(ctx, project, repository, e, path+".cdx.json"); err != nil {
			return err
		}
	}
	if err := releasePackage(project, dist, executables); err != nil {
		return err
	}
	if err := copyFile(filepath.Join(dist, archive), prefix+"app.zip"); err != nil {
		return err
	}
	if err := writeSums(folder); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s has version %s, %s\n", folder, version, commitOf(executables[0].info))
	return err
}

// releasePackage makes the package, as makePackage does, of an executable of the release.
func releasePackage(project, dist string, executables []built) error {
	i := slices.IndexFunc(executables, func(e built) bool { return e.platform == functionApp })
	if i < 0 {
		return errors.New("the platforms of a release do not include that of a Function App")
	}
	path := filepath.Join(dist, inside, executable)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := copyFile(executables[i].path, path); err != nil {
		return err
	}
	if err := os.Chmod(path, 0o755); err != nil {
		return err
	}
	return stagePackage(project, dist)
}

// checkNoChanges returns an error if the project is a checkout with changes, because a release is a commit.
func checkNoChanges(ctx context.Context, project string) error {
	if _, err := os.Stat(filepath.Join(project, ".git")); err != nil {
		return nil //nolint:nilerr // the source without its history has no commit to differ from
	}
	changes, err := git(ctx, project, "status", "--porcelain")
	if err == nil && changes != "" {
		return fmt.Errorf("a release is made of a commit: commit or stash these changes\n%s", changes)
	}
	return nil // what Git cannot read is built without a commit
}

// toolchain matches the line of go.mod that names the Go version with the latest security fixes.
var toolchain = regexp.MustCompile(`(?m)^toolchain (go\S+)`)

// checkCompiler returns an error if the Go version is older than the toolchain that go.mod names, whose fixes a release
// must have. The Go tool itself ignores that line when GOTOOLCHAIN is local.
func checkCompiler(ctx context.Context, project string) error {
	content, err := os.ReadFile(filepath.Join(project, "go.mod"))
	if err != nil {
		return err
	}
	wanted := toolchain.FindSubmatch(content)
	if wanted == nil {
		return nil
	}
	command := exec.CommandContext(ctx, "go", "env", "GOVERSION")
	command.Dir = project
	output, err := command.Output()
	if err != nil {
		return fmt.Errorf("go env GOVERSION: %w", err)
	}
	used := strings.TrimSpace(string(output))
	if goversion.Compare(used, string(wanted[1])) < 0 {
		return fmt.Errorf("the compiler is %s, but go.mod names %s for a release: install that version or a later one",
			used, wanted[1])
	}
	return nil
}

// built is an executable, and what the Go tool recorded in it.
type built struct {
	platform
	path string
	info *buildinfo.BuildInfo
}

func compileAll(ctx context.Context, project, folder string, platforms []platform) ([]built, error) {
	var all []built
	for _, p := range platforms {
		path := filepath.Join(folder, p.system+"_"+p.processor, p.executable())
		if err := compileFor(ctx, project, p, path); err != nil {
			return nil, err
		}
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return nil, err
		}
		all = append(all, built{p, path, info})
	}
	return all, nil
}

// versionOf returns the version for names of files: 1.2.3 for the tag v1.2.3, a pseudo-version, or devel without a
// commit.
func versionOf(info *buildinfo.BuildInfo) string {
	return strings.TrimPrefix(strings.Trim(info.Main.Version, "()"), "v")
}

// filesAt returns the address of the project's files at the tag or, without one, at the commit.
func filesAt(repository string, info *buildinfo.BuildInfo) string {
	ref := "v" + versionOf(info)
	if untagged.MatchString(ref) {
		ref = cmp.Or(setting(info, "vcs.revision"), "HEAD")
	}
	return addressOf(repository) + "/blob/" + ref + "/"
}

func addressOf(repository string) string { return "https://github.com/" + repository }

// relativeLink matches a Markdown link to another file of the project.
var relativeLink = regexp.MustCompile(`\]\(([^):#][^):]*)\)`)

// absolute returns a page whose links name the project's files by their address, because an archive has no other pages.
func absolute(page, files string) string {
	return relativeLink.ReplaceAllString(page, "]("+files+"$1)")
}

func commitOf(info *buildinfo.BuildInfo) string {
	if commit := setting(info, "vcs.revision"); commit != "" {
		return "commit " + commit
	}
	return "unknown commit"
}

func setting(info *buildinfo.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// untagged matches the versions of commits without a tag.
var untagged = regexp.MustCompile(`\d{14}-[0-9a-f]{12}$|devel$`)

// verification says how to verify a release: %[1]s is the repository, %[2]s the version, %[3]s the image.
const verification = `
## Verify a download

The workflow of the repository has attested each file and the container images %[3]s:%[2]s and
%[3]s:%[2]s-worker.

    gh attestation verify async-caller_%[2]s_linux_amd64.tar.gz --repo %[1]s
    gh attestation verify oci://%[3]s:%[2]s --repo %[1]s
    gh attestation verify oci://%[3]s:%[2]s-worker --repo %[1]s
`

// writeNotes writes the part of CHANGELOG.md about a version, and how to verify it. A tagged version must have one.
func writeNotes(project, folder, repository, version string) error {
	if untagged.MatchString(version) {
		return nil
	}
	changelog, err := os.ReadFile(filepath.Join(project, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	text, found := changes(string(changelog), version)
	if !found {
		return fmt.Errorf("CHANGELOG.md has nothing about the tag v%s: add a section ## [%[1]s]", version)
	}
	text = absolute(text, addressOf(repository)+"/blob/v"+version+"/")
	text += fmt.Sprintf(verification, repository, version, "ghcr.io/"+strings.ToLower(repository))
	return os.WriteFile(filepath.Join(folder, notes), []byte(text), 0o644)
}

// changes returns the text about a version in a changelog.
func changes(changelog, version string) (text string, found bool) {
	for section := range strings.SplitSeq(changelog, "\n## ") {
		if heading, text, _ := strings.Cut(section, "\n"); strings.HasPrefix(heading, "["+version+"]") {
			text = strings.TrimSpace(text)
			return text + "\n", text != ""
		}
	}
	return "", false
}

// packExecutable packs an executable with the README, in the archive format that its platform opens without further
// programs.
func packExecutable(project, files string, e built, path string) error {
	folder := filepath.Dir(e.path)
	const readme = "README.md"
	page, err := os.ReadFile(filepath.Join(project, readme))
	if err != nil {
		return err
	}
	page = []byte(absolute(string(page), files))
	if err := os.WriteFile(filepath.Join(folder, readme), page, 0o644); err != nil {
		return err
	}
	pack := writeTar
	if e.system == "windows" {
		pack = writeZip
		path += ".zip"
	} else {
		path += ".tar.gz"
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(pack(file, folder, readme, e.executable()), file.Close())
}

func writeZip(out io.Writer, folder string, names ...string) error {
	w := zip.NewWriter(out)
	for _, name := range names {
		if err := addToZip(w, folder, name); err != nil {
			return err
		}
	}
	return w.Close()
}

func writeTar(out io.Writer, folder string, names ...string) error {
	compressed := gzip.NewWriter(out)
	w := tar.NewWriter(compressed)
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return err
		}
		header := &tar.Header{Name: name, Size: int64(len(content)), Mode: 0o644, ModTime: oldest}
		if isExecutable(name) {
			header.Mode = 0o755
		}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := w.Write(content); err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), compressed.Close())
}

func writeSums(folder string) error {
	entries, err := os.ReadDir(folder) // sorted by name
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, entry := range entries {
		if entry.Name() == notes {
			continue
		}
		sum, err := sha256Of(filepath.Join(folder, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%s  %s\n", sum, entry.Name())
	}
	return os.WriteFile(filepath.Join(folder, sums), []byte(lines.String()), 0o644)
}

func sha256Of(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(content)), nil
}
