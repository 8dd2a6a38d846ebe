package functionapp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/jsonc"

	"asynccaller/handler/internal/plain/bom"
	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/storage"
)

// Defaults and limits of host.json and of the Functions host's queue extension.
const (
	defaultFunctionTimeout = 5 * time.Minute
	defaultBatchSize       = 16
	defaultMaxDequeueCount = 5
	minPollingInterval     = 100 * time.Millisecond
	maxVisibilityTimeout   = 7 * 24 * time.Hour
	// noHostRetry explains why the host's own retry policies are refused.
	noHostRetry = "remove it: the host would repeat the call, in addition to the retries of Async Caller"
	// overridePrefix begins environment variables that replace values of host.json, after each __ became a colon.
	overridePrefix = "azurefunctionsjobhost:"
	// consumptionPlan is the environment variable by which the host knows the classic Consumption plan.
	consumptionPlan = "WEBSITE_SKU=Dynamic"
	// extensionsFile lists the extensions of an app that brings its own instead of a bundle (`func extensions
	// install`).
	extensionsFile = "bin/extensions.json"
)

// problems collects the problems of a file.
type problems []error

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Errorf(format, args...)) }

// hostJSON is host.json as the host's configuration represents it: a flat map from a lower-case path, whose parts are
// joined by colons, to a text. The elements of a list have their number as the last part.
type hostJSON struct {
	values map[string]string
	// extensions says whether the app folder has extensionsFile.
	extensions bool
	// hasHost says that the Functions host reads the file, too.
	hasHost bool
	// processors is the number of processors by which the host multiplies its default of newBatchThreshold.
	processors int
	problems
}

func readHostJSON(dir string, environ []string) (*hostJSON, error) {
	path := filepath.Join(dir, "host.json")
	data, err := os.ReadFile(path) //nolint:gosec // the app folder is the operator's choice
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w, which has host.json and a folder for each function: %s",
			err, ErrNoApp, appAdvice(dir, lookup(environ, rootPathVariable)))
	}
	if err != nil {
		return nil, err
	}
	var root map[string]any
	if err := decodeRelaxed(data, &root); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	extensions, err := os.Stat(filepath.Join(dir, filepath.FromSlash(extensionsFile)))
	h := &hostJSON{
		hasHost:    true,
		values:     map[string]string{},
		extensions: err == nil && extensions.Mode().IsRegular(),
		// like .NET's ProcessorCount, and unlike NumCPU, within the limit of the container
		processors: runtime.GOMAXPROCS(0),
	}
	flatten(h.values, "", root)
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if variable == consumptionPlan {
			h.processors = 1
		}
		key, isOverride := strings.CutPrefix(strings.ToLower(strings.ReplaceAll(name, "__", ":")), overridePrefix)
		if isOverride && key != "" {
			h.values[key] = value
		}
	}
	return h, nil
}

// appAdvice says what to do about a folder without host.json. Root is what the host passes as the app folder, or "".
func appAdvice(dir, root string) string {
	switch {
	case root == "":
		return "name one with --app (`make build` stages dist), or for serve with " + rootPathVariable
	case sameFolder(dir, root):
		return rootPathVariable + " names this folder: deploy again, with host.json at the top of the package"
	default:
		return fmt.Sprintf("%s names another folder: give --app %s", rootPathVariable, root)
	}
}

// sameFolder reports whether two paths name the same folder. It does not follow links.
func sameFolder(a, b string) bool {
	absoluteA, errA := filepath.Abs(a)
	absoluteB, errB := filepath.Abs(b)
	return errors.Join(errA, errB) == nil && absoluteA == absoluteB
}

// decodeRelaxed decodes JSON with comments, as the host's configuration reader does.
func decodeRelaxed(data []byte, into any) error {
	data, err := bom.Text(data)
	if err != nil {
		return err
	}
	text := jsonc.ToJSON(data) // which keeps the places of all values
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	err = decoder.Decode(into)
	if _, endErr := decoder.Token(); err == nil && errors.Is(endErr, io.EOF) {
		return nil
	}
	if _, syntaxErr := strictjson.Object(text); syntaxErr != nil {
		return syntaxErr // with line and column
	}
	return fmt.Errorf("not JSON: %w", err)
}

func flatten(into map[string]string, path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			flatten(into, strings.TrimPrefix(path+":"+strings.ToLower(name), ":"), inner)
		}
	case []any:
		for i, element := range v {
			into[path+":"+strconv.Itoa(i)] = fmt.Sprint(element)
		}
	case nil:
		into[path] = ""
	default:
		into[path] = fmt.Sprint(v)
	}
}

// text returns the value at a path written as in host.json (dots, any case), or "".
func (h *hostJSON) text(path string) string { return h.values[keyOf(path)] }

// keyOf returns the key of a path written as in host.json.
func keyOf(path string) string { return strings.ToLower(strings.ReplaceAll(path, ".", ":")) }

func (h *hostJSON) number(path string, fallback, lowest, highest int) int {
	return within(h, path, "a whole number", strconv.Atoi, fallback, lowest, highest)
}

func (h *hostJSON) timeSpan(path string, fallback, lowest, highest time.Duration) time.Duration {
	return within(h, path, "a time as hh:mm:ss", parseTimeSpan, fallback, lowest, highest)
}

// within parses the value at a path. It returns the fallback if there is none, or if it is outside the limits.
func within[T cmp.Ordered](
	h *hostJSON, path, want string, parse func(string) (T, error), fallback, lowest, highest T,
) T {
	text := h.text(path)
	if text == "" {
		return fallback
	}
	allowed := bounds.New(lowest, highest)
	value, ok := allowed.Parse(text, parse)
	if !ok {
		h.add("host.json: %s is %q: give %s %v", path, text, want, allowed)
		return fallback
	}
	return value
}

// list returns the list at a path. The environment may replace its elements one by one, or the whole list by a JSON
// array in one variable.
func (h *hostJSON) list(path string) (list []string) {
	if text := h.text(path); text != "" {
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			h.add("host.json: %s is not a list of texts", path)
		}
		return list
	}
	for element := h.text(path + ".0"); element != ""; element = h.text(path + "." + strconv.Itoa(len(list))) {
		list = append(list, element)
	}
	return list
}

// host checks and returns the part of host.json that Async Caller uses. It adds any errors to the problems.
func (h *hostJSON) host() Host {
	if version := h.text("version"); version != "2.0" {
		h.add(`host.json: version is %q: it must be "2.0"`, version)
	}
	h.checkNesting()
	hasID, hasVersion := h.text("extensionBundle.id") != "", h.text("extensionBundle.version") != ""
	hasNeither := !hasID && !hasVersion
	if h.hasHost && (hasID != hasVersion || hasNeither && !h.extensions) {
		h.add(`host.json: extensionBundle is missing: without "id" and "version" ([4.*, 5.0.0)), and without `+
			`%s, the host does not know queueTrigger`, extensionsFile)
	}
	if h.text("retry.strategy") != "" {
		h.add("host.json: retry: %s", noHostRetry)
	}
	timeout := time.Duration(-1)
	if h.text("functionTimeout") != "-1" {
		timeout = h.timeSpan("functionTimeout", defaultFunctionTimeout, time.Second, 365*24*time.Hour)
	}
	requests, _ := strconv.Atoi(h.text("extensions.http.maxConcurrentRequests")) // the host checks it
	return Host{
		FunctionTimeout: timeout,
		Queues:          h.queueOptions(),
		Logging:         h.logging(),
		Handler: CustomHandler{
			Executable:       h.executable(),
			Arguments:        h.list("customHandler.description.arguments"),
			WorkingDirectory: h.text("customHandler.description.workingDirectory"),
		},
		BundleID:   h.text("extensionBundle.id"),
		AllowList:  h.allowList(),
		Forwarding: h.forwarding(), MaxRequests: requests,
	}
}

// forwarding returns the members with which the host passes requests of HTTP functions on as they are. The section
// httpWorker, from before customHandler, always does.
func (h *hostJSON) forwarding() (found []string) {
	for _, option := range []string{"enableForwardingHttpRequest", "enableProxyingHttpRequest"} {
		if strings.EqualFold(strings.TrimSpace(h.text("customHandler."+option)), "true") { // as .NET reads it
			found = append(found, "customHandler."+option)
		}
	}
	for key := range h.values {
		if section, _, _ := strings.Cut(key, ":"); section == "httpworker" {
			return append(found, "httpWorker")
		}
	}
	return found
}

func (h *hostJSON) allowList() (names []string) {
	for _, key := range slices.Sorted(maps.Keys(h.values)) {
		if strings.HasPrefix(key, "functions:") {
			names = append(names, h.values[key])
		}
	}
	return names
}

func (h *hostJSON) queueOptions() QueueOptions {
	const section = "extensions.queues."
	batchSize := h.number(section+"batchSize", defaultBatchSize, 1, storage.MaxBatch)
	return QueueOptions{
		BatchSize:          batchSize,
		NewBatchThreshold:  h.number(section+"newBatchThreshold", batchSize/2*h.processors, 0, 1000),
		MaxPollingInterval: h.timeSpan(section+"maxPollingInterval", 0, minPollingInterval, 24*time.Hour),
		VisibilityTimeout:  h.timeSpan(section+"visibilityTimeout", 0, 0, maxVisibilityTimeout),
		MaxDequeueCount:    int64(h.number(section+"maxDequeueCount", defaultMaxDequeueCount, 1, 1_000_000)),
		MessageEncoding:    h.messageEncoding(),
	}
}

// checkNesting finds queue options outside extensions.queues, which the host silently ignores.
func (h *hostJSON) checkNesting() {
	for _, key := range slices.Sorted(maps.Keys(h.values)) {
		inPlace := strings.HasPrefix(key+":", "extensions:queues:") || strings.HasPrefix(key, "logging:")
		namesQueues := slices.Contains(strings.Split(key, ":"), "queues")
		if namesQueues && !inPlace {
			h.add("host.json: %s is ignored by the host there: move it to extensions.queues",
				strings.ReplaceAll(key, ":", "."))
		}
	}
}

func (h *hostJSON) messageEncoding() storage.Encoding {
	const path = "extensions.queues.messageEncoding"
	encoding := storage.Encoding(strings.ToLower(cmp.Or(h.text(path), string(storage.Base64))))
	if encoding != storage.Base64 && encoding != storage.None {
		h.add(`host.json: %s is %q: it is "base64" or "none"`, path, h.text(path))
		return storage.Base64
	}
	return encoding
}

func (h *hostJSON) executable() string {
	const path = "customHandler.description.defaultExecutablePath"
	executable := h.text(path)
	switch {
	case !h.hasHost:
	case executable == "":
		h.add("host.json: %s is missing: name the executable, %q", path, "async-caller")
	case strings.HasPrefix(executable, "./"), strings.ContainsAny(executable, `\%`):
		h.add("host.json: %s is %q: write the plain path inside the app folder (%q), "+
			"because a deployment sets the executable bit only of the file at exactly that path",
			path, executable, "async-caller")
	}
	return executable
}

// timeSpan matches .NET's TimeSpan as host.json uses it: [d.]hh:mm[:ss[.fff]].
var timeSpan = regexp.MustCompile(`^(?:(\d{1,4})\.)?([01]?\d|2[0-3]):([0-5]?\d)(?::([0-5]?\d(?:\.\d*)?))?$`)

// parseTimeSpan reads a time as .NET writes it in host.json and function.json, such as 00:05:00.
func parseTimeSpan(text string) (time.Duration, error) {
	match := timeSpan.FindStringSubmatch(text)
	if match == nil {
		return 0, fmt.Errorf("%q is not a time such as 00:05:00", text)
	}
	days, _ := strconv.Atoi(match[1]) // none is 0
	rest, err := time.ParseDuration(match[2] + "h" + match[3] + "m" + cmp.Or(match[4], "0") + "s")
	return time.Duration(days)*24*time.Hour + rest, err
}
