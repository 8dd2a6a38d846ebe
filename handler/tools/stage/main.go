// Stage lays out the app as the Functions host wants it: host.json, local.settings.json and the function
// folders beside the executable in dist, which the Go tool has built there. With -zip it packs dist for
// a Function App. It is a tool of the Makefile's and no part of the product.
package main

import (
	"archive/zip"
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

	"asynccaller/handler/internal/config"
)

const (
	executable    = "async-caller"
	archive       = "async-caller.zip"
	localSettings = "local.settings.json"
	retryFile     = config.RetryFile
	// ignore is read by `func azure functionapp publish`, which zips everything else that it finds.
	ignore = ".funcignore"
)

func main() {
	pack := flag.Bool("zip", false, "also pack dist/"+archive)
	flag.Parse()
	if err := run(".", "dist", *pack); err != nil {
		fmt.Fprintln(os.Stderr, "stage:", err)
		os.Exit(1)
	}
}

func run(project, dist string, pack bool) error {
	if err := stage(project, dist); err != nil {
		return err
	}
	if !pack {
		return nil
	}
	return zipDist(dist)
}

// stage copies the app's files into dist and removes what the project no longer has.
func stage(project, dist string) error {
	if err := removeFunctions(dist); err != nil {
		return err
	}
	for _, name := range []string{"host.json", localSettings} {
		if err := copyFile(filepath.Join(project, name), filepath.Join(dist, name)); err != nil {
			return err
		}
	}
	if err := stageRetryFile(project, dist); err != nil {
		return err
	}
	paths, err := filepath.Glob(filepath.Join(project, "functions", "*", "function.json"))
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return errors.New("functions/ holds no function.json: run in the project's folder")
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
	return os.WriteFile(filepath.Join(dist, ignore), []byte(archive+"\n"), 0o644)
}

// stageRetryFile copies the operator's own retry policies, if there are any.
func stageRetryFile(project, dist string) error {
	err := copyFile(filepath.Join(project, retryFile), filepath.Join(dist, retryFile))
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Remove(filepath.Join(dist, retryFile)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
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

// zipDist packs what a Function App runs: the executable with its run bit, host.json and the functions.
func zipDist(dist string) (err error) {
	names, err := packed(dist)
	if err != nil {
		return err
	}
	// Under another name until it is whole, so that a failure does not spoil a good zip.
	path := filepath.Join(dist, archive)
	file, err := os.Create(path + ".part")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	if err := errors.Join(writeZip(file, dist, names), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

func writeZip(file io.Writer, dist string, names []string) error {
	w := zip.NewWriter(file)
	for _, name := range names {
		if err := addToZip(w, dist, name); err != nil {
			return err
		}
	}
	return w.Close()
}

// packed lists the files that belong in the zip, as paths below dist. It names what goes in rather than
// what stays out, so that nothing that somebody left in dist ever gets deployed.
func packed(dist string) ([]string, error) {
	names := []string{executable, "host.json"}
	if _, err := os.Stat(filepath.Join(dist, retryFile)); err == nil {
		names = append(names, retryFile)
	}
	functions, err := filepath.Glob(filepath.Join(dist, "*", "function.json"))
	if err != nil {
		return nil, err
	}
	for _, path := range functions {
		name, err := filepath.Rel(dist, path)
		if err != nil {
			return nil, err
		}
		names = append(names, filepath.ToSlash(name))
	}
	slices.Sort(names)
	return names, nil
}

func addToZip(w *zip.Writer, dist, name string) error {
	file, err := os.Open(filepath.Join(dist, filepath.FromSlash(name)))
	if errors.Is(err, fs.ErrNotExist) && name == executable {
		return fmt.Errorf("%s is not built: run `make package`", filepath.Join(dist, executable))
	}
	if err != nil {
		return err
	}
	defer file.Close()
	// The earliest time that a zip file can hold: the same files make the same zip.
	oldest := time.Date(1980, time.January, 1, 0, 0, 0, 0, time.UTC)
	header := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: oldest}
	header.SetMode(0o644)
	if strings.EqualFold(name, executable) {
		header.SetMode(0o755) // the host cannot set it: a deployed package is read-only
	}
	entry, err := w.CreateHeader(header)
	if err != nil {
		return err
	}
	_, err = io.Copy(entry, file)
	return err
}
