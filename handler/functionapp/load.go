package functionapp

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"asynccaller/handler/queue"
)

// ConnectionName is the one storage connection that functions may use: the handler writes successors
// to the account that the message came from, and knows only this one.
const ConnectionName = "AzureWebJobsStorage"

// The host's rules for names (azure-functions-host, Utility.cs).
var (
	validFunctionName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,127}$`)
	validBindingName  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,127}$`)
)

// RootPath is the app folder: FUNCTIONS_APP_ROOT_PATH, which the host sets, else the working directory.
func RootPath(getenv func(string) string) string {
	return cmp.Or(getenv("FUNCTIONS_APP_ROOT_PATH"), ".")
}

// Load reads and checks the app folder. The environment, as os.Environ gives it, fills in %NAME% in
// queue names and overrides values of host.json. The error joins every problem found, each naming the
// file and what to change; beside it stands what could be read, so that it can be checked together with
// the settings, or nil when there is no readable host.json.
func Load(dir string, environ []string) (*App, error) {
	host, err := readHostJSON(dir, environ)
	if err != nil {
		return nil, err
	}
	app := &App{Dir: dir, Host: host.host()}
	functions, problems := readFunctions(dir, environ)
	app.Functions = functions
	if len(functions) == 0 && len(problems) == 0 {
		problems = append(problems, fmt.Errorf("%s: no folder with a function.json that has a queueTrigger: the host looks exactly one level below host.json", dir))
	}
	return app, errors.Join(append(host.problems, problems...)...)
}

// LoadHost reads and checks host.json alone, for who needs no functions. The error is fs.ErrNotExist when
// there is none.
func LoadHost(dir string, environ []string) (Host, error) {
	file, err := readHostJSON(dir, environ)
	if err != nil {
		return Host{}, err
	}
	host := file.host()
	return host, errors.Join(file.problems...)
}

// functionJSON is the part of function.json that we read.
type functionJSON struct {
	Disabled any
	Retry    any
	Bindings []binding
}

type binding struct {
	Type, Direction, Name, QueueName, Connection, DataType string
}

func readFunctions(dir string, environ []string) (functions []Function, problems []error) {
	paths, err := filepath.Glob(filepath.Join(escapeGlob(dir), "*", "function.json"))
	if err != nil {
		return nil, []error{err}
	}
	for _, path := range paths {
		name := filepath.Base(filepath.Dir(path))
		function, found, errs := readFunction(path, name, environ)
		for _, err := range errs {
			problems = append(problems, fmt.Errorf("%s/function.json: %w", name, err))
		}
		if found && len(errs) == 0 {
			functions = append(functions, function)
		}
	}
	slices.SortFunc(functions, func(a, b Function) int { return cmp.Compare(a.Name, b.Name) })
	return functions, append(problems, checkUnique(functions)...)
}

// readFunction reads one function.json; found is false for a function that the queue handler does not
// serve: disabled, or started by another kind of trigger.
func readFunction(path, name string, environ []string) (function Function, found bool, problems []error) {
	data, err := os.ReadFile(path) //nolint:gosec // the app folder is the operator's choice
	if err != nil {
		return Function{}, false, []error{err}
	}
	var file functionJSON
	if err := decodeRelaxed(data, &file); err != nil {
		return Function{}, false, []error{err}
	}
	var triggers []binding
	for _, b := range file.Bindings {
		if strings.HasSuffix(strings.ToLower(b.Type), "trigger") {
			triggers = append(triggers, b)
		}
	}
	disabled, _ := file.Disabled.(bool)
	switch {
	case disabled:
		return Function{}, false, nil
	case len(triggers) != 1:
		return Function{}, false, []error{fmt.Errorf("it has %d triggers: the host wants exactly one", len(triggers))}
	case !strings.EqualFold(triggers[0].Type, "queueTrigger"):
		return Function{}, false, nil
	}
	function, problems = newFunction(name, triggers[0], environ)
	if file.Retry != nil {
		problems = append(problems, errors.New("retry: "+noHostRetry))
	}
	return function, true, problems
}

func newFunction(name string, b binding, environ []string) (Function, []error) {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }

	if !validFunctionName.MatchString(name) || strings.EqualFold(name, "host") {
		problem("the folder's name %q is no function name: a letter, then letters, digits, - and _, at most 128 in all, not host", name)
	}
	if !validBindingName.MatchString(b.Name) {
		problem("binding name %q: give a letter, then letters and digits only (%q)", b.Name, "message")
	}
	if b.Connection != "" && b.Connection != ConnectionName {
		problem("connection is %q: the handler puts messages back through %s only", b.Connection, ConnectionName)
	}
	queueName, err := resolveName(b.QueueName, environ)
	queueName = strings.ToLower(queueName)
	switch {
	case err != nil:
		problem("queueName %q: %w", b.QueueName, err)
	case !queue.ValidName(queueName):
		problem("queueName %q: give 3 to 63 lower-case letters, digits and single dashes", b.QueueName)
	case !hasPoisonQueue(queueName):
		problem("queueName %q has no poison queue (it ends in -poison, or is has more than 56 characters): the handler would have nowhere to put what fails", b.QueueName)
	}
	dataType := DataType(strings.ToLower(b.DataType))
	switch dataType {
	case DataBinary, DataString:
	case "":
		problem(`dataType is missing: set "binary", otherwise a message's body can overwrite its own metadata`)
	default:
		problem(`dataType is %q: set "binary"`, b.DataType)
	}
	return Function{Name: name, Binding: b.Name, Queue: queueName, DataType: dataType}, problems
}

func hasPoisonQueue(queueName string) bool {
	_, ok := queue.PoisonName(queueName)
	return ok
}

func checkUnique(functions []Function) (problems []error) {
	byName, byQueue := map[string]string{}, map[string]string{}
	for _, f := range functions {
		if other, taken := byName[strings.ToLower(f.Name)]; taken {
			problems = append(problems, fmt.Errorf("functions %s and %s differ only in case: rename one", other, f.Name))
		}
		if other, taken := byQueue[f.Queue]; taken {
			problems = append(problems, fmt.Errorf("functions %s and %s both read queue %s: remove one", other, f.Name, f.Queue))
		}
		byName[strings.ToLower(f.Name)], byQueue[f.Queue] = f.Name, f.Name
	}
	return problems
}

// resolveName replaces every %NAME% by the setting of that name, in any case, as the host does.
func resolveName(name string, environ []string) (string, error) {
	var resolved strings.Builder
	for {
		before, rest, open := strings.Cut(name, "%")
		resolved.WriteString(before)
		if !open {
			return resolved.String(), nil
		}
		setting, after, closed := strings.Cut(rest, "%")
		if !closed {
			return "", errors.New("a % has no closing %")
		}
		value := lookup(environ, setting)
		if value == "" {
			return "", fmt.Errorf("the setting %s is not set", setting)
		}
		resolved.WriteString(value)
		name = after
	}
}

func lookup(environ []string, name string) string {
	for _, variable := range environ {
		if key, value, _ := strings.Cut(variable, "="); strings.EqualFold(key, name) && value != "" {
			return value
		}
	}
	return ""
}

// escapeGlob keeps a folder's own name from being read as a pattern.
func escapeGlob(dir string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}
