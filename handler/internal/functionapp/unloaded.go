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

// maxDepth is how many levels below the app folder [App.Unloaded] looks for functions.
const maxDepth = 3

// Unloaded returns why the host does not load functions whose files are in the app folder, although start-up accepts
// the others (docs/host.md, "App folder"). Each error names the file or the folder.
func (a *App) Unloaded() []error {
	root := os.DirFS(a.Dir)
	var found problems
	_ = fs.WalkDir(root, ".", func(file string, entry fs.DirEntry, err error) error { // the function returns no error
		folder, name := path.Split(file)
		folder = path.Clean(folder)
		depth := strings.Count(file, "/")
		switch {
		case err != nil:
			found.add("%w", err)
			return fs.SkipDir
		case entry.IsDir() && (depth == maxDepth || isForeign(name)):
			return fs.SkipDir
		case entry.IsDir() && depth == 0 && strings.HasPrefix(name, ownPrefix) && !exists(root, file+"/"+fileName):
			found.add("%s has no %s", file, fileName)
		case entry.IsDir() || !strings.EqualFold(name, fileName):
		case name != fileName:
			found.add("%s: the name must be %s, in lower case", file, fileName)
		case depth == 1:
			found = append(found, unloadable(root, file)...)
		case depth == 0 || !exists(root, path.Join(path.Base(folder), fileName)):
			found.add("%s: the host looks exactly one level below host.json", file)
		}
		return nil
	})
	return found
}

// isForeign reports whether a folder can contain much, but no function that the host was meant to load.
func isForeign(name string) bool {
	return name == "node_modules" || strings.HasPrefix(name, ".") && name != "."
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
