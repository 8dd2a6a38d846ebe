package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const workflow = ".github/workflows/ci.yml"

// TestPermissions: each job has the permissions that it needs, and no others.
func TestPermissions(t *testing.T) {
	text := mustRead(t, filepath.Join(projectRoot, workflow))
	if !strings.Contains(text, "\npermissions: {}\n") {
		t.Error("jobs without permissions of their own have some")
	}
	_, jobs, _ := strings.Cut(text, "\njobs:\n")
	names := regexp.MustCompile(`(?m)^  ([a-z]+):$`).FindAllStringSubmatchIndex(jobs, -1)
	for i, at := range names {
		job := jobs[at[0]:]
		if i+1 < len(names) {
			job = jobs[at[0]:names[i+1][0]]
		}
		var got []string
		permission := regexp.MustCompile(`(?m)^      ([a-z-]+: (?:read|write))\b`)
		for _, match := range permission.FindAllStringSubmatch(job, -1) {
			got = append(got, match[1])
		}
		slices.Sort(got)
		want := []string{"contents: read"}
		switch jobs[at[2]:at[3]] {
		case "image":
			want = []string{"attestations: write", "contents: read", "id-token: write", "packages: write"}
		case "release":
			want = []string{"attestations: write", "contents: write", "id-token: write"}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("permissions of job %s (-want +got):\n%s", jobs[at[2]:at[3]], diff)
		}
	}
}

// TestActionsArePinned: a tag of an action can move to other code, a commit cannot. Dependabot reads the comment.
func TestActionsArePinned(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(projectRoot, ".github", "workflows", "*.yml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no workflows: %v", err)
	}
	pinned := regexp.MustCompile(`^actions/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	for _, path := range paths {
		for _, match := range regexp.MustCompile(`uses: *(.*)`).FindAllStringSubmatch(mustRead(t, path), -1) {
			if !pinned.MatchString(match[1]) {
				t.Errorf("%s: %s is no action of GitHub's, pinned by commit, with its version", path, match[1])
			}
		}
	}
}

// TestImage: the script pushes the package as two images, with the version in their tags, and names their digests.
func TestImage(t *testing.T) {
	folder := t.TempDir()
	calls := filepath.Join(folder, "calls")
	fake := `#!/bin/sh
echo "$(basename "$0") $*" >> "$CALLS"
case "$1 $2" in
"login ghcr.io") read -r password && echo "password $password" >> "$CALLS" ;;
"image inspect") case "$*" in *-worker) hash=5678 ;; *) hash=1234 ;; esac
	echo ghcr.io/contoso/async-caller@sha256:$hash ;;
esac
`
	for _, program := range []string{"make", "unzip", "docker"} {
		if err := os.WriteFile(filepath.Join(folder, program), []byte(fake), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	mustWrite(t, folder, map[string]string{".ci/image": mustRead(t, filepath.Join(projectRoot, ".ci", "image"))})
	script := exec.CommandContext(t.Context(), "bash", filepath.Join(folder, ".ci", "image"))
	script.Env = append(os.Environ(), "PATH="+folder+string(os.PathListSeparator)+os.Getenv("PATH"), "CALLS="+calls,
		"GITHUB_REPOSITORY=Contoso/Async-Caller", "GITHUB_ACTOR=me", "TOKEN=secret", "TAG=v1.2.3-rc.1")
	output, err := script.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	const (
		image = "ghcr.io/contoso/async-caller"
		build = "docker build --label org.opencontainers.image.source=https://github.com/Contoso/Async-Caller --file "
	)
	want := strings.Join([]string{
		"make package",
		"unzip -q dist/async-caller.zip -d dist/image",
		"docker login ghcr.io --username me --password-stdin",
		"password secret",
		build + "deploy/Dockerfile --tag " + image + ":1.2.3-rc.1 dist/image",
		"docker push " + image + ":1.2.3-rc.1",
		build + "deploy/worker.Dockerfile --tag " + image + ":1.2.3-rc.1-worker dist/image",
		"docker push " + image + ":1.2.3-rc.1-worker",
		"docker image inspect --format {{index .RepoDigests 0}} " + image + ":1.2.3-rc.1",
		"docker image inspect --format {{index .RepoDigests 0}} " + image + ":1.2.3-rc.1-worker",
		"",
	}, "\n")
	if diff := cmp.Diff(want, mustRead(t, calls)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if got := string(output); got != "name="+image+"\ndigest=sha256:1234\nworker=sha256:5678\n" {
		t.Errorf("printed %q", got)
	}
}
