package main

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/app/functionapp"
)

// projectRoot is this project's folder.
const projectRoot = "../../.."

// The names that the Functions host accepts (docs/host.md, "App folder").
var (
	functionName = regexp.MustCompile(`(?i)^[a-z][a-z0-9_-]{0,127}$`)
	bindingName  = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9]{0,127}$`)
)

// mustWrite writes files below a folder, by paths with forward slashes.
func mustWrite(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for path, content := range files {
		path = filepath.Join(dir, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// tree returns the files below a folder with their content.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		files[filepath.ToSlash(name)] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// newDist returns a dist folder with the executables that the Go tool builds. Like on Windows, or on a disk without
// permissions, they have no run bit.
func newDist(t *testing.T) string {
	t.Helper()
	dist := filepath.Join(t.TempDir(), "dist")
	mustWrite(t, dist, map[string]string{"async-caller": thisMachine, "package/async-caller": "\x7fELF machine code"})
	return dist
}

// thisMachine is the executable for this machine.
const thisMachine = "MZ machine code"

func mustStage(t *testing.T, project, dist string) {
	t.Helper()
	if err := stage(project, dist); err != nil {
		t.Fatal(err)
	}
}

func mustPack(t *testing.T, project, dist string) {
	t.Helper()
	if err := stagePackage(project, dist); err != nil {
		t.Fatal(err)
	}
}

// newProject returns the folder of a small project with functions of these names.
func newProject(t *testing.T, functions ...string) string {
	t.Helper()
	project := t.TempDir()
	files := map[string]string{
		"host.json": "{}", "local.settings.json": "{}", "README.md": "x", "handler/main.go": "package main",
	}
	for _, name := range functions {
		files["functions/"+name+"/function.json"] = `{"name":"` + name + `"}`
	}
	mustWrite(t, project, files)
	return project
}

// TestStagedProject: dist has the functions and files of the project. The host ignores what breaks its rules.
func TestStagedProject(t *testing.T) {
	dist := newDist(t)
	mustStage(t, projectRoot, dist)
	staged := tree(t, dist)
	want := map[string]string{
		"async-caller": thisMachine, "package/async-caller": staged["package/async-caller"],
		".funcignore": staged[".funcignore"],
	}
	for _, name := range []string{"host.json", "local.settings.json"} {
		want[name] = mustRead(t, filepath.Join(projectRoot, name))
	}
	maps.Copy(want, tree(t, filepath.Join(projectRoot, "functions")))
	if diff := cmp.Diff(want, staged); diff != "" {
		t.Errorf("dist (-want +got):\n%s", diff)
	}
	for path, content := range staged {
		name, isFunction := strings.CutSuffix(path, "/function.json")
		if !isFunction {
			if strings.Contains(path, "/") && path != "package/async-caller" {
				t.Errorf("%s is in a folder without function.json", path)
			}
			continue
		}
		if !functionName.MatchString(name) || strings.EqualFold(name, "host") {
			t.Errorf("%s: the folder's name is no function name", path)
		}
		var file struct {
			ScriptFile string `json:"scriptFile"`
			Bindings   []struct{ Name, Type, DataType, Direction, Schedule string }
		}
		if err := json.Unmarshal([]byte(content), &file); err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if len(file.Bindings) != 1 || file.ScriptFile != "" {
			t.Errorf("%s: want one binding, the trigger, and no script: %+v", path, file)
		}
		for _, b := range file.Bindings {
			isQueue := b.Type == "queueTrigger" && b.DataType == "binary"
			isTimer := b.Type == "timerTrigger" && b.Schedule != ""
			if !bindingName.MatchString(b.Name) || b.Direction != "in" || !isQueue && !isTimer {
				t.Errorf("%s: binding %+v", path, b)
			}
		}
	}
	app, err := functionapp.Load(dist, nil)
	if err != nil {
		t.Fatal(err)
	}
	if functions, timers := len(app.Functions), len(app.Timers); functions != 11 || timers != 2 {
		t.Errorf("the handler finds %d functions and %d timers in dist, want 11 and 2", functions, timers)
	}
	if _, err := os.Stat(filepath.Join(dist, app.Host.Handler.Executable)); err != nil {
		t.Errorf("host.json names an executable that is not in dist: %v", err)
	}
}

func mustRead(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// packedFile is an entry of the zip.
type packedFile struct {
	mode    fs.FileMode
	content string
}

func mustUnzip(t *testing.T, path string) map[string]packedFile {
	t.Helper()
	r, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	files := map[string]packedFile{}
	for _, entry := range r.File {
		if _, twice := files[entry.Name]; twice {
			t.Errorf("%s is in the zip twice", entry.Name)
		}
		content, err := entry.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(content)
		if err := errors.Join(err, content.Close()); err != nil {
			t.Fatal(err)
		}
		files[entry.Name] = packedFile{entry.Mode(), string(text)}
	}
	return files
}

// The zip has the app and no other file, and the app for this machine stays.
func TestZip(t *testing.T) {
	dist := newDist(t)
	mustWrite(t, dist, map[string]string{"async-caller.zip": "the one before"})
	mustWrite(t, filepath.Join(dist, "package"), map[string]string{
		"async-caller.exe": "MZ", "other.zip": "PK", ".env": "SECRET=1", "main.go": "package main",
		"notes.txt": "x", "handler/main.go": "package main", "deep/er/function.json": "{}", ".git/config": "x",
		"go.mod":                    "module x",
		"AC-standard/function.json": "old", "AC-standard/sample.dat": "x", "AC-retired/function.json": "{}",
	})
	mustPack(t, projectRoot, dist)
	packed := mustUnzip(t, filepath.Join(dist, "async-caller.zip"))

	if got := mustRead(t, filepath.Join(dist, "async-caller")); got != thisMachine {
		t.Errorf("this machine's executable is now %q", got)
	}
	want := []string{"async-caller", "host.json"}
	for name := range tree(t, filepath.Join(projectRoot, "functions")) {
		want = append(want, name)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(packed))); diff != "" {
		t.Errorf("files in the zip (-want +got):\n%s", diff)
	}

	var host struct {
		CustomHandler struct {
			Description struct{ DefaultExecutablePath string }
		}
	}
	if err := json.Unmarshal([]byte(packed["host.json"].content), &host); err != nil {
		t.Fatal(err)
	}
	executablePath := host.CustomHandler.Description.DefaultExecutablePath
	if got := packed[executablePath].content; got != "\x7fELF machine code" {
		t.Errorf("host.json's executable %q is in the zip as %q", executablePath, got)
	}
	for name, file := range packed {
		if file.mode.Perm()&0o111 != 0 != (name == executablePath) {
			t.Errorf("%s has mode %v: want only the executable to be executable", name, file.mode)
		}
		if !file.mode.IsRegular() || file.mode.Perm()&0o444 != 0o444 {
			t.Errorf("%s has mode %v: want a file that everyone can read", name, file.mode)
		}
	}
}

func TestStagingAgain(t *testing.T) {
	dist := newDist(t)
	mustWrite(t, dist, map[string]string{"kept/notes.txt": "x"})
	mustStage(t, newProject(t, "Old", "Both"), dist)
	mustWrite(t, dist, map[string]string{"Both/function.json": "edited by hand", "Both/sample.dat": "x"})
	mustStage(t, newProject(t, "Both", "New"), dist)

	want := map[string]string{
		"async-caller": thisMachine, "package/async-caller": "\x7fELF machine code",
		"kept/notes.txt": "x", "host.json": "{}", "local.settings.json": "{}",
		".funcignore":        "async-caller.zip\npackage\nrelease\n",
		"Both/function.json": `{"name":"Both"}`, "New/function.json": `{"name":"New"}`,
	}
	if diff := cmp.Diff(want, tree(t, dist)); diff != "" {
		t.Errorf("dist (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(filepath.Join(dist, "Old")); err == nil {
		t.Error("the folder of a removed function still exists")
	}
}

// TestOptionalFiles: a file that the project no longer has is removed, so that it is not deployed again.
func TestOptionalFiles(t *testing.T) {
	project, dist := newProject(t, "Work"), newDist(t)
	for _, name := range []string{"retry.json", "targets.json", "routes.json"} {
		mustWrite(t, project, map[string]string{name: "{}"})
		mustPack(t, project, dist)
		if _, ok := mustUnzip(t, filepath.Join(dist, archive))[name]; !ok {
			t.Errorf("%s is not in the zip", name)
		}
		if err := os.Remove(filepath.Join(project, name)); err != nil {
			t.Fatal(err)
		}
		mustPack(t, project, dist)
		if _, ok := mustUnzip(t, filepath.Join(dist, archive))[name]; ok {
			t.Errorf("%s is in the zip, although the project has none", name)
		}
	}
}

// TestEditsInDist: a build loses no optional file that a person has put into dist or changed there. It stops, names
// each, and changes nothing.
func TestEditsInDist(t *testing.T) {
	files := []string{"retry.json", "targets.json", "routes.json"}
	local := func(project, dist string) error { return stage(project, dist) }
	for name, test := range map[string]struct {
		before, root, dist string // contents: at an earlier build, now in the project, and now in dist; empty for none
		want               string // a part of the error; empty if the build succeeds
	}{
		"none":                  {},
		"new_in_root":           {root: "{}"},
		"changed_in_root":       {before: "{}", root: "{ }", dist: "{}"},
		"removed_from_root":     {before: "{}", dist: "{}"},
		"removed_from_dist":     {before: "{}", root: "{}"},
		"same_by_hand":          {root: "{}", dist: "{}"},
		"only_in_dist":          {dist: "{}", want: "move it to "},
		"empty_in_dist":         {dist: " ", want: "move it to "},
		"changed_in_dist":       {before: "{}", root: "{}", dist: "{ }", want: "was changed after the last build"},
		"changed_in_both":       {before: "{}", root: "{ }", dist: "{  }", want: "was changed after the last build"},
		"same_change_in_both":   {before: "{}", root: "{ }", dist: "{ }"},
		"moved_out_and_changed": {before: "{}", dist: "{ }", want: "move it to "},
		"dist_of_an_older_tool": {root: "{ }", dist: "{}", want: "make your changes in "},
	} {
		for how, build := range map[string]func(project, dist string) error{"build": local, "package": stagePackage} {
			t.Run(name+"_"+how, func(t *testing.T) {
				project, dist := newProject(t, "Work"), newDist(t)
				put := func(folder, content string) {
					for _, file := range files {
						if content == "" {
							_ = os.Remove(filepath.Join(folder, file))
							continue
						}
						mustWrite(t, folder, map[string]string{file: content})
					}
				}
				if test.before != "" {
					put(project, test.before)
					mustStage(t, project, dist)
				}
				put(project, test.root)
				put(dist, test.dist)
				before := tree(t, dist)
				err := build(project, dist)
				if test.want == "" {
					if err != nil {
						t.Fatal(err)
					}
					return
				}
				for _, file := range files {
					if err == nil || !strings.Contains(err.Error(), filepath.Join(dist, file)+" was ") ||
						!strings.Contains(err.Error(), test.want) {
						t.Errorf("%s: error %v", file, err)
					}
				}
				if diff := cmp.Diff(before, tree(t, dist)); diff != "" {
					t.Errorf("dist has changed (-want +got):\n%s", diff)
				}
			})
		}
	}
	project, dist := newProject(t, "Work"), newDist(t)
	mustWrite(t, filepath.Join(dist, "package"), map[string]string{"targets.json": "{}"})
	if err := stagePackage(project, dist); err == nil || !strings.Contains(err.Error(), "move it to ") {
		t.Errorf("a file in the folder of the package: %v", err)
	}
}

// TestRoutes: the app has the functions of the routes in the project's routes.json, and no others.
func TestRoutes(t *testing.T) {
	project, dist := newProject(t, "Work"), newDist(t)
	zipped := func(routes string) (functions []string) {
		mustWrite(t, project, map[string]string{"routes.json": routes})
		mustPack(t, project, dist)
		for name := range mustUnzip(t, filepath.Join(dist, archive)) {
			if strings.HasPrefix(name, "AC-route-") {
				functions = append(functions, name)
			}
		}
		return functions
	}
	one := zipped(`{"orders-in": {"url": "https://shop.example/"}}`)
	other := zipped(`{"returns": {"url": "http://127.0.0.1/", "retry": "of settings elsewhere"}}`)
	none := zipped(`{}`)
	if !slices.Equal(one, []string{"AC-route-orders-in/function.json"}) ||
		!slices.Equal(other, []string{"AC-route-returns/function.json"}) || none != nil {
		t.Errorf("the zip has %q, then %q, then %q", one, other, none)
	}
	mustWrite(t, project, map[string]string{"routes.json": `{"returns": {}}`})
	err := stage(project, dist)
	if err == nil || !strings.Contains(err.Error(), `routes.json: "returns": url: is missing`) {
		t.Errorf("an invalid routes.json: %v", err)
	}
	mustWrite(t, project, map[string]string{"routes.json": `{}`})
	mustStage(t, project, dist) // what the failed build has put into dist is nobody's edit
}

func TestOnlyFunctionJSONIsStaged(t *testing.T) {
	project, dist := newProject(t, "Work"), filepath.Join(t.TempDir(), "new", "dist")
	mustWrite(t, project, map[string]string{
		"functions/Work/readme.md": "x", "functions/Empty/readme.md": "x", "functions/function.json": "{}",
	})
	mustStage(t, project, dist)
	got := slices.Sorted(maps.Keys(tree(t, dist)))
	want := []string{".funcignore", "Work/function.json", "host.json", "local.settings.json"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("dist (-want +got):\n%s", diff)
	}
}

func TestProblems(t *testing.T) {
	tests := map[string]struct {
		remove string // below the project, or below dist
		want   []string
	}{
		"no_executable":     {"dist/package/async-caller", []string{"async-caller is not built", "make package"}},
		"no_functions":      {"functions", []string{"functions/", "function.json"}},
		"no_host_json":      {"host.json", []string{"host.json"}},
		"no_local_settings": {"local.settings.json", []string{"local.settings.json"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			project := newProject(t, "Work")
			dist := filepath.Join(project, "dist")
			mustWrite(t, dist, map[string]string{"package/async-caller": "x"})
			mustPack(t, project, dist)
			if err := os.RemoveAll(filepath.Join(project, test.remove)); err != nil {
				t.Fatal(err)
			}
			err := stagePackage(project, dist)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if info, err := os.Stat(filepath.Join(dist, archive)); err == nil && info.Size() == 0 {
				t.Error("there is an empty async-caller.zip in dist")
			}
		})
	}
}
