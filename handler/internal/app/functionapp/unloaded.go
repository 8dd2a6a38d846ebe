package functionapp

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// fileName is the name of the file that describes a function.
const fileName = "function.json"

// ownPrefix begins the names of the functions that we ship.
const ownPrefix = "AC-"

// Unloaded returns why the host does not load functions whose files are in the app folder, although start-up accepts
// the others (docs/host.md, "App folder"). Each error names the file or the folder.
func (a *App) Unloaded() []error {
	root := os.DirFS(a.Dir)
	own, _ := fs.Glob(root, ownPrefix+"*") // the patterns are valid
	files, _ := fs.Glob(root, "*/*")
	var found problems
	for _, folder := range own {
		if !exists(root, path.Join(folder, fileName)) {
			found.add("%s has no %s", folder, fileName)
		}
	}
	for _, file := range files {
		switch name := path.Base(file); {
		case name == fileName:
			found = append(found, unloadable(root, file)...)
		case strings.EqualFold(name, fileName):
			found.add("%s: the name must be %s, in lower case", file, fileName)
		}
	}
	return found
}

// unloadable returns why the host does not load a function that start-up accepts.
func unloadable(root fs.FS, file string) (found problems) {
	content, trigger, err := readTrigger(root, file)
	if err != nil {
		return nil // start-up reports it
	}
	switch strings.ToLower(trigger.Direction) {
	case "", "in", "inout":
	default:
		found.add(`%s: the direction of the trigger is %q: it must be "in"`, file, trigger.Direction)
	}
	script := path.Join(path.Dir(file), filepath.ToSlash(content.ScriptFile))
	if content.ScriptFile != "" && !exists(root, script) {
		found.add("%s: there is no scriptFile %q: remove this member, which a custom handler does not need",
			file, content.ScriptFile)
	}
	return found
}

func exists(root fs.FS, file string) bool {
	_, err := fs.Stat(root, file)
	return !errors.Is(err, fs.ErrNotExist)
}
