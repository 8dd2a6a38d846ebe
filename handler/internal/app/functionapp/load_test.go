package functionapp_test

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/storage"
)

const shippedBundle = "Microsoft.Azure.Functions.ExtensionBundle"

func TestLoad(t *testing.T) {
	dir := app(nil).write(t)
	got, err := functionapp.Load(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := &functionapp.App{
		Dir: dir,
		Host: functionapp.Host{
			FunctionTimeout: 5 * time.Minute,
			Queues: functionapp.QueueOptions{
				BatchSize:          4,
				NewBatchThreshold:  2,
				MaxPollingInterval: 2 * time.Second,
				VisibilityTimeout:  30 * time.Second,
				MaxDequeueCount:    3,
				MessageEncoding:    storage.None,
			},
			Handler:  functionapp.CustomHandler{Executable: "async-caller", Arguments: []string{"serve"}},
			BundleID: shippedBundle,
		},
		Functions: []functionapp.Function{{
			Name: "Work", Binding: "message", Queue: "work",
			DataType: functionapp.DataBinary,
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("app (-want +got):\n%s", diff)
	}
}

// TestProjectsOwnApp checks the app folder that is shipped.
func TestProjectsOwnApp(t *testing.T) {
	const root = "../../../.."
	paths, err := filepath.Glob(filepath.Join(root, "functions", "*", "function.json"))
	if err != nil {
		t.Fatal(err)
	}
	project := files{"host.json": mustRead(t, filepath.Join(root, "host.json"))}
	for _, path := range paths {
		project[filepath.Base(filepath.Dir(path))+"/function.json"] = mustRead(t, path)
	}
	got := project.mustLoad(t)

	wantHost := functionapp.Host{
		FunctionTimeout: 5 * time.Minute,
		Queues: functionapp.QueueOptions{
			BatchSize:          32,
			NewBatchThreshold:  224,
			MaxPollingInterval: 2 * time.Second,
			VisibilityTimeout:  30 * time.Second,
			MaxDequeueCount:    5,
			MessageEncoding:    storage.Base64,
		},
		Handler:  functionapp.CustomHandler{Executable: "async-caller", Arguments: []string{"serve"}},
		BundleID: shippedBundle,
	}
	if diff := cmp.Diff(wantHost, got.Host); diff != "" {
		t.Errorf("host.json (-want +got):\n%s", diff)
	}

	var wantFunctions []functionapp.Function
	for n := 1; n <= 10; n++ {
		wantFunctions = append(wantFunctions, functionapp.Function{
			Name: fmt.Sprintf("AC-priority%02d", n), Binding: "message", Queue: fmt.Sprintf("async-caller-%d", n),
			DataType: functionapp.DataBinary,
		})
	}
	wantFunctions = append(wantFunctions, functionapp.Function{
		Name: "AC-standard", Binding: "message",
		Queue: "async-caller", DataType: functionapp.DataBinary,
	})
	if diff := cmp.Diff(wantFunctions, got.Functions); diff != "" {
		t.Errorf("functions (-want +got):\n%s", diff)
	}
	for path, content := range project {
		if strings.Contains(content, `"queueTrigger"`) &&
			!strings.Contains(content, `"connection": "AzureWebJobsStorage"`) {
			t.Errorf("%s names no connection: the host has the same default, but readers may not know it", path)
		}
	}
}

// A disabled function is listed as such, and nowhere else.
func TestDisabledFunctions(t *testing.T) {
	got := app(files{
		"Broken/function.json": `{"disabled":true,"bindings":[]}`,
		"Other/function.json":  `{"disabled":true,"bindings":[` + validTrigger + `]}`,
	}).mustLoad(t)
	if want := []string{"Broken", "Other"}; !slices.Equal(got.Disabled, want) || len(got.Functions) != 1 {
		t.Errorf("disabled %q, want %q; functions %+v", got.Disabled, want, got.Functions)
	}
}

func TestLoadWithoutHostJSON(t *testing.T) {
	tests := map[string]struct {
		files files
		want  []string
	}{
		"missing":     {app(files{"host.json": ""}), []string{"host.json", "FUNCTIONS_APP_ROOT_PATH"}},
		"not_json":    {app(files{"host.json": `{"version":}`}), []string{"host.json: not JSON"}},
		"empty":       {app(files{"host.json": " "}), []string{"host.json: not JSON"}},
		"second_text": {app(files{"host.json": validHost + `{}`}), []string{"host.json: not JSON: line 10, column 2"}},
		"no_comma": {
			withHost(t, `"functionTimeout": "00:05:00",`, "/* a\ncomment */\"functionTimeout\": \"00:05:00\" // none"),
			[]string{"host.json: not JSON: line 5, column 3: "},
		},
		"cut_off":  {app(files{"host.json": "{\r\n  \"version\": \"2.0\""}), []string{"host.json: not JSON: line 2, column 19"}},
		"brackets": {app(files{"host.json": "{\n\n  \"a\": [1}\n}"}), []string{"host.json: not JSON: line 3, column 10"}},
		"an_array": {app(files{"host.json": `[` + validHost + `]`}), []string{"host.json: want an object, not an array"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := functionapp.Load(test.files.write(t), nil)
			wantProblem(t, err, test.want...)
			if got != nil {
				t.Errorf("got an app beside the error: %+v", got)
			}
		})
	}
	if _, err := functionapp.Load(filepath.Join(t.TempDir(), "nowhere"), nil); err == nil {
		t.Error("a folder that does not exist was loaded")
	}
}

func TestHostJSONProblems(t *testing.T) {
	queues := func(name, value string) func(*testing.T) files {
		return func(t *testing.T) files {
			t.Helper()
			return app(files{"host.json": mustReplace(t, validHost, `"batchSize": 4`, `"`+name+`": `+value)})
		}
	}
	replaced := func(old, replacement string) func(*testing.T) files {
		return func(t *testing.T) files {
			t.Helper()
			return withHost(t, old, replacement)
		}
	}
	tests := map[string]struct {
		files func(*testing.T) files
		want  []string
	}{
		"version_missing": {replaced(`"version": "2.0",`, ``), []string{"version", `"2.0"`}},
		"version_old":     {replaced(`"2.0"`, `"1.0"`), []string{`version is "1.0"`, `"2.0"`}},
		"bundle_missing": {
			replaced(`"extensionBundle"`, `"otherBundle"`),
			[]string{"extensionBundle", "[4.*, 5.0.0)"},
		},
		"executable_missing": {
			replaced(`"defaultExecutablePath": "async-caller", `, ``),
			[]string{"customHandler.description.defaultExecutablePath is missing", "async-caller"},
		},
		"executable_dot_slash": {
			replaced(`"async-caller"`, `"./async-caller"`),
			[]string{"defaultExecutablePath", `"./async-caller"`, "executable bit"},
		},
		"executable_backslash": {
			replaced(`"async-caller"`, `"bin\\async-caller"`),
			[]string{"defaultExecutablePath", "executable bit"},
		},
		"executable_variable": {
			replaced(`"async-caller"`, `"%HANDLER%"`),
			[]string{"defaultExecutablePath", "executable bit"},
		},
		"timeout_seconds":    {replaced(`"00:05:00"`, `300`), []string{`functionTimeout is "300"`, "hh:mm:ss"}},
		"timeout_go":         {replaced(`"00:05:00"`, `"5m"`), []string{`functionTimeout is "5m"`, "hh:mm:ss"}},
		"timeout_zero":       {replaced(`"00:05:00"`, `"00:00:00"`), []string{"functionTimeout", "from 1s"}},
		"timeout_negative":   {replaced(`"00:05:00"`, `"-00:05:00"`), []string{"functionTimeout"}},
		"timeout_75_minutes": {replaced(`"00:05:00"`, `"00:75:00"`), []string{"functionTimeout"}},
		"timeout_24_hours":   {replaced(`"00:05:00"`, `"24:00:00"`), []string{"functionTimeout"}},
		"timeout_nan":        {replaced(`"00:05:00"`, `"00:00:NaN"`), []string{"functionTimeout"}},
		"timeout_exponent":   {replaced(`"00:05:00"`, `"00:00:1e1"`), []string{"functionTimeout"}},
		"timeout_forever":    {replaced(`"00:05:00"`, `"9999.00:00:00"`), []string{"functionTimeout"}},
		"batch_size_0": {
			queues("batchSize", `0`),
			[]string{`extensions.queues.batchSize is "0"`, "from 1 to 32"},
		},
		"batch_size_33": {
			queues("batchSize", `33`),
			[]string{`extensions.queues.batchSize is "33"`, "from 1 to 32"},
		},
		"batch_size_fraction": {queues("batchSize", `1.5`), []string{"extensions.queues.batchSize", "whole number"}},
		"batch_size_text":     {queues("batchSize", `"many"`), []string{`extensions.queues.batchSize is "many"`}},
		"batch_size_boolean":  {queues("batchSize", `true`), []string{"extensions.queues.batchSize"}},
		"threshold_negative": {
			replaced(`"newBatchThreshold": 2`, `"newBatchThreshold": -1`),
			[]string{"extensions.queues.newBatchThreshold", "from 0"},
		},
		"dequeue_count_0": {
			replaced(`"maxDequeueCount": 3`, `"maxDequeueCount": 0`),
			[]string{"extensions.queues.maxDequeueCount", "from 1"},
		},
		"polling_too_often": {
			replaced(`"00:00:02"`, `"00:00:00.099"`),
			[]string{"extensions.queues.maxPollingInterval", "100ms"},
		},
		"polling_number": {
			replaced(`"00:00:02"`, `2`),
			[]string{"extensions.queues.maxPollingInterval", "hh:mm:ss"},
		},
		"visibility_over_7_days": {
			replaced(`"00:00:30"`, `"7.00:00:01"`),
			[]string{"extensions.queues.visibilityTimeout", "168h"},
		},
		"visibility_empty_parts": {replaced(`"00:00:30"`, `"::"`), []string{"extensions.queues.visibilityTimeout"}},
		"encoding_unknown": {
			replaced(`"none"`, `"utf8"`),
			[]string{`extensions.queues.messageEncoding is "utf8"`, `"base64" or "none"`},
		},
		"arguments_broken": {
			replaced(`["serve"]`, `"serve"`),
			[]string{"customHandler.description.arguments", "list"},
		},
		"nesting_queues_at_top": {
			replaced(`"extensions": {"queues": {`, `"queues": {"x": {`),
			[]string{"queues.", "move it to extensions.queues"},
		},
		"nesting_below_host": {
			replaced(`"extensions": {"queues": {`, `"host": {"queues": {`),
			[]string{"host.queues.", "move it to extensions.queues"},
		},
		"nesting_inside_extension": {
			replaced(`"extensions": {"queues": {`,
				`"extensions": {"storage": {"queues": {"batchSize": 1}}, "queues": {`),
			[]string{"extensions.storage.queues.batchsize", "move it to extensions.queues"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			loaded, err := functionapp.Load(test.files(t).write(t), nil)
			wantProblem(t, err, append(test.want, "host.json: ")...)
			if loaded == nil || len(loaded.Functions) != 1 {
				t.Errorf("the valid part is missing: %+v", loaded)
			}
		})
	}
}

func TestFunctionProblems(t *testing.T) {
	other := `{"type":"httpTrigger","direction":"in","name":"req"}`
	tests := map[string]struct {
		files files
		want  []string
	}{
		"not_json": {app(files{"Work/function.json": `{"bindings":[}`}), []string{"Work/function.json: not JSON"}},
		"empty":    {app(files{"Work/function.json": ` `}), []string{"Work/function.json: not JSON"}},
		"second_text": {
			app(files{"Work/function.json": function(validTrigger) + "x"}),
			[]string{"Work/function.json: not JSON"},
		},
		"no_bindings": {
			app(files{"Work/function.json": `{}`}),
			[]string{"Work/function.json: ", "0 triggers", "exactly one"},
		},
		"outputs_only": {
			app(files{"Work/function.json": function(`{"type":"queue","direction":"out","name":"out"}`)}),
			[]string{"Work/function.json: ", "0 triggers"},
		},
		"two_triggers": {
			app(files{"Work/function.json": function(validTrigger, other)}),
			[]string{"Work/function.json: ", "2 triggers", "exactly one"},
		},
		"binding_missing": {
			trigger(t, `"name":"message",`, ``),
			[]string{"Work/function.json: ", `binding name ""`, `"message"`},
		},
		"binding_dash": {
			trigger(t, `"message"`, `"my-message"`),
			[]string{"Work/function.json: ", `binding name "my-message"`},
		},
		"binding_underscore": {
			trigger(t, `"message"`, `"my_message"`),
			[]string{"Work/function.json: ", `binding name "my_message"`},
		},
		"binding_digit_first": {
			trigger(t, `"message"`, `"1message"`),
			[]string{"Work/function.json: ", `binding name "1message"`},
		},
		"binding_too_long": {
			trigger(t, `"message"`, `"`+strings.Repeat("m", 129)+`"`),
			[]string{"Work/function.json: ", "binding name"},
		},
		"connection_other": {
			trigger(t, `"AzureWebJobsStorage"`, `"Other"`),
			[]string{"Work/function.json: ", `connection is "Other"`, "AzureWebJobsStorage"},
		},
		"queue_missing": {
			trigger(t, `"queueName":"work",`, ``),
			[]string{"Work/function.json: ", `queueName ""`},
		},
		"queue_too_short": {
			trigger(t, `"work"`, `"wo"`),
			[]string{"Work/function.json: ", `queueName "wo"`, "3 to 63"},
		},
		"queue_too_long": {
			trigger(t, `"work"`, `"`+strings.Repeat("q", 64)+`"`),
			[]string{"Work/function.json: ", "queueName", "3 to 63"},
		},
		"queue_underscore": {
			trigger(t, `"work"`, `"my_work"`),
			[]string{"Work/function.json: ", `queueName "my_work"`},
		},
		"queue_double_dash": {
			trigger(t, `"work"`, `"my--work"`),
			[]string{"Work/function.json: ", `queueName "my--work"`},
		},
		"queue_dash_at_end": {
			trigger(t, `"work"`, `"work-"`),
			[]string{"Work/function.json: ", `queueName "work-"`},
		},
		"queue_setting_unset": {
			trigger(t, `"work"`, `"%QUEUE%"`),
			[]string{"Work/function.json: ", `queueName "%QUEUE%"`, "QUEUE is not set"},
		},
		"queue_setting_open": {
			trigger(t, `"work"`, `"work-%QUEUE"`),
			[]string{"Work/function.json: ", `queueName "work-%QUEUE"`, "no closing %"},
		},
		"queue_setting_secret": {
			trigger(t, `"work"`, `"%AzureWebJobsStorage%"`),
			[]string{"Work/function.json: ", `queueName "%AzureWebJobsStorage%"`},
		},
		"queue_setting_nested": {trigger(t, `"work"`, `"%NESTED%"`), []string{"Work/function.json: ", "queueName"}},
		"type_missing": {
			trigger(t, `,"dataType":"binary"`, ``),
			[]string{"Work/function.json: ", "dataType is missing", `"binary"`},
		},
		"type_stream": {
			trigger(t, `"binary"`, `"stream"`),
			[]string{"Work/function.json: ", `dataType is "stream"`, `"binary"`},
		},
		"folder_digit_first": {
			app(files{"Work/function.json": "", "1Work/function.json": function(validTrigger)}),
			[]string{"1Work/function.json: ", `folder's name "1Work"`},
		},
		"folder_dot": {
			app(files{"Work/function.json": "", "My.Work/function.json": function(validTrigger)}),
			[]string{"My.Work/function.json: ", "folder's name"},
		},
		"folder_host": {
			app(files{"Work/function.json": "", "Host/function.json": function(validTrigger)}),
			[]string{"Host/function.json: ", "not host"},
		},
		"folder_too_long": {
			app(files{"Work/function.json": "", strings.Repeat("w", 129) + "/function.json": function(validTrigger)}),
			[]string{"folder's name", "128"},
		},
		"none_at_all": {
			app(files{"Work/function.json": ""}),
			[]string{"queueTrigger", "exactly one level below host.json"},
		},
		"only_deeper": {
			app(files{"Work/function.json": "", "functions/Work/function.json": function(validTrigger)}),
			[]string{"exactly one level below host.json", "run `make build`, and give --app ", "dist"},
		},
		"only_beside_host": {
			app(files{"Work/function.json": "", "function.json": function(validTrigger)}),
			[]string{"exactly one level below host.json"},
		},
		"only_other_triggers": {app(files{"Work/function.json": function(other)}), []string{"queueTrigger"}},
		"same_queue": {
			app(files{"Again/function.json": function(validTrigger)}),
			[]string{"Again and Work", "queue work"},
		},
		"same_queue_any_case": {
			app(files{"Again/function.json": function(mustReplace(t, validTrigger, `"work"`, `"WORK"`))}),
			[]string{"Again and Work", "queue work"},
		},
		"same_queue_setting": {
			app(files{"Again/function.json": function(mustReplace(t, validTrigger, `"work"`, `"%SAME%"`))}),
			[]string{"Again and Work", "queue work"},
		},
	}
	environ := []string{
		setting("NESTED", "%SAME%"), setting("SAME", "work"),
		setting("AzureWebJobsStorage", "AccountKey="+canary),
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := functionapp.Load(test.files.write(t), environ)
			wantProblem(t, err, test.want...)
		})
	}
}

func TestEveryProblemAtOnce(t *testing.T) {
	loaded, err := functionapp.Load(files{
		"host.json": `{
			"version": "1.0", "functionTimeout": "5m", "queues": {"batchSize": 16},
			"customHandler": {"description": {"defaultExecutablePath": "./async-caller"}},
			"extensions": {"queues": {"batchSize": 64, "messageEncoding": "utf8", "maxDequeueCount": 0}}
		}`,
		"Broken/function.json": `{`,
		"Bad/function.json": function(`{"type":"queueTrigger","direction":"in","name":"a_b","queueName":"x",` +
			`"connection":"Other","dataType":"stream"}`),
		"Good/function.json": function(validTrigger),
		"Twin/function.json": function(validTrigger),
	}.write(t), nil)
	wantProblem(t, err,
		"host.json: version", "host.json: functionTimeout", "host.json: queues.batchsize", "host.json: extensionBundle",
		"host.json: customHandler.description.defaultExecutablePath", "host.json: extensions.queues.batchSize",
		"host.json: extensions.queues.messageEncoding", "host.json: extensions.queues.maxDequeueCount",
		"Broken/function.json: not JSON",
		"Bad/function.json: binding name", "Bad/function.json: queueName", "Bad/function.json: connection",
		"Bad/function.json: dataType",
		"Good and Twin",
	)
	for line := range strings.Lines(err.Error()) {
		if strings.TrimSpace(line) == "" {
			t.Errorf("an empty line in:\n%v", err)
		}
	}
	if loaded == nil {
		t.Fatal("the valid part is missing")
	}
	joined, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err)
	if !ok || len(joined.Unwrap()) != 14 {
		t.Errorf("want 14 problems, one line each:\n%v", err)
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

// TestDefaultThreshold checks the host's default: half a batch, rounded down, for each processor; on the classic
// Consumption plan for one.
func TestDefaultThreshold(t *testing.T) {
	const consumption, threshold = "WEBSITE_SKU=Dynamic", `, "newBatchThreshold": 2`
	processors := runtime.GOMAXPROCS(0)
	for name, test := range map[string]struct {
		file    func(*testing.T) files
		environ []string
		want    int
	}{
		"missing": {func(t *testing.T) files { return withHost(t, threshold, ``) }, nil, 2 * processors},
		"null": {
			func(t *testing.T) files { return withHost(t, threshold, `, "newBatchThreshold": null`) },
			nil, 2 * processors,
		},
		"odd": {
			func(t *testing.T) files { return withHost(t, `4`+threshold, `17`) }, nil,
			8 * processors,
		},
		"one_at_a_time": {func(t *testing.T) files { return withHost(t, `4`+threshold, `1`) }, nil, 0},
		"overridden_batch": {
			func(t *testing.T) files { return withHost(t, threshold, ``) },
			[]string{"AzureFunctionsJobHost__extensions__queues__batchSize=32"},
			16 * processors,
		},
		"consumption": {func(t *testing.T) files { return withHost(t, threshold, ``) }, []string{consumption}, 2},
		"other_plan": {
			func(t *testing.T) files { return withHost(t, threshold, ``) },
			[]string{"WEBSITE_SKU=FlexConsumption"},
			2 * processors,
		},
		"consumption_given": {
			func(t *testing.T) files { return withHost(t, `Threshold": 2`, `Threshold": 3`) },
			[]string{consumption},
			3,
		},
		"zero_given": {
			func(t *testing.T) files { return withHost(t, `Threshold": 2`, `Threshold": 0`) },
			nil, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.file(t).mustLoad(t, test.environ...).Host.Queues.NewBatchThreshold; got != test.want {
				t.Errorf("newBatchThreshold is %d, want %d", got, test.want)
			}
		})
	}
}

// TestInstalledExtensions: an app without a bundle may bring its own extensions in bin, which extensions.json lists.
func TestInstalledExtensions(t *testing.T) {
	const installed, bundle = "bin/extensions.json",
		`"extensionBundle": {"id": "Microsoft.Azure.Functions.ExtensionBundle", "version": "[4.*, 5.0.0)"},`
	withoutBundle := func(file, instead string) files {
		folder := withHost(t, bundle, instead)
		folder[file] = `{"extensions":[]}`
		return folder
	}
	for name, test := range map[string]struct {
		files files
		valid bool
	}{
		"installed":   {withoutBundle(installed, ""), true},
		"bundle_null": {withoutBundle(installed, `"extensionBundle": null,`), true},
		"bundle_too":  {withoutBundle(installed, bundle), true},
		"bundle_without_version": {withoutBundle(installed,
			`"extensionBundle": {"id": "Microsoft.Azure.Functions.ExtensionBundle"},`), false},
		"in_another_folder": {withoutBundle("extensions.json", ""), false},
		"of_another_name":   {withoutBundle("bin/extensions.deps.json", ""), false},
		"a_folder":          {withoutBundle(installed+"/x", ""), false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := test.files.write(t)
			_, err := functionapp.Load(dir, nil)
			_, hostErr := functionapp.LoadHost(dir, nil)
			for _, err := range []error{err, hostErr} {
				if !test.valid {
					wantProblem(t, err, "host.json: extensionBundle", installed)
				} else if err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestTimeSpans(t *testing.T) {
	tests := map[string]struct {
		text string
		want time.Duration
	}{
		"minutes":       {"00:05:00", 5 * time.Minute},
		"without_zeros": {"0:5:0", 5 * time.Minute},
		"hours_minutes": {"01:30", 90 * time.Minute},
		"fraction":      {"00:00:01.5", 1500 * time.Millisecond},
		"ticks":         {"00:00:01.0000001", time.Second + 100*time.Nanosecond},
		"days":          {"1.00:00:00", 24 * time.Hour},
		"almost_a_day":  {"23:59:59", 24*time.Hour - time.Second},
		"never":         {"-1", -1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := withHost(t, `"00:05:00"`, `"`+test.text+`"`).mustLoad(t).Host.FunctionTimeout; got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// The host's configuration reader accepts comments, a byte order mark and any letter case.
func TestRelaxedJSON(t *testing.T) {
	withComments := "// host.json\n" + mustReplace(t, validHost, `"functionTimeout"`,
		"/* five\nminutes */ \"functionTimeout\"")
	tests := map[string]files{
		"comments":          app(files{"host.json": withComments}),
		"byte_order_mark":   app(files{"host.json": "\ufeff" + validHost}),
		"both":              app(files{"host.json": "\ufeff" + withComments + "\n// the end\n"}),
		"windows_line_ends": app(files{"host.json": strings.ReplaceAll(validHost, "\n", "\r\n")}),
		"any_case": app(
			files{"host.json": strings.NewReplacer("queues", "Queues", "messageEncoding", "MESSAGEENCODING", "version",
				"Version").Replace(validHost)},
		),
		"numbers_as_texts": app(files{"host.json": mustReplace(t, validHost, `"batchSize": 4`,
			`"batchSize": "4"`)}),
		"slashes_in_texts": app(files{"host.json": mustReplace(t, validHost, `"version": "2.0"`,
			`"version": "2.0", "note": "https://example.com/*x*/"`)}),
		"function_comments":   app(files{"Work/function.json": "// trigger\n" + function(validTrigger)}),
		"function_mark":       app(files{"Work/function.json": "\ufeff" + function(validTrigger)}),
		"function_any_case":   trigger(t, `"type":"queueTrigger"`, `"Type":"QUEUETRIGGER"`),
		"data_type_any_case":  trigger(t, `"binary"`, `"Binary"`),
		"connection_left_out": trigger(t, `"connection":"AzureWebJobsStorage",`, ``),
		"connection_empty":    trigger(t, `"AzureWebJobsStorage"`, `""`),
		"connection_blank":    trigger(t, `"AzureWebJobsStorage"`, `" "`),
		"connection_null":     trigger(t, `"AzureWebJobsStorage"`, `null`),
		"connection_storage":  trigger(t, `"AzureWebJobsStorage"`, `"Storage"`),
		"connection_any_case": trigger(t, `"AzureWebJobsStorage"`, `"azurewebjobsSTORAGE"`),
		"storage_any_case":    trigger(t, `"AzureWebJobsStorage"`, `"storage"`),
		"output_beside_trigger": app(files{"Work/function.json": function(validTrigger,
			`{"type":"queue","direction":"out","name":"out","queueName":"x"}`)}),
	}
	want := app(nil).mustLoad(t)
	for name, folder := range tests {
		t.Run(name, func(t *testing.T) {
			got := folder.mustLoad(t)
			got.Dir = want.Dir
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("app (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUTF16 checks that a file of the app in UTF-16 is named with what to do.
func TestUTF16(t *testing.T) {
	wide := func(text string) string { return "\xff\xfe" + strings.Join(strings.Split(text, ""), "\x00") + "\x00" }
	const want = ": the text is UTF-16: save it as UTF-8"
	for name, folder := range map[string]files{
		"host.json":          app(files{"host.json": wide(validHost)}),
		"Work/function.json": app(files{"Work/function.json": wide(function(validTrigger))}),
	} {
		_, err := functionapp.Load(folder.write(t), nil)
		if err == nil || !strings.Contains(err.Error(), name+want) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	_, err := functionapp.WithLocalSettings(files{"local.settings.json": wide(`{"Values":{"A":"1"}}`)}.write(t), nil)
	if err == nil || !strings.Contains(err.Error(), "local.settings.json"+want) {
		t.Errorf("local.settings.json: error %v", err)
	}
}

// TestConnection checks the setting of a connection: AzureWebJobs<name> if it is set, else <name>.
func TestConnection(t *testing.T) {
	const other = "the handler reschedules messages through AzureWebJobsStorage only"
	for name, test := range map[string]struct {
		connection string
		environ    []string
		isRefused  bool
	}{
		"other":                    {"Orders", nil, true},
		"other_set":                {"Orders", []string{"AzureWebJobsOrders=x"}, true},
		"storage_of_other_app":     {"MyStorage", nil, true},
		"storage_and_space":        {"Storage ", nil, true},
		"unprefixed_storage_set":   {"Storage", []string{"Storage=x"}, false},
		"setting":                  {"%CONNECTION%", []string{"connection=Storage"}, false},
		"other_setting":            {"%CONNECTION%", []string{"CONNECTION=Orders"}, true},
		"twice_prefixed":           {"AzureWebJobsStorage", []string{"AzureWebJobsAzureWebJobsStorage=x"}, true},
		"twice_prefixed_any_case":  {"AzureWebJobsStorage", []string{"AZUREWEBJOBSAZUREWEBJOBSSTORAGE=x"}, true},
		"twice_prefixed_identity":  {"AzureWebJobsStorage", []string{"AzureWebJobsAzureWebJobsStorage__accountName=x"}, true},
		"twice_prefixed_empty":     {"AzureWebJobsStorage", []string{"AzureWebJobsAzureWebJobsStorage="}, false},
		"twice_prefixed_elsewhere": {"Storage", []string{"AzureWebJobsAzureWebJobsStorage=x"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			folder := trigger(t, `"connection":"AzureWebJobsStorage"`, `"connection":"`+test.connection+`"`)
			_, err := functionapp.Load(folder.write(t), test.environ)
			isRefused := err != nil && strings.Contains(err.Error(), other)
			if isRefused != test.isRefused || err != nil && !isRefused {
				t.Errorf("error %v, want refused: %v", err, test.isRefused)
			}
		})
	}
}

func TestIgnored(t *testing.T) {
	tests := map[string]files{
		"http_trigger":      {"Other/function.json": function(`{"type":"httpTrigger","direction":"in","name":"req"}`)},
		"blob_trigger":      {"Other/function.json": function(`{"type":"blobTrigger","direction":"in","name":"a_b"}`)},
		"two_levels_down":   {"more/Other/function.json": function(validTrigger)},
		"beside_host_json":  {"function.json": function(validTrigger)},
		"other_files":       {"Other/readme.md": "x", "async-caller": "x", "Other/function.json.bak": "x"},
		"inside_a_function": {"Work/inner/function.json": function(validTrigger)},
	}
	for name, changes := range tests {
		t.Run(name, func(t *testing.T) {
			loaded := app(changes).mustLoad(t)
			if len(loaded.Functions) != 1 || loaded.Functions[0].Name != "Work" {
				t.Errorf("got %+v, want Work only", loaded.Functions)
			}
		})
	}
}

func TestTextFunctionsAreServed(t *testing.T) {
	loaded := trigger(t, `"binary"`, `"string"`).mustLoad(t)
	if got := loaded.Functions[0].DataType; got != functionapp.DataString {
		t.Errorf("got %q", got)
	}
}

func TestFunctionsAreOrderedByName(t *testing.T) {
	folder := app(files{"Work/function.json": ""})
	for i, name := range []string{"Zebra", "Alpha", "Mid"} {
		folder[name+"/function.json"] = function(mustReplace(t, validTrigger, `"work"`, fmt.Sprintf(`"work-%d"`, i)))
	}
	var names []string
	for _, f := range folder.mustLoad(t).Functions {
		names = append(names, f.Name)
	}
	if diff := cmp.Diff([]string{"Alpha", "Mid", "Zebra"}, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// A folder may have a name that looks like a pattern.
func TestFolderNamedLikeAPattern(t *testing.T) {
	folder := files{}
	for path, content := range app(nil) {
		folder["my [app] 100% {x}/"+path] = content
	}
	loaded, err := functionapp.Load(filepath.Join(folder.write(t), "my [app] 100% {x}"), nil)
	if err != nil || len(loaded.Functions) != 1 {
		t.Errorf("got %+v, %v", loaded, err)
	}
}

func TestQueueNamesFromSettings(t *testing.T) {
	tests := map[string]struct{ name, want string }{
		"whole":            {"%QUEUE%", "my-queue"},
		"any_case":         {"%queue%", "my-queue"},
		"part":             {"a-%QUEUE%-z", "a-my-queue-z"},
		"two":              {"%QUEUE%-%STAGE%", "my-queue-test"},
		"lower_cased":      {"%SHOUTED%", "loud"},
		"literal_in_caps":  {"WORK", "work"},
		"equals_in_value":  {"%STAGE%1", "test1"},
		"double_underline": {"%Section__Queue%", "sectioned"},
	}
	environ := []string{"QUEUE=my-queue", "STAGE=test", "SHOUTED=LOUD", "Section__Queue=sectioned", "QUEUE2=no"}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := trigger(t, `"work"`, `"`+test.name+`"`).mustLoad(t, environ...).
				Functions[0].Queue; got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestHostJSONOverrides(t *testing.T) {
	base := app(nil).mustLoad(t)
	tests := map[string]struct {
		environ []string
		want    func(*functionapp.Host)
	}{
		"top_level": {
			[]string{"AzureFunctionsJobHost__functionTimeout=00:07:00"},
			func(h *functionapp.Host) { h.FunctionTimeout = 7 * time.Minute },
		},
		"nested": {
			[]string{"AzureFunctionsJobHost__extensions__queues__batchSize=32"},
			func(h *functionapp.Host) { h.Queues.BatchSize = 32 },
		},
		"any_case": {
			[]string{"AZUREFUNCTIONSJOBHOST__EXTENSIONS__QUEUES__MESSAGEENCODING=BASE64"},
			func(h *functionapp.Host) { h.Queues.MessageEncoding = storage.Base64 },
		},
		"several": {
			[]string{
				"azurefunctionsjobhost__extensions__Queues__maxDequeueCount=9",
				"AzureFunctionsJobHost__extensions__queues__visibilityTimeout=00:01:00",
			},
			func(h *functionapp.Host) { h.Queues.MaxDequeueCount, h.Queues.VisibilityTimeout = 9, time.Minute },
		},
		"colons": {
			[]string{
				"AzureFunctionsJobHost:functionTimeout=00:07:00",
				"azurefunctionsjobhost:Extensions__queues:batchSize=32",
			},
			func(h *functionapp.Host) { h.FunctionTimeout, h.Queues.BatchSize = 7*time.Minute, 32 },
		},
		"arguments_as_json": {
			[]string{`AzureFunctionsJobHost__customHandler__description__arguments=["serve","--x=a b"]`},
			func(h *functionapp.Host) { h.Handler.Arguments = []string{"serve", "--x=a b"} },
		},
		"executable": {
			[]string{"AzureFunctionsJobHost__customHandler__description__defaultExecutablePath=bin/other"},
			func(h *functionapp.Host) { h.Handler.Executable = "bin/other" },
		},
		"others_ignored": {
			[]string{
				"extensions__queues__batchSize=1",
				"AzureFunctionsJobHost__=x",
				"AzureFunctionsJobHost:=x",
				"AzureFunctionsJobHost=x",
				"XAzureFunctionsJobHost__functionTimeout=00:01:00",
				"AzureFunctionsJobHost_functionTimeout=00:01:00",
			},
			func(*functionapp.Host) {},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			want := base.Host
			test.want(&want)
			if diff := cmp.Diff(want, app(nil).mustLoad(t, test.environ...).Host); diff != "" {
				t.Errorf("host.json (-want +got):\n%s", diff)
			}
		})
	}
}

func TestArgumentsAsVariables(t *testing.T) {
	loaded := withHost(t, `, "arguments": ["serve"]`, ``).mustLoad(t,
		"AzureFunctionsJobHost__customHandler__description__arguments__1=--verbose",
		"AzureFunctionsJobHost__customHandler__description__arguments__0=serve",
	)
	if diff := cmp.Diff([]string{"serve", "--verbose"}, loaded.Host.Handler.Arguments); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
}

func TestOverridesAreChecked(t *testing.T) {
	tests := map[string]struct {
		variable string
		want     []string
	}{
		"out_of_range": {
			"AzureFunctionsJobHost__extensions__queues__batchSize=0",
			[]string{"extensions.queues.batchSize", `"0"`},
		},
		"wrong_nesting": {
			"AzureFunctionsJobHost__queues__batchSize=8",
			[]string{"queues.batchsize", "move it to extensions.queues"},
		},
		"broken_arguments": {
			"AzureFunctionsJobHost__customHandler__description__arguments=[serve]",
			[]string{"customHandler.description.arguments", "list"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := functionapp.Load(app(nil).write(t), []string{test.variable})
			wantProblem(t, err, test.want...)
		})
	}
}

func TestRootPath(t *testing.T) {
	for value, want := range map[string]string{"": ".", "/home/site/wwwroot": "/home/site/wwwroot"} {
		got := functionapp.RootPath(func(name string) string {
			if name != "FUNCTIONS_APP_ROOT_PATH" {
				t.Errorf("asked for %s", name)
			}
			return value
		})
		if got != want {
			t.Errorf("%q: got %q, want %q", value, got, want)
		}
	}
}

func TestLoadHost(t *testing.T) {
	const override = "AzureFunctionsJobHost__extensions__queues__batchSize=32"
	want := app(nil).mustLoad(t, override).Host
	got, err := functionapp.LoadHost(files{"host.json": validHost}.write(t), []string{override})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("host.json without functions (-want +got):\n%s", diff)
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

// TestLoadOnlyDisabled: an app whose queue functions are all disabled is valid, so that its timer functions can say
// that none runs.
func TestLoadOnlyDisabled(t *testing.T) {
	content := `{"disabled":true,"bindings":[` + validTrigger + `]}`
	loaded, err := functionapp.Load(app(files{"Work/function.json": content}).write(t), nil)
	if err != nil || len(loaded.Functions) > 0 || loaded.WhyIdle(nil) != "no queue function runs; disabled: Work" {
		t.Errorf("%+v, %v", loaded, err)
	}
}
