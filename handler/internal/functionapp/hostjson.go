package functionapp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/jsonc"

	"asynccaller/handler/internal/queue"
)

// Defaults of the Functions host's queue extension and of host.json.
const (
	defaultFunctionTimeout = 5 * time.Minute
	defaultBatchSize       = 16
	defaultMaxDequeueCount = 5
	minPollingInterval     = 100 * time.Millisecond
	maxVisibilityTimeout   = 7 * 24 * time.Hour
	// noHostRetry explains why the host's own retry policies are refused.
	noHostRetry = "remove it: the host would call again with the same message beside the retries of Async Caller"
	// overridePrefix marks environment variables that replace values of host.json.
	overridePrefix = "AzureFunctionsJobHost__"
)

// hostJSON is host.json as the host's configuration sees it: a flat map from a lower-case path, its
// parts joined by colons, to a text; the elements of a list have their number as the last part.
type hostJSON struct {
	values   map[string]string
	problems []error
}

func readHostJSON(dir string, environ []string) (*hostJSON, error) {
	path := filepath.Join(dir, "host.json")
	data, err := os.ReadFile(path) //nolint:gosec // the app folder is the operator's choice
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w: start in the app folder (`make build` stages it as dist) or set FUNCTIONS_APP_ROOT_PATH", path, fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	var root map[string]any
	if err := decodeRelaxed(data, &root); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	h := &hostJSON{values: map[string]string{}}
	flatten(h.values, "", root)
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if len(name) > len(overridePrefix) && strings.EqualFold(name[:len(overridePrefix)], overridePrefix) {
			key := strings.ToLower(strings.ReplaceAll(name[len(overridePrefix):], "__", ":"))
			h.values[key] = value
		}
	}
	return h, nil
}

// decodeRelaxed decodes JSON with comments, as the host's configuration reader tolerates them.
func decodeRelaxed(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(jsonc.ToJSON(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")))))
	decoder.UseNumber()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("not JSON: text after the end of the object")
	}
	return nil
}

func flatten(into map[string]string, path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			key := strings.ToLower(name)
			if path != "" {
				key = path + ":" + key
			}
			flatten(into, key, inner)
		}
	case []any:
		for i, element := range v {
			into[path+":"+strconv.Itoa(i)] = fmt.Sprint(element)
		}
	case nil:
	default:
		into[path] = fmt.Sprint(v)
	}
}

func (h *hostJSON) problem(format string, args ...any) {
	h.problems = append(h.problems, fmt.Errorf("host.json: "+format, args...))
}

// text returns the value at a path written as in host.json (dots, any case), or "".
func (h *hostJSON) text(path string) string {
	return h.values[strings.ToLower(strings.ReplaceAll(path, ".", ":"))]
}

func (h *hostJSON) number(path string, fallback, lowest, highest int) int {
	text := h.text(path)
	if text == "" {
		return fallback
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < lowest || n > highest {
		h.problem("%s is %q: give a whole number from %d to %d", path, text, lowest, highest)
		return fallback
	}
	return n
}

func (h *hostJSON) timeSpan(path string, fallback, lowest, highest time.Duration) time.Duration {
	text := h.text(path)
	if text == "" {
		return fallback
	}
	d, err := parseTimeSpan(text)
	if err != nil || d < lowest || d > highest {
		h.problem("%s is %q: give a time as hh:mm:ss from %v to %v", path, text, lowest, highest)
		return fallback
	}
	return d
}

// list returns the list at a path. The environment may replace its elements one by one, or all of them
// by a JSON array in one variable.
func (h *hostJSON) list(path string) (list []string) {
	if text := h.text(path); text != "" {
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			h.problem("%s is not a list of texts", path)
		}
		return list
	}
	for i := 0; ; i++ {
		element := h.text(path + "." + strconv.Itoa(i))
		if element == "" {
			return list
		}
		list = append(list, element)
	}
}

// host reads and checks what we need of host.json; what is wrong is added to the problems.
func (h *hostJSON) host() Host {
	if version := h.text("version"); version != "2.0" {
		h.problem(`version is %q: it must be "2.0"`, version)
	}
	h.checkNesting()
	if h.text("extensionBundle.id") == "" || h.text("extensionBundle.version") == "" {
		h.problem(`extensionBundle is missing: without "id" and "version" ([4.*, 5.0.0)) the host does not know queueTrigger`)
	}
	if h.text("retry.strategy") != "" {
		h.problem("retry: %s", noHostRetry)
	}
	return Host{
		FunctionTimeout: h.functionTimeout(),
		Queues: QueueOptions{
			BatchSize:          h.number("extensions.queues.batchSize", defaultBatchSize, 1, queue.MaxBatch),
			NewBatchThreshold:  h.number("extensions.queues.newBatchThreshold", -1, 0, 1000),
			MaxPollingInterval: h.timeSpan("extensions.queues.maxPollingInterval", 0, minPollingInterval, 24*time.Hour),
			VisibilityTimeout:  h.timeSpan("extensions.queues.visibilityTimeout", 0, 0, maxVisibilityTimeout),
			MaxDequeueCount:    int64(h.number("extensions.queues.maxDequeueCount", defaultMaxDequeueCount, 1, 1_000_000)),
			MessageEncoding:    h.messageEncoding(),
		},
		Handler: h.customHandler(),
	}
}

// checkNesting finds queue options that the host would silently ignore because they stand elsewhere
// than below extensions.queues.
func (h *hostJSON) checkNesting() {
	for _, key := range slices.Sorted(maps.Keys(h.values)) {
		parts := strings.Split(key, ":")
		at := slices.Index(parts, "queues")
		wellNested := at == 1 && parts[0] == "extensions"
		if at >= 0 && !wellNested && parts[0] != "logging" {
			h.problem("%s is ignored by the host there: move it to extensions.queues", strings.ReplaceAll(key, ":", "."))
		}
	}
}

func (h *hostJSON) functionTimeout() time.Duration {
	if h.text("functionTimeout") == "-1" {
		return -1
	}
	return h.timeSpan("functionTimeout", defaultFunctionTimeout, time.Second, 365*24*time.Hour)
}

func (h *hostJSON) messageEncoding() queue.Encoding {
	switch text := h.text("extensions.queues.messageEncoding"); strings.ToLower(text) {
	case "", string(queue.Base64):
		return queue.Base64
	case string(queue.None):
		return queue.None
	default:
		h.problem(`extensions.queues.messageEncoding is %q: it is "base64" or "none"`, text)
		return queue.Base64
	}
}

func (h *hostJSON) customHandler() CustomHandler {
	const path = "customHandler.description.defaultExecutablePath"
	executable := h.text(path)
	switch {
	case executable == "":
		h.problem("%s is missing: name the executable, %q", path, "async-caller")
	case strings.HasPrefix(executable, "./"), strings.ContainsAny(executable, `\%`):
		h.problem("%s is %q: write the plain path inside the app folder (%q), because only the file whose path in the zip is exactly that gets its run bit",
			path, executable, "async-caller")
	}
	return CustomHandler{
		Executable:       executable,
		Arguments:        h.list("customHandler.description.arguments"),
		WorkingDirectory: h.text("customHandler.description.workingDirectory"),
	}
}

// parseTimeSpan reads .NET's TimeSpan as host.json uses it: [d.]hh:mm[:ss[.fff]].
func parseTimeSpan(text string) (time.Duration, error) {
	invalid := fmt.Errorf("%q is not a time such as 00:05:00", text)
	parts := strings.Split(text, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return 0, invalid
	}
	days := 0
	if d, hours, ok := strings.Cut(parts[0], "."); ok {
		var err error
		if days, err = strconv.Atoi(d); err != nil || days < 0 || days > 3650 {
			return 0, invalid
		}
		parts[0] = hours
	}
	total := time.Duration(days) * 24 * time.Hour
	limits := []float64{24, 60, 60}
	units := []time.Duration{time.Hour, time.Minute, time.Second}
	for i, part := range parts {
		digits := "0123456789"
		if i == 2 {
			digits += "."
		}
		// ParseFloat alone takes more than .NET does: NaN, 1e1, 0x1p3.
		n, err := strconv.ParseFloat(part, 64)
		if err != nil || strings.Trim(part, digits) != "" || n >= limits[i] {
			return 0, invalid
		}
		total += time.Duration(n * float64(units[i]))
	}
	return total, nil
}
