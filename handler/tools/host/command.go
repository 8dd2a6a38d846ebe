package host

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"asynccaller/handler/internal/functionapp"
)

// command is how the handler is started.
type command struct {
	path string
	args []string
	dir  string
}

// resolveCommand reads host.json's description as section C.1 of the Functions host contract says. The
// real host logs an executable that does not exist and stops two minutes later; here it is an error.
func resolveCommand(app *functionapp.App, env []string) (command, error) {
	lookup := lookupIn(env)
	root, err := filepath.Abs(app.Dir)
	if err != nil {
		return command{}, fmt.Errorf("app folder %s: %w", app.Dir, err)
	}
	if app.Host.Handler.Executable == "" {
		return command{}, fmt.Errorf("%s: customHandler.description.defaultExecutablePath is missing", filepath.Join(root, "host.json"))
	}
	path, err := findExecutable(expand(app.Host.Handler.Executable, lookup), root, lookup)
	if err != nil {
		return command{}, err
	}
	dir := app.Host.Handler.WorkingDirectory
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(root, dir)
	}
	return command{path: path, args: splitArguments(app.Host.Handler.Arguments, lookup), dir: dir}, nil
}

func findExecutable(name, root string, lookup func(string) (string, bool)) (string, error) {
	if filepath.IsAbs(name) {
		if !isFile(name) {
			return "", fmt.Errorf("handler %s does not exist: run `make build`", name)
		}
		return name, nil
	}
	inRoot := filepath.Join(root, name)
	if isFile(inRoot) {
		return inRoot, nil
	}
	// A name with a directory in it is not searched on the PATH.
	if name == filepath.Base(name) {
		path, _ := lookup("PATH")
		for _, dir := range filepath.SplitList(path) {
			if candidate := filepath.Join(dir, name); filepath.IsAbs(candidate) && isExecutable(candidate) {
				return candidate, nil
			}
		}
	}
	return "", fmt.Errorf("handler %s does not exist, nor is %s on the PATH: run `make build`", inRoot, name)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir() && (runtime.GOOS == "windows" || info.Mode()&0o111 != 0)
}

// leftover matches what expand could not expand.
var leftover = regexp.MustCompile(`%(.+?)%`)

// splitArguments joins the arguments with spaces, expands them, drops references to variables that do
// not exist and splits the line again: an argument with a space in it becomes several.
func splitArguments(arguments []string, lookup func(string) (string, bool)) []string {
	line := expand(strings.Join(arguments, " "), lookup)
	return strings.Fields(leftover.ReplaceAllString(line, ""))
}

// expand replaces %NAME% by the variable's value, as .NET does: what names no variable stays, and its
// second % may begin the next name.
func expand(s string, lookup func(string) (string, bool)) string {
	var out strings.Builder
	for {
		start := strings.IndexByte(s, '%')
		if start < 0 {
			break
		}
		length := strings.IndexByte(s[start+1:], '%')
		if length < 0 {
			break
		}
		end := start + 1 + length
		out.WriteString(s[:start])
		if value, ok := lookup(s[start+1 : end]); ok {
			out.WriteString(value)
			s = s[end+1:]
		} else {
			out.WriteString(s[start:end])
			s = s[end:]
		}
	}
	out.WriteString(s)
	return out.String()
}

// lookupIn finds variables in an environment; of several with the same name the last one counts.
func lookupIn(env []string) func(string) (string, bool) {
	variables := make(map[string]string, len(env))
	for _, pair := range env {
		if name, value, ok := strings.Cut(pair, "="); ok {
			variables[name] = value
		}
	}
	return func(name string) (string, bool) {
		value, ok := variables[name]
		return value, ok
	}
}

// handlerEnv is the host's environment with what the host tells its handler.
func handlerEnv(env []string, root string, port int) []string {
	if abs, err := filepath.Abs(root); err == nil {
		root = abs
	}
	workerID, portText := uuid.NewString(), strconv.Itoa(port)
	return append(slices.Clip(env),
		"FUNCTIONS_CUSTOMHANDLER_PORT="+portText,
		"FUNCTIONS_CUSTOMHANDLER_WORKER_ID="+workerID,
		"FUNCTIONS_HTTPWORKER_PORT="+portText,
		"FUNCTIONS_HTTPWORKER_ID="+workerID,
		"FUNCTIONS_APP_ROOT_PATH="+root,
	)
}
