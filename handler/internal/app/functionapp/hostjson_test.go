package functionapp_test

import (
	"errors"
	"io/fs"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/storage"
)

const shippedBundle = "Microsoft.Azure.Functions.ExtensionBundle"

// TestHostJSON: what the handler uses of host.json, with the host's defaults, and with the overrides of settings.
func TestHostJSON(t *testing.T) {
	const (
		timeout, threshold = `"00:05:00"`, `, "newBatchThreshold": 2`
		setting            = "AzureFunctionsJobHost__"
		ofQueues           = setting + "extensions__queues__"
		ofHandler          = setting + "customHandler__description__"
		consumption        = "WEBSITE_SKU=Dynamic"
	)
	type host = functionapp.Host
	processors := runtime.GOMAXPROCS(0)
	lasts := func(d time.Duration) func(*host) { return func(h *host) { h.FunctionTimeout = d } }
	polls := func(batch, threshold int) func(*host) {
		return func(h *host) { h.Queues.BatchSize, h.Queues.NewBatchThreshold = batch, threshold }
	}
	runs := func(arguments ...string) func(*host) { return func(h *host) { h.Handler.Arguments = arguments } }
	base := app(nil).mustLoad(t).Host
	for name, test := range map[string]struct {
		old, replacement string // in a valid file
		environ          []string
		want             func(*host)
	}{
		"hours_minutes": {timeout, `"01:30"`, nil, lasts(90 * time.Minute)},
		"without_zeros": {timeout, `"0:6:0"`, nil, lasts(6 * time.Minute)},
		"ticks":         {timeout, `"00:00:01.0000001"`, nil, lasts(time.Second + 100*time.Nanosecond)},
		"days":          {timeout, `"1.00:00:00"`, nil, lasts(24 * time.Hour)},
		"almost_a_day":  {timeout, `"23:59:59"`, nil, lasts(24*time.Hour - time.Second)},
		"never":         {timeout, `"-1"`, nil, lasts(-1)},
		"least":         {timeout, `"00:00:01"`, nil, lasts(time.Second)},

		// half a batch, rounded down, for each processor; on the classic Consumption plan for one
		"threshold":      {threshold, ``, nil, polls(4, 2*processors)},
		"null":           {threshold, `, "newBatchThreshold": null`, nil, polls(4, 2*processors)},
		"odd":            {`4` + threshold, `17`, nil, polls(17, 8*processors)},
		"one_at_a_time":  {`4` + threshold, `1`, nil, polls(1, 0)},
		"consumption":    {threshold, ``, []string{consumption}, polls(4, 2)},
		"other_plan":     {threshold, ``, []string{"WEBSITE_SKU=FlexConsumption"}, polls(4, 2*processors)},
		"given":          {threshold, `, "newBatchThreshold": 3`, []string{consumption}, polls(4, 3)},
		"zero_given":     {threshold, `, "newBatchThreshold": 0`, nil, polls(4, 0)},
		"largest_batch":  {`"batchSize": 4`, `"batchSize": 32`, nil, polls(32, 2)},
		"batch_override": {threshold, ``, []string{ofQueues + "batchSize=32"}, polls(32, 16*processors)},

		"top_level": {``, ``, []string{setting + "functionTimeout=00:07:00"}, lasts(7 * time.Minute)},
		"any_case": {``, ``, []string{strings.ToUpper(ofQueues) + "MESSAGEENCODING=BASE64"}, func(h *host) {
			h.Queues.MessageEncoding = storage.Base64
		}},
		"several": {``, ``, []string{
			ofQueues + "maxDequeueCount=9", "azurefunctionsjobhost:Extensions__queues:visibilityTimeout=00:01:00",
		}, func(h *host) { h.Queues.MaxDequeueCount, h.Queues.VisibilityTimeout = 9, time.Minute }},
		"executable": {``, ``, []string{ofHandler + "defaultExecutablePath=bin/other"}, func(h *host) {
			h.Handler.Executable = "bin/other"
		}},
		"arguments": {``, ``, []string{ofHandler + `arguments=["serve","--x=a b"]`}, runs("serve", "--x=a b")},
		"arguments_one_by_one": {
			`, "arguments": ["serve"]`, ``,
			[]string{ofHandler + "arguments__1=-v", ofHandler + "arguments__0=serve"},
			runs("serve", "-v"),
		},
		"one_argument": {``, ``, []string{ofHandler + "arguments__0=other"}, runs("other")},
		"others_ignored": {``, ``, []string{
			"extensions__queues__batchSize=1", "AzureFunctionsJobHost__=x", "AzureFunctionsJobHost:=x",
			"AzureFunctionsJobHost=x", "X" + setting + "functionTimeout=00:01:00",
			"AzureFunctionsJobHost_functionTimeout=00:01:00",
		}, func(*host) {}},
	} {
		t.Run(name, func(t *testing.T) {
			folder := app(nil)
			if test.old != "" {
				folder = withHost(t, test.old, test.replacement)
			}
			want := base
			test.want(&want)
			if diff := cmp.Diff(want, folder.mustLoad(t, test.environ...).Host); diff != "" {
				t.Errorf("host.json (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	loaded := app(files{"host.json": `{
		"version": "2.0",
		"customHandler": {"description": {"defaultExecutablePath": "bin/async-caller", "workingDirectory": "bin"}},
		"extensionBundle": {"id": "Microsoft.Azure.Functions.ExtensionBundle", "version": "[4.*, 5.0.0)"}
	}`}).mustLoad(t)
	want := functionapp.Host{
		FunctionTimeout: 5 * time.Minute,
		Queues: functionapp.QueueOptions{
			BatchSize: 16, NewBatchThreshold: 8 * runtime.GOMAXPROCS(0),
			MaxDequeueCount: 5, MessageEncoding: storage.Base64,
		},
		Handler:  functionapp.CustomHandler{Executable: "bin/async-caller", WorkingDirectory: "bin"},
		BundleID: shippedBundle,
	}
	if diff := cmp.Diff(want, loaded.Host); diff != "" {
		t.Errorf("host.json (-want +got):\n%s", diff)
	}
}

// TestUnreadableHostJSON: without host.json nothing is loaded, and the error says where the text is no JSON.
func TestUnreadableHostJSON(t *testing.T) {
	for name, row := range map[string]struct{ content, want string }{
		"missing":     {"", "FUNCTIONS_APP_ROOT_PATH"},
		"not_json":    {`{"version":}`, "host.json: not JSON"},
		"empty":       {" ", "host.json: not JSON"},
		"second_text": {validHost + `{}`, "host.json: not JSON: line 10, column 2"},
		"no_comma":    {"{\n/* a\ncomment */\"a\": 1 // none\n\"b\": 2}", "host.json: not JSON: line 4, column 1: "},
		"cut_off":     {"{\r\n  \"version\": \"2.0\"", "host.json: not JSON: line 2, column 19"},
		"brackets":    {"{\n\n  \"a\": [1}\n}", "host.json: not JSON: line 3, column 10"},
		"an_array":    {`[` + validHost + `]`, "host.json: want an object, not an array"},
		"utf16":       {wide(validHost), "host.json: the text is UTF-16: save it as UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := functionapp.Load(app(files{"host.json": row.content}).write(t), nil)
			wantProblem(t, err, row.want)
			if got != nil {
				t.Errorf("got an app beside the error: %+v", got)
			}
		})
	}
}

func TestHostJSONProblems(t *testing.T) {
	const (
		extensions = `"extensions": {"queues": {`
		nesting    = " is ignored by the host there: move it to extensions.queues"
		ofQueues   = "extensions.queues."
		batchSize  = ofQueues + "batchSize "
		executable = "customHandler.description.defaultExecutablePath is "
	)
	for name, test := range map[string]struct{ old, replacement, want string }{
		"version_missing":    {`"version": "2.0",`, ``, `version is "": it must be "2.0"`},
		"version_old":        {`"2.0"`, `"1.0"`, `version is "1.0": it must be "2.0"`},
		"bundle_missing":     {`"extensionBundle"`, `"otherBundle"`, "extensionBundle is missing"},
		"executable_missing": {`"defaultExecutablePath": "async-caller", `, ``, executable + "missing"},
		"executable_dot":     {`"async-caller"`, `"./async-caller"`, executable + `"./async-caller": write`},
		"executable_slash":   {`"async-caller"`, `"bin\\async-caller"`, executable},
		"executable_setting": {`"async-caller"`, `"%HANDLER%"`, executable},

		"timeout_seconds":    {`"00:05:00"`, `300`, `functionTimeout is "300": give a time as hh:mm:ss from 1s to `},
		"timeout_go":         {`"00:05:00"`, `"5m"`, `functionTimeout is "5m"`},
		"timeout_zero":       {`"00:05:00"`, `"00:00:00"`, "functionTimeout"},
		"timeout_negative":   {`"00:05:00"`, `"-00:05:00"`, "functionTimeout"},
		"timeout_75_minutes": {`"00:05:00"`, `"00:75:00"`, "functionTimeout"},
		"timeout_24_hours":   {`"00:05:00"`, `"24:00:00"`, "functionTimeout"},
		"timeout_exponent":   {`"00:05:00"`, `"00:00:1e1"`, "functionTimeout"},
		"timeout_forever":    {`"00:05:00"`, `"9999.00:00:00"`, "functionTimeout"},

		"batch_0": {
			`"batchSize": 4`, `"batchSize": 0`, batchSize + `is "0": give a whole number from 1 to 32`,
		},
		"batch_33":       {`"batchSize": 4`, `"batchSize": 33`, batchSize + `is "33"`},
		"batch_fraction": {`"batchSize": 4`, `"batchSize": 1.5`, batchSize},
		"batch_boolean":  {`"batchSize": 4`, `"batchSize": true`, batchSize},
		"threshold_negative": {
			`Threshold": 2`, `Threshold": -1`, ofQueues + `newBatchThreshold is "-1": give a whole number from 0 to`,
		},
		"dequeue_count_0": {
			`Count": 3`, `Count": 0`, ofQueues + `maxDequeueCount is "0": give a whole number from 1 to`,
		},
		"polling_too_often": {
			`"00:00:02"`, `"00:00:00.099"`,
			ofQueues + `maxPollingInterval is "00:00:00.099": give a time as hh:mm:ss from 100ms to`,
		},
		"visibility_8_days": {`"00:00:30"`, `"7.00:00:01"`, ofQueues + `visibilityTimeout is "7.00:00:01"`},
		"visibility_empty":  {`"00:00:30"`, `"::"`, ofQueues + "visibilityTimeout"},
		"encoding":          {`"none"`, `"utf8"`, ofQueues + `messageEncoding is "utf8": it is "base64" or "none"`},
		"arguments_text":    {`["serve"]`, `"serve"`, "customHandler.description.arguments is not a list"},
		"host_retry":        {`"functionT`, `"retry": {"strategy": "x"}, "functionT`, "retry: remove it"},

		"queues_at_top": {extensions, `"queues": {"x": {`, "queues.x.batchsize" + nesting},
		"queues_below":  {extensions, `"host": {"queues": {`, "host.queues.batchsize" + nesting},
		"queues_elsewhere": {
			extensions, `"extensions": {"a": {"queues": {"b": 1}}, "queues": {`, "extensions.a.queues.b" + nesting,
		},
	} {
		t.Run(name, func(t *testing.T) {
			folder := withHost(t, test.old, test.replacement)
			loaded, err := functionapp.Load(folder.write(t), nil)
			wantProblem(t, err, "host.json: "+test.want)
			if loaded == nil || len(loaded.Functions) != 1 {
				t.Errorf("the valid part is missing: %+v", loaded)
			}
		})
	}
	_, err := functionapp.Load(app(nil).write(t), []string{"AzureFunctionsJobHost__queues__batchSize=8"})
	wantProblem(t, err, "host.json: queues.batchsize"+nesting)
}

// TestInstalledExtensions: an app without a bundle may bring its own extensions in bin, which extensions.json lists.
func TestInstalledExtensions(t *testing.T) {
	const installed, bundle = "bin/extensions.json",
		`"extensionBundle": {"id": "Microsoft.Azure.Functions.ExtensionBundle", "version": "[4.*, 5.0.0)"},`
	for name, test := range map[string]struct {
		file, bundle string
		valid        bool
	}{
		"installed":              {installed, "", true},
		"bundle_null":            {installed, `"extensionBundle": null,`, true},
		"bundle_too":             {installed, bundle, true},
		"bundle_without_version": {installed, `"extensionBundle": {"id": "x"},`, false},
		"in_another_folder":      {"extensions.json", "", false},
		"a_folder":               {installed + "/x", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			folder := withHost(t, bundle, test.bundle)
			folder[test.file] = `{"extensions":[]}`
			_, err := functionapp.Load(folder.write(t), nil)
			if !test.valid {
				wantProblem(t, err, "host.json: extensionBundle", installed)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLoadHost(t *testing.T) {
	const override = "AzureFunctionsJobHost__extensions__queues__batchSize=32"
	want := app(nil).mustLoad(t, override).Host
	got, err := functionapp.LoadHost(files{"host.json": validHost}.write(t), []string{override})
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v, host.json without functions (-want +got):\n%s", err, diff)
	}
	if _, err := functionapp.LoadHost(t.TempDir(), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without host.json: got %v, want %v", err, fs.ErrNotExist)
	}
	_, err = functionapp.LoadHost(withHost(t, `"batchSize": 4`, `"batchSize": 0`).write(t), nil)
	wantProblem(t, err, "host.json: extensions.queues.batchSize")
	if errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v means that there is no host.json", err)
	}
}
