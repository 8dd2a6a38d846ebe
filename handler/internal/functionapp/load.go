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

	"asynccaller/handler/internal/queue"
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
// queue names and schedules and overrides values of host.json. The error joins every problem found, each
// naming the file and what to change; beside it stands what could be read, so that it can be checked
// together with the settings, or nil when there is no readable host.json.
func Load(dir string, environ []string) (*App, error) {
	host, err := readHostJSON(dir, environ)
	if err != nil {
		return nil, err
	}
	app := &App{Dir: dir, Host: host.host()}
	problems := app.readFunctions(environ)
	if len(app.Functions) == 0 && len(problems) == 0 {
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
	Type, Direction, Name string
	// Of a queue trigger.
	QueueName, Connection, DataType string
	// Of a timer trigger.
	Schedule     string
	RunOnStartup any
}

func (a *App) readFunctions(environ []string) (problems []error) {
	paths, err := filepath.Glob(filepath.Join(escapeGlob(a.Dir), "*", "function.json"))
	if err != nil {
		return []error{err}
	}
	for _, path := range paths {
		name := filepath.Base(filepath.Dir(path))
		for _, err := range a.addFunction(path, name, environ) {
			problems = append(problems, fmt.Errorf("%s/function.json: %w", name, err))
		}
	}
	slices.SortFunc(a.Functions, func(x, y Function) int { return cmp.Compare(x.Name, y.Name) })
	slices.SortFunc(a.Timers, func(x, y Timer) int { return cmp.Compare(x.Name, y.Name) })
	return append(problems, a.checkUnique()...)
}

// addFunction reads one function.json and adds what is sound. A function that is disabled, or started by
// another kind of trigger, is not the handler's.
func (a *App) addFunction(path, name string, environ []string) (problems []error) {
	file, trigger, err := readTrigger(path)
	if err != nil {
		return []error{err}
	}
	switch strings.ToLower(trigger.Type) {
	case "queuetrigger":
		function, problems := newFunction(name, trigger, environ)
		if file.Retry != nil {
			problems = append(problems, errors.New("retry: "+noHostRetry))
		}
		if len(problems) == 0 {
			a.Functions = append(a.Functions, function)
		}
		return problems
	case "timertrigger":
		timer, problems := newTimer(name, trigger, environ)
		if file.Retry != nil {
			problems = append(problems, errors.New("retry: "+noTimerRetry))
		}
		if len(problems) == 0 {
			a.Timers = append(a.Timers, timer)
		}
		return problems
	default:
		return nil
	}
}

// readTrigger reads a function.json and finds its one trigger; a function that is disabled has none.
func readTrigger(path string) (file functionJSON, trigger binding, err error) {
	data, err := os.ReadFile(path) //nolint:gosec // the app folder is the operator's choice
	if err != nil {
		return file, trigger, err
	}
	if err := decodeRelaxed(data, &file); err != nil {
		return file, trigger, err
	}
	if disabled, _ := file.Disabled.(bool); disabled {
		return file, trigger, nil
	}
	count := 0
	for _, b := range file.Bindings {
		if strings.HasSuffix(strings.ToLower(b.Type), "trigger") {
			trigger = b
			count++
		}
	}
	if count != 1 {
		return file, binding{}, fmt.Errorf("it has %d triggers: the host wants exactly one", count)
	}
	return file, trigger, nil
}

// nameProblems checks the names that any kind of function has, by the host's rules.
func nameProblems(name, bindingName, example string) (problems []error) {
	if !validFunctionName.MatchString(name) || strings.EqualFold(name, "host") {
		problems = append(problems, fmt.Errorf("the folder's name %q is no function name: a letter, then letters, digits, - and _, at most 128 in all, not host", name))
	}
	if !validBindingName.MatchString(bindingName) {
		problems = append(problems, fmt.Errorf("binding name %q: give a letter, then letters and digits only (%q)", bindingName, example))
	}
	return problems
}

func newFunction(name string, b binding, environ []string) (Function, []error) {
	problems := nameProblems(name, b.Name, "message")
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }

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

func (a *App) checkUnique() (problems []error) {
	byName, byQueue := map[string]string{}, map[string]string{}
	checkName := func(name string) {
		if other, taken := byName[strings.ToLower(name)]; taken {
			problems = append(problems, fmt.Errorf("functions %s and %s differ only in case: rename one", other, name))
		}
		byName[strings.ToLower(name)] = name
	}
	for _, f := range a.Functions {
		checkName(f.Name)
		if other, taken := byQueue[f.Queue]; taken {
			problems = append(problems, fmt.Errorf("functions %s and %s both read queue %s: remove one", other, f.Name, f.Queue))
		}
		byQueue[f.Queue] = f.Name
	}
	for _, t := range a.Timers {
		checkName(t.Name)
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
