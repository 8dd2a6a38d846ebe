package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"asynccaller/handler/internal/functionapp"
)

// command is the command line of the handler.
type command struct {
	path string
	args []string
	dir  string
}

// resolveCommand reads host.json's description as section C.1 of the Functions host contract says. The real
// host logs that the executable does not exist and stops two minutes later; here it is an error.
func resolveCommand(app *functionapp.App, env []string) (command, error) {
	variables := variablesOf(env)
	root, err := filepath.Abs(app.Dir)
	if err != nil {
		return command{}, fmt.Errorf("app folder %s: %w", app.Dir, err)
	}
	path, err := findExecutable(expand(app.Host.Handler.Executable, variables), root)
	if err != nil {
		return command{}, err
	}
	dir := app.Host.Handler.WorkingDirectory
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(root, dir)
	}
	return command{path: path, args: splitArguments(app.Host.Handler.Arguments, variables), dir: dir}, nil
}

// findExecutable looks in the app folder, and for a bare name on the PATH too.
func findExecutable(name, root string) (string, error) {
	path := name
	if !filepath.IsAbs(name) {
		path = filepath.Join(root, name)
	}
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return path, nil
	}
	if name == filepath.Base(name) {
		found, err := exec.LookPath(name)
		if err != nil {
			return "", fmt.Errorf("handler %s does not exist, nor is %s on the PATH: run `make build`", path, name)
		}
		return found, nil
	}
	return "", fmt.Errorf("handler %s does not exist: run `make build`", path)
}

// unexpanded matches a reference to a variable that does not exist.
var unexpanded = regexp.MustCompile(`%.+?%`)

// splitArguments joins the arguments with spaces, expands them, drops references to variables that do not
// exist and splits the line again: an argument with a space becomes several.
func splitArguments(arguments []string, variables map[string]string) []string {
	line := expand(strings.Join(arguments, " "), variables)
	return strings.Fields(unexpanded.ReplaceAllString(line, ""))
}

// expand replaces %NAME% by the variable's value, as .NET does: a name without a variable stays, and its
// second % may begin the next name.
func expand(s string, variables map[string]string) string {
	parts := strings.Split(s, "%")
	var expanded strings.Builder
	expanded.WriteString(parts[0])
	for i := 1; i < len(parts); i++ {
		value, ok := variables[parts[i]]
		if ok && i+1 < len(parts) {
			i++
			expanded.WriteString(value + parts[i])
		} else {
			expanded.WriteString("%" + parts[i])
		}
	}
	return expanded.String()
}

// variablesOf returns an environment as a map; of several variables with the same name the last one counts.
func variablesOf(env []string) map[string]string {
	variables := make(map[string]string, len(env))
	for _, pair := range env {
		if name, value, ok := strings.Cut(pair, "="); ok {
			variables[name] = value
		}
	}
	return variables
}

// environmentVariable says what kind of host this is; development is its value under `func start`.
const environmentVariable, development = "AZURE_FUNCTIONS_ENVIRONMENT", "Development"

// withEnvironment makes the host a Development host unless the environment says what it is.
func withEnvironment(env []string) []string {
	if variablesOf(env)[environmentVariable] != "" {
		return env
	}
	return append(slices.Clip(env), environmentVariable+"="+development)
}

// handlerEnv adds the host's variables to the environment.
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
