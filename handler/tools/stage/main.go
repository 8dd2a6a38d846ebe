// Stage lays out the app for the Functions host: it builds the executable in dist, copies host.json,
// local.settings.json, the optional files and the function folders, and makes the functions of routes. With -zip it
// uses dist/package, whose executable is for a Function App, and packs it. With -release it makes the files of a
// release. It serves the Makefile and is not part of the product.
package main

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/app/functionapp"
)

const (
	executable = "async-caller"
	// dist is the app for this machine. The app for a Function App is in the folder inside, and its archive beside it.
	dist    = "dist"
	inside  = "package"
	archive = "async-caller.zip"
	// ignore is read by `func azure functionapp publish`, which zips every other file. Its comments say which optional
	// files the build has put beside it.
	ignore = ".funcignore"
)

func main() {
	pack := flag.Bool("zip", false, "build and stage "+dist+"/"+inside+" instead, and pack it as "+dist+"/"+archive)
	repository := flag.String("release", "",
		"build a release for this repository of GitHub (owner/name) in "+dist+"/"+releases+" instead, and the package")
	flag.Parse()
	ctx := context.Background()
	var err error
	switch {
	case *repository != "":
		err = makeRelease(ctx, ".", dist, *repository, platforms, os.Stdout)
	case *pack:
		err = makePackage(ctx, ".", dist)
	default:
		err = makeLocal(ctx, ".", dist)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "stage:", err)
		os.Exit(1)
	}
}

// makeLocal builds and stages the app for this machine.
func makeLocal(ctx context.Context, project, dist string) error {
	if err := compile(ctx, project, filepath.Join(dist, executable)); err != nil {
		return err
	}
	return stage(project, dist)
}

// makePackage builds, stages and packs the app for a Function App.
func makePackage(ctx context.Context, project, dist string) error {
	if err := compileFor(ctx, project, functionApp, filepath.Join(dist, inside, executable)); err != nil {
		return err
	}
	return stagePackage(project, dist)
}

// stagePackage stages and packs the app for a Function App.
func stagePackage(project, dist string) error {
	if err := checkEdits(project, dist); err != nil { // the package would go without them
		return err
	}
	folder := filepath.Join(dist, inside)
	if err := stage(project, folder); err != nil {
		return err
	}
	return zipApp(folder, filepath.Join(dist, archive))
}

// stage copies the app's files into dist, makes the functions of routes, and removes functions and optional files that
// the project does not have. It changes nothing if a person has changed an optional file in dist.
func stage(project, dist string) error {
	if err := checkEdits(project, dist); err != nil {
		return err
	}
	if err := removeFunctions(dist); err != nil {
		return err
	}
	for _, name := range append([]string{"host.json", "local.settings.json"}, config.OptionalFiles()...) {
		err := copyFile(filepath.Join(project, name), filepath.Join(dist, name))
		if slices.Contains(config.OptionalFiles(), name) && errors.Is(err, fs.ErrNotExist) {
			err = os.RemoveAll(filepath.Join(dist, name))
		}
		if err != nil {
			return err
		}
	}
	if err := writeIgnore(dist); err != nil { // before anything else can fail
		return err
	}
	paths, err := filepath.Glob(filepath.Join(project, "functions", "*", "function.json"))
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return errors.New("functions/ has no function.json: run this in the project's folder")
	}
	for _, path := range paths {
		folder := filepath.Join(dist, filepath.Base(filepath.Dir(path)))
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		if err := copyFile(path, filepath.Join(folder, "function.json")); err != nil {
			return err
		}
	}
	routes, err := config.LoadRoutes(dist)
	if err != nil {
		return err
	}
	_, _, err = functionapp.SyncRoutes(dist, routes.Queues(), routes.Posts())
	return err
}

// writeIgnore writes the file ignore, with a comment about each optional file that dist has now.
func writeIgnore(dist string) error {
	lines := []string{archive + "\n", inside + "\n", releases + "\n"}
	for _, name := range config.OptionalFiles() {
		content, err := os.ReadFile(filepath.Join(dist, name))
		if err == nil {
			lines = append(lines, stagedLine(name, content))
		}
	}
	return os.WriteFile(filepath.Join(dist, ignore), []byte(strings.Join(lines, "")), 0o644)
}

// stagedLine is the comment that says that a build has put a file into the folder.
func stagedLine(name string, content []byte) string {
	return fmt.Sprintf("# staged: %s %x\n", name, sha256.Sum256(content))
}

// checkEdits returns an error for each optional file of the app that a build would lose: it is neither what the last
// build has put there nor the same as in the project.
func checkEdits(project, app string) error {
	ignored, err := os.ReadFile(filepath.Join(app, ignore))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var problems []error
	for _, name := range config.OptionalFiles() {
		path, source := filepath.Join(app, name), filepath.Join(project, name)
		content, err := os.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			problems = append(problems, err)
			continue
		}
		if bytes.Contains(ignored, []byte(stagedLine(name, content))) {
			continue
		}
		original, err := os.ReadFile(source)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			problems = append(problems, fmt.Errorf("%s was not put there by a build, which would remove it: "+
				"move it to %s, where it belongs, or delete it", path, source))
		case err != nil:
			problems = append(problems, err)
		case !bytes.Equal(original, content):
			problems = append(problems, fmt.Errorf("%s was changed after the last build, and a build would replace it "+
				"by %s: make your changes in %s, and delete %s", path, source, source, path))
		}
	}
	return errors.Join(problems...)
}

func removeFunctions(dist string) error {
	old, err := filepath.Glob(filepath.Join(dist, "*", "function.json"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if err := os.RemoveAll(filepath.Dir(path)); err != nil {
			return err
		}
	}
	return os.MkdirAll(dist, 0o755)
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644)
}

// zipApp packs what a Function App runs: the executable with its run bit, host.json, the optional files and the
// functions.
func zipApp(app, path string) (err error) {
	names, err := packed(app)
	if err != nil {
		return err
	}
	// The name changes when the zip is complete, so a failure does not spoil a good zip.
	file, err := os.Create(path + ".part")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	w := zip.NewWriter(file)
	for _, name := range names {
		if err := addToZip(w, app, name); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	if err := errors.Join(w.Close(), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

// packed returns the files of the zip, as paths below the app's folder. It lists what to include, so that no other file
// is ever deployed.
func packed(app string) ([]string, error) {
	names := []string{executable, "host.json"}
	for _, name := range config.OptionalFiles() {
		if _, err := os.Stat(filepath.Join(app, name)); err == nil {
			names = append(names, name)
		}
	}
	functions, err := filepath.Glob(filepath.Join(app, "*", "function.json"))
	if err != nil {
		return nil, err
	}
	for _, path := range functions {
		names = append(names, filepath.Base(filepath.Dir(path))+"/function.json")
	}
	slices.Sort(names)
	return names, nil
}

// oldest is the earliest time of the zip format: the same files make the same archive.
var oldest = time.Date(1980, time.January, 1, 0, 0, 0, 0, time.UTC)

func addToZip(w *zip.Writer, app, name string) error {
	file, err := os.Open(filepath.Join(app, filepath.FromSlash(name)))
	if errors.Is(err, fs.ErrNotExist) && name == executable {
		return fmt.Errorf("%s is not built: run `make package`", filepath.Join(app, executable))
	}
	if err != nil {
		return err
	}
	defer file.Close()
	header := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: oldest}
	header.SetMode(0o644)
	if isExecutable(name) {
		header.SetMode(0o755) // the host cannot set it, because a deployed package is read-only
	}
	entry, err := w.CreateHeader(header)
	if err != nil {
		return err
	}
	_, err = io.Copy(entry, file)
	return err
}
