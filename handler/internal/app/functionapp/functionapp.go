// Package functionapp reads an app folder as the Functions host does: host.json, and the function.json files one
// level below it. The handler and the local host both use it, so each app configures its queues, its timers and the
// encoding of its messages in one place.
package functionapp

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/storage"
)

// The timer functions of an app: the keeper keeps poison messages from expiring, the monitor reports what waits. They
// record when they run.
const (
	KeeperTimer  = "AC-poison-keeper"
	MonitorTimer = "AC-monitor"
)

// routePrefix begins the names of the functions of routes; the rest is the queue.
const routePrefix = "AC-route-"

// RouteFunction returns the name of the function for the route of a queue.
func RouteFunction(queue string) string { return routePrefix + queue }

// isRouteName reports whether a function reads the queue of a route, in any case, as hosts compare names.
func isRouteName(name string) bool {
	_, isRoute := cutPrefixFold(name, routePrefix)
	return isRoute
}

// cutPrefixFold is like strings.CutPrefix, in any case.
func cutPrefixFold(name, prefix string) (rest string, found bool) {
	if len(name) < len(prefix) || !strings.EqualFold(name[:len(prefix)], prefix) {
		return name, false
	}
	return name[len(prefix):], true
}

// postPrefix begins the names of the functions that take posts for routes; the rest is the queue.
const postPrefix = "AC-in-"

// PostFunction returns the name of the function that takes posts for the route of a queue.
func PostFunction(queue string) string { return postPrefix + queue }

// App is a valid app folder.
type App struct {
	// Dir is the script root: the folder that holds host.json.
	Dir  string
	Host Host
	// Functions are the queue-trigger functions, ordered by name; names and queues are unique.
	Functions []Function
	// Timers are the timer-trigger functions, ordered by name; names are unique among all functions.
	Timers []Timer
	// Posts are the HTTP functions of routes, ordered by name; names are unique among all functions.
	Posts []Post
	// Disabled are the names of the functions whose function.json disables them. They are in no other list.
	Disabled []string
	// Unserved are the functions with other triggers, ordered by name. The handler does not serve them.
	Unserved []Unserved
}

// Unserved is a function with a trigger that the handler does not serve.
type Unserved struct{ Name, Trigger string }

// httpTrigger is the trigger of a function that the host runs for requests of clients.
const httpTrigger = "httpTrigger"

// CheckForgery returns an error if clients of an HTTP function can send the handler what it takes for a message: the
// host passes their requests to the handler's port as they are (docs/host.md, "HTTP functions").
func (a *App) CheckForgery() error {
	var files []string
	for _, f := range a.Unserved {
		if strings.EqualFold(f.Trigger, httpTrigger) {
			files = append(files, path.Join(f.Name, fileName))
		}
	}
	for _, p := range a.Posts {
		files = append(files, path.Join(p.Name, fileName))
	}
	if len(files) == 0 || len(a.Host.Forwarding) == 0 {
		return nil
	}
	return fmt.Errorf("host.json, or a setting AzureFunctionsJobHost__: remove %s, or each %s (%s): with both, "+
		"anyone can send the handler invented messages",
		strings.Join(a.Host.Forwarding, ", "), httpTrigger, strings.Join(files, ", "))
}

// QueueNames returns the queues that the functions read.
func (a *App) QueueNames() []string {
	var names []string
	for _, f := range a.Functions {
		names = append(names, f.Queue)
	}
	return names
}

// RoutedQueues returns the queues of the functions of routes, also of those that are disabled.
func (a *App) RoutedQueues() []string {
	var names []string
	for _, f := range a.Functions {
		if f.IsRouted() {
			names = append(names, f.Queue)
		}
	}
	for _, function := range a.Disabled {
		if name, isRoute := strings.CutPrefix(function, routePrefix); isRoute {
			names = append(names, name)
		}
	}
	return names
}

// Names returns the names of all functions that take invocations.
func (a *App) Names() (names []string) {
	for _, f := range a.Functions {
		names = append(names, f.Name)
	}
	for _, t := range a.Timers {
		names = append(names, t.Name)
	}
	for _, p := range a.Posts {
		names = append(names, p.Name)
	}
	return names
}

// Host is the part of host.json that Async Caller uses, with the AzureFunctionsJobHost__ (or :) overrides of the
// environment.
type Host struct {
	// FunctionTimeout ends an invocation; negative means never. The default is 5 minutes, the shortest default of
	// any plan.
	FunctionTimeout time.Duration
	Queues          QueueOptions
	Logging         Logging
	Handler         CustomHandler
	// BundleID is `extensionBundle.id`, as written. An app that brings its own extensions has none.
	BundleID string
	// AllowList are the functions that the host loads, in any case, by the list `functions`; empty means all.
	AllowList []string
	// Forwarding are the members with which the host passes requests of HTTP functions to the handler as they are.
	Forwarding []string
	// MaxRequests is `extensions.http.maxConcurrentRequests`; 0 or less means any number.
	MaxRequests int
}

// QueueOptions is host.json `extensions.queues`, with the host's defaults for missing members.
type QueueOptions struct {
	// BatchSize is the number of messages that one poll receives, 1 to 32.
	BatchSize int
	// NewBatchThreshold is the number of messages in flight at or below which the next poll starts
	// (docs/host.md, "Slots"). With concurrency.dynamicConcurrencyEnabled the host ignores both numbers: it has a limit
	// of its own for each function, from 1 to 500, which the handler cannot read. The threshold still stands for it,
	// because the host raises its limit as long as there is processor time to spare, which calls that hang leave. The
	// maximum of 500 would be too much until it is reached.
	NewBatchThreshold int
	// MaxPollingInterval is the longest pause between polls of an empty queue; 0 when host.json has none.
	MaxPollingInterval time.Duration
	// VisibilityTimeout is the pause before the host repeats a failed message.
	VisibilityTimeout time.Duration
	// MaxDequeueCount is the number of tries after which a message goes to the poison queue.
	MaxDequeueCount int64
	MessageEncoding storage.Encoding
}

// ServeArgument is the argument in host.json with which the host starts our executable as its handler.
const ServeArgument = "serve"

// CustomHandler is host.json `customHandler.description`.
type CustomHandler struct {
	// Executable is `defaultExecutablePath` as written, relative to the script root.
	Executable string
	// Arguments are as written; the real host joins them with spaces and does not quote.
	Arguments []string
	// WorkingDirectory is relative to the script root; empty means the script root.
	WorkingDirectory string
}

// DataType is the form in which the host passes a message's content to the handler.
type DataType string

// The data types that a queue trigger supports. Use DataBinary: with DataString a message's body can overwrite its own
// metadata (docs/host.md, "Forgeable metadata").
const (
	DataBinary DataType = "binary"
	DataString DataType = "string"
)

// Function is a queue-trigger function: one folder with a function.json.
type Function struct {
	// Name is the folder's name, and the path of the host's POST.
	Name string
	// Binding is the trigger's binding name: the member of Data that holds the message.
	Binding  string
	Queue    string
	DataType DataType
}

// IsRouted reports whether the function reads the queue of a route. Its name says so, and not routes.json, so that a
// mistake in that file never makes an envelope of what a sender writes there.
func (f Function) IsRouted() bool { return isRouteName(f.Name) }

// Post is an HTTP function that takes posts for a route: one folder with a function.json.
type Post struct {
	// Name is the folder's name, and the path of the host's POST.
	Name string
	// Binding is the trigger's binding name: the member of Data that holds the post. Output is that of the answer.
	Binding, Output string
	// Queue is that of the route, in the case of the name.
	Queue string
	// AuthLevel says, as written, which key the host demands.
	AuthLevel string
}

// Timer is a timer-trigger function: one folder with a function.json.
type Timer struct {
	// Name is the folder's name, and the path of the host's POST.
	Name string
	// Binding is the trigger's binding name: the member of Data that holds the timer's state.
	Binding string
	// Schedule is an NCRONTAB expression or an interval, with its %NAME% resolved. Start-up does not validate it:
	// see [Timer.CheckSchedule].
	Schedule string
	// ScheduleAsWritten still has its %NAME%. Errors show it, because a setting may be secret.
	ScheduleAsWritten string
	// RunOnStartup makes the host also run it whenever the host starts.
	RunOnStartup bool
}

// noTimerRetry explains why a timer function has no retry policy.
const noTimerRetry = "remove it: the host repeats a failed run at its next time"

// noPostRetry explains why an HTTP function has no retry policy.
const noPostRetry = "remove it: the sender repeats a post"

// The names that the host accepts (docs/host.md, "App folder").
var (
	validFunctionName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,127}$`)
	validBindingName  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,127}$`)
)

// rootPathVariable is the environment variable in which the host passes the app folder.
const rootPathVariable = "FUNCTIONS_APP_ROOT_PATH"

// RootPath returns the app folder, or the working directory if the host does not pass one.
func RootPath(getenv func(string) string) string {
	return cmp.Or(getenv(rootPathVariable), ".")
}

// LocalName is the name of an app outside Azure that has no host id.
const LocalName = "local"

// Name returns the name that all instances of an app share, unless a setting of ours says another: the configured host
// id or, as the host forms it, the name of the Function App, followed by that of its slot unless that is production; or
// the name of the Container App. An app elsewhere is [LocalName].
func Name(getenv func(string) string) string {
	site, slot := getenv("WEBSITE_SITE_NAME"), getenv("WEBSITE_SLOT_NAME")
	if site != "" && slot != "" && !strings.EqualFold(slot, "production") {
		site += "-" + slot
	}
	hostID, containerApp := getenv("AzureFunctionsWebHost__hostid"), getenv("CONTAINER_APP_NAME")
	return strings.ToLower(cmp.Or(hostID, site, containerApp, LocalName))
}

// ErrNoApp means that a folder is not an app folder: it has no host.json, or it is this project's own, from which
// `make build` makes an app folder.
var ErrNoApp = errors.New("not an app folder")

// stagedFunctions matches the files from which `make build` makes an app folder, in the project's folder.
const stagedFunctions = "functions/*/function.json"

// Staged returns the app folder that `make build` has made in the project's folder; dir itself if it is another folder,
// or nothing is staged.
func Staged(dir string) string {
	sources, _ := fs.Glob(os.DirFS(dir), stagedFunctions) // the patterns are valid
	own, _ := fs.Glob(os.DirFS(dir), "*/"+fileName)
	dist := filepath.Join(dir, "dist")
	if len(sources) == 0 || len(own) > 0 || !exists(os.DirFS(dist), "host.json") {
		return dir
	}
	return dist
}

// Load reads and checks the app folder. The environment, in the form of os.Environ, resolves %NAME% in queue names
// and schedules, and overrides values of host.json. The error joins all problems; each names the file and what to
// change. With an error Load also returns the valid part, so that the caller can check it together with the settings,
// or nil if it cannot read host.json.
func Load(dir string, environ []string) (*App, error) { return load(dir, environ, true) }

// LoadForWorker is like [Load] for a process without the Functions host, which needs no extensions and no handler.
func LoadForWorker(dir string, environ []string) (*App, error) { return load(dir, environ, false) }

func load(dir string, environ []string, hasHost bool) (*App, error) {
	file, err := readHostJSON(dir, environ)
	if err != nil {
		return nil, err
	}
	file.hasHost = hasHost
	app := &App{Dir: dir, Host: file.host()}
	problems := app.readFunctions(environ)
	staged, _ := fs.Glob(os.DirFS(dir), stagedFunctions) // the pattern is valid
	switch {
	case len(app.Functions) > 0 || len(problems) > 0:
	case len(app.Disabled) > 0: // see WhyIdle
	case len(staged) > 0:
		problems.add("%s: %w: the host looks exactly one level below host.json, and the functions are in functions/: "+
			"run `make build`, and give --app %s", dir, ErrNoApp, filepath.Join(dir, "dist"))
	default:
		problems.add("%s: no folder with a function.json that has a queueTrigger: "+
			"the host looks exactly one level below host.json", dir)
	}
	return app, errors.Join(append(file.problems, problems...)...)
}

// LoadHost reads and checks host.json alone. The error is fs.ErrNotExist if there is none.
func LoadHost(dir string, environ []string) (Host, error) {
	file, err := readHostJSON(dir, environ)
	if err != nil {
		return Host{}, err
	}
	host := file.host()
	return host, errors.Join(file.problems...)
}

// functionJSON is the part of function.json that is read.
type functionJSON struct {
	Disabled   any
	Retry      any
	ScriptFile string
	Bindings   []binding
}

type binding struct {
	Type, Name, Direction string
	// For a queue trigger.
	QueueName, Connection, DataType string
	// For a timer trigger. UseMonitor only says whether the real host stores the schedule's state.
	Schedule     string
	RunOnStartup any
	// For an HTTP trigger.
	AuthLevel string
}

// readFunctions adds the functions in the order of their names. It adds none that has a problem.
func (a *App) readFunctions(environ []string) (found problems) {
	root := os.DirFS(a.Dir)
	paths, err := fs.Glob(root, "*/function.json")
	if err != nil {
		found.add("%w", err)
	}
	for _, file := range paths {
		for _, problem := range a.addFunction(root, file, environ) {
			found.add("%s: %w", file, problem)
		}
	}
	return append(found, a.checkUnique()...)
}

// addFunction reads one function.json.
func (a *App) addFunction(root fs.FS, file string, environ []string) (found problems) {
	content, trigger, err := readTrigger(root, file)
	if err != nil {
		return problems{err}
	}
	name := path.Dir(file)
	switch strings.ToLower(trigger.Type) {
	case "":
		a.Disabled = append(a.Disabled, name)
	case "queuetrigger":
		found.checkCommon(name, trigger.Name, "message", content.Retry, noHostRetry)
		function := found.newFunction(name, trigger, environ)
		if len(found) == 0 {
			a.Functions = append(a.Functions, function)
		}
	case "timertrigger":
		found.checkCommon(name, trigger.Name, "timer", content.Retry, noTimerRetry)
		timer := found.newTimer(name, trigger, environ)
		if len(found) == 0 {
			a.Timers = append(a.Timers, timer)
		}
	case strings.ToLower(httpTrigger):
		queue, isPost := cutPrefixFold(name, postPrefix)
		if !isPost {
			a.Unserved = append(a.Unserved, Unserved{name, trigger.Type})
			break
		}
		found.checkCommon(name, trigger.Name, "req", content.Retry, noPostRetry)
		post := Post{Name: name, Binding: trigger.Name, Queue: queue, AuthLevel: trigger.AuthLevel}
		for _, b := range content.Bindings {
			if strings.EqualFold(b.Type, "http") {
				post.Output = b.Name
			}
		}
		if post.Output == "" {
			found.add("bindings: the output of type http is missing: without it, the host has no answer for a sender")
		}
		if len(found) == 0 {
			a.Posts = append(a.Posts, post)
		}
	default:
		a.Unserved = append(a.Unserved, Unserved{name, trigger.Type})
	}
	return found
}

// readTrigger reads a function.json and returns its one trigger; a disabled function has none.
func readTrigger(root fs.FS, file string) (content functionJSON, trigger binding, err error) {
	data, err := fs.ReadFile(root, file)
	if err != nil {
		return content, trigger, err
	}
	if err := decodeRelaxed(data, &content); err != nil {
		return content, trigger, err
	}
	if disabled, _ := content.Disabled.(bool); disabled {
		return content, trigger, nil
	}
	triggers := slices.DeleteFunc(slices.Clone(content.Bindings),
		func(b binding) bool { return !strings.HasSuffix(strings.ToLower(b.Type), "trigger") })
	if len(triggers) != 1 {
		return content, trigger, fmt.Errorf("it has %d triggers: the host wants exactly one", len(triggers))
	}
	return content, triggers[0], nil
}

// checkCommon checks the names of a function and of its binding by the host's rules, and that it has no retry policy.
func (p *problems) checkCommon(name, bindingName, example string, retry any, noRetry string) {
	if !validFunctionName.MatchString(name) || strings.EqualFold(name, "host") {
		p.add("the folder's name %q is not a function name: "+
			"give a letter, then letters, digits, - and _, at most 128 in all, not host", name)
	}
	if !validBindingName.MatchString(bindingName) {
		p.add("binding name %q: give a letter, then letters and digits only (%q)", bindingName, example)
	}
	if retry != nil {
		p.add("retry: %s", noRetry)
	}
}

func (p *problems) newFunction(name string, b binding, environ []string) Function {
	connection, err := resolveSettings(b.Connection, environ)
	if err == nil && !isAppStorage(connection, environ) {
		err = fmt.Errorf("the handler reschedules messages through %s only", storage.ConnectionName)
	}
	if err != nil {
		p.add("connection is %q: %w", b.Connection, err)
	}
	queueName, err := resolveSettings(b.QueueName, environ)
	queueName = strings.ToLower(queueName)
	_, hasPoison := storage.PoisonName(queueName)
	switch {
	case err != nil:
		p.add("queueName %q: %w", b.QueueName, err)
	case !storage.ValidName(queueName):
		p.add("queueName %q: give 3 to 63 lower-case letters, digits and single dashes", b.QueueName)
	case !hasPoison:
		p.add("queueName %q has no poison queue (it ends in %s, or has more than 56 characters): "+
			"the handler could not dead-letter its messages",
			b.QueueName, storage.PoisonSuffix)
	}
	dataType := DataType(strings.ToLower(b.DataType))
	switch dataType {
	case DataBinary, DataString:
	case "":
		p.add(`dataType is missing: set "binary", otherwise a message's body can overwrite its own metadata`)
	default:
		p.add(`dataType is %q: set "binary"`, b.DataType)
	}
	return Function{Name: name, Binding: b.Name, Queue: queueName, DataType: dataType}
}

// connectionPrefix begins the names of settings that a connection need not state.
const connectionPrefix = "AzureWebJobs"

// isAppStorage reports whether the connection of a trigger is the setting [storage.ConnectionName]. The host takes
// AzureWebJobs<name> if it is set, and else <name>, in any case. A blank name means Storage (docs/host.md, "Storage
// account").
func isAppStorage(name string, environ []string) bool {
	if strings.TrimSpace(name) == "" {
		name = "Storage"
	}
	prefixed := connectionPrefix + name
	isOther := func(variable string) bool { // also the parts of a connection by identity
		key, value, _ := strings.Cut(variable, "=")
		key, _, _ = strings.Cut(strings.ReplaceAll(key, ":", "__"), "__")
		return value != "" && strings.EqualFold(key, prefixed)
	}
	return strings.EqualFold(prefixed, storage.ConnectionName) ||
		strings.EqualFold(name, storage.ConnectionName) && !slices.ContainsFunc(environ, isOther)
}

func (p *problems) newTimer(name string, b binding, environ []string) Timer {
	schedule, err := resolveSettings(b.Schedule, environ)
	if err == nil && strings.TrimSpace(schedule) == "" {
		err = errors.New(`it is empty: give 5 or 6 fields, such as "0 0 * * * *", or an interval as hh:mm:ss`)
	}
	if err != nil {
		p.add("schedule %q: %w", b.Schedule, err)
	}
	timer := Timer{Name: name, Binding: b.Name, Schedule: schedule, ScheduleAsWritten: b.Schedule}
	switch atStart := b.RunOnStartup.(type) {
	case nil:
	case bool:
		timer.RunOnStartup = atStart
	default:
		p.add("runOnStartup is %q: give true or false", fmt.Sprint(atStart))
	}
	return timer
}

func (a *App) checkUnique() (found problems) {
	seen := map[string]string{}
	check := func(key, name, format string) {
		if other, taken := seen[key]; taken {
			found.add(format, other, name)
		}
		seen[key] = name
	}
	for _, name := range a.Names() {
		check("name "+strings.ToLower(name), name, "functions %s and %s differ only in case: rename one")
	}
	for _, f := range a.Functions {
		check("queue "+f.Queue, f.Name, "functions %s and %s both read queue "+f.Queue+": remove one")
	}
	return found
}

// resolveSettings replaces each %NAME% by the setting of that name, in any case, as the host does.
func resolveSettings(text string, environ []string) (string, error) {
	parts := strings.Split(text, "%")
	if len(parts)%2 == 0 {
		return "", errors.New("a % has no closing %")
	}
	for i := 1; i < len(parts); i += 2 {
		value := lookup(environ, parts[i])
		if value == "" {
			return "", fmt.Errorf("the setting %s is not set", parts[i])
		}
		parts[i] = value
	}
	return strings.Join(parts, ""), nil
}

func lookup(environ []string, name string) string {
	for _, variable := range environ {
		key, value, _ := strings.Cut(variable, "=")
		if strings.EqualFold(key, name) && value != "" {
			return value
		}
	}
	return ""
}

// LocalSettings is the name of the file in the app folder with the settings of a development machine.
const LocalSettings = "local.settings.json"

// WithLocalSettings adds the Values of the app folder's local.settings.json to an environment, as `func start` does:
// variables that are already set take precedence. A folder without that file adds nothing.
func WithLocalSettings(dir string, environ []string) ([]string, error) {
	path := filepath.Join(dir, LocalSettings)
	data, err := os.ReadFile(path) //nolint:gosec // the app folder is the operator's choice
	if errors.Is(err, fs.ErrNotExist) {
		return environ, nil
	}
	if err != nil {
		return nil, err
	}
	var file struct {
		IsEncrypted bool
		Values      map[string]any // texts, but the real tools also accept numbers and booleans
	}
	if err := decodeRelaxed(data, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if file.IsEncrypted {
		return nil, fmt.Errorf("%s is encrypted: run `func settings decrypt` first", path)
	}
	all := slices.Clone(environ)
	for _, name := range slices.Sorted(maps.Keys(file.Values)) {
		if lookup(environ, name) == "" {
			all = append(all, fmt.Sprintf("%s=%v", name, file.Values[name]))
		}
	}
	return all, nil
}
