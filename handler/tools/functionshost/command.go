package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"asynccaller/handler/internal/app/functionapp"
)

// command is the command line of the handler.
type command struct {
	path string
	args []string
	dir  string
	// root is the absolute path of the app folder.
	root string
}

// resolveCommand reads host.json's description (docs/host.md, "Handler process"). The real host logs that the
// executable does not exist and stops two minutes later; here it is an error.
func resolveCommand(app *functionapp.App) (command, error) {
	root, err := filepath.Abs(app.Dir)
	if err != nil {
		return command{}, fmt.Errorf("app folder %s: %w", app.Dir, err)
	}
	handler := app.Host.Handler
	line := strings.Join(handler.Arguments, " ") // so an argument with a space becomes several
	if strings.Contains(line, "%") {
		return command{}, errors.New("host.json: the arguments in customHandler.description have a %: " +
			"the local host does not replace %NAME%")
	}
	path := below(root, handler.Executable)
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		return command{}, fmt.Errorf("handler %s does not exist: run `make build`", path)
	}
	return command{path: path, args: strings.Fields(line), dir: below(root, handler.WorkingDirectory), root: root}, nil
}

// below returns a path that is relative to the root, or absolute.
func below(root, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(root, path)
}

// environmentVariable says what kind of host this is; development is its value under `func start`.
const environmentVariable, development = "AZURE_FUNCTIONS_ENVIRONMENT", "Development"

// kindOf returns what kind of host an environment asks for: Development unless it says otherwise. Of several
// variables with the same name, the last one counts.
func kindOf(env []string) string {
	kind := ""
	for _, pair := range env {
		if value, ok := strings.CutPrefix(pair, environmentVariable+"="); ok {
			kind = value
		}
	}
	return cmp.Or(kind, development)
}

// handlerEnv adds the host's variables to the environment.
func handlerEnv(env []string, root string, port int) []string {
	workerID, portText := uuid.NewString(), strconv.Itoa(port)
	return append(slices.Clip(env),
		"FUNCTIONS_CUSTOMHANDLER_PORT="+portText,
		"FUNCTIONS_CUSTOMHANDLER_WORKER_ID="+workerID,
		"FUNCTIONS_HTTPWORKER_PORT="+portText,
		"FUNCTIONS_HTTPWORKER_ID="+workerID,
		"FUNCTIONS_APP_ROOT_PATH="+root,
	)
}
