package functionapp_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/storage"
)

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
		Handler:     functionapp.CustomHandler{Executable: "async-caller", Arguments: []string{"serve"}},
		BundleID:    shippedBundle,
		MaxRequests: 100,
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
	wantTimers := []described{
		{"AC-monitor", "timer", "0 * * * * *", false}, // every minute
		{"AC-poison-keeper", "timer", "0 0 * * * *", false},
	}
	if diff := cmp.Diff(wantTimers, describe(got.Timers)); diff != "" {
		t.Errorf("timers (-want +got):\n%s", diff)
	}
	for path, content := range project {
		if strings.Contains(content, `"queueTrigger"`) &&
			!strings.Contains(content, `"connection": "AzureWebJobsStorage"`) {
			t.Errorf("%s names no connection: the host has the same default, but readers may not know it", path)
		}
	}
}

// TestFunctions: which functions an app has, in the order of their names.
func TestFunctions(t *testing.T) {
	const http = `{"type":"httpTrigger","direction":"in","name":"req"}`
	ordered := files{}
	for i, name := range []string{"Zebra", "Alpha"} {
		ordered[name+"/function.json"] = function(mustReplace(t, validTrigger, `"work"`, fmt.Sprintf(`"work-%d"`, i)))
	}
	for name, test := range map[string]struct {
		changes             files
		functions, disabled string
	}{
		"ordered": {ordered, "Alpha Work Zebra", ""},
		"disabled": {files{
			"Broken/function.json": `{"disabled":true,"bindings":[]}`,
			"Other/function.json":  `{"disabled":true,"bindings":[` + validTrigger + `]}`,
		}, "Work", "Broken Other"},
		"only_disabled":     {files{"Work/function.json": `{"disabled":true}`}, "", "Work"},
		"http_trigger":      {files{"Other/function.json": function(http)}, "Work", ""},
		"two_levels_down":   {files{"more/Other/function.json": function(validTrigger)}, "Work", ""},
		"beside_host_json":  {files{"function.json": function(validTrigger)}, "Work", ""},
		"other_files":       {files{"async-caller": "x", "Other/function.json.bak": "x"}, "Work", ""},
		"inside_a_function": {files{"Work/inner/function.json": function(validTrigger)}, "Work", ""},
	} {
		t.Run(name, func(t *testing.T) {
			loaded := app(test.changes).mustLoad(t)
			functions, disabled := strings.Join(loaded.Names(), " "), strings.Join(loaded.Disabled, " ")
			if functions != test.functions || disabled != test.disabled {
				t.Errorf("%q and disabled %q, want %q and %q", functions, disabled, test.functions, test.disabled)
			}
		})
	}
}

func TestFunctionProblems(t *testing.T) {
	const http = `{"type":"httpTrigger","direction":"in","name":"req"}`
	const deeper = "the host looks exactly one level below host.json"
	long := strings.Repeat("w", 129)
	work := func(content string) files { return app(files{"Work/function.json": content}) }
	instead := func(path string) files {
		return app(files{"Work/function.json": "", path: function(validTrigger)})
	}
	again := func(queue string) files {
		return app(files{"Again/function.json": function(mustReplace(t, validTrigger, `"work"`, queue))})
	}
	for name, test := range map[string]struct {
		files files
		want  string
	}{
		"not_json":     {work(`{"bindings":[}`), "Work/function.json: not JSON"},
		"empty":        {work(` `), "Work/function.json: not JSON"},
		"second_text":  {work(function(validTrigger) + "x"), "Work/function.json: not JSON"},
		"utf16":        {work(wide(function(validTrigger))), "Work/function.json: the text is UTF-16"},
		"no_bindings":  {work(`{}`), "Work/function.json: it has 0 triggers: the host wants exactly one"},
		"outputs_only": {work(function(`{"type":"queue","direction":"out","name":"out"}`)), "it has 0 triggers"},
		"two_triggers": {work(function(validTrigger, http)), "Work/function.json: it has 2 triggers"},
		"retry": {
			work(`{"retry":{"strategy":"fixedDelay"},"bindings":[` + validTrigger + `]}`),
			"Work/function.json: retry: remove it",
		},

		"binding_missing":     {trigger(t, `"name":"message",`, ``), `Work/function.json: binding name ""`},
		"binding_dash":        {trigger(t, `"message"`, `"my-message"`), `binding name "my-message"`},
		"binding_digit_first": {trigger(t, `"message"`, `"1message"`), `binding name "1message"`},
		"binding_too_long":    {trigger(t, `"message"`, `"`+long+`"`), "binding name"},

		"queue_missing":      {trigger(t, `"queueName":"work",`, ``), `Work/function.json: queueName ""`},
		"queue_too_short":    {trigger(t, `"work"`, `"wo"`), `queueName "wo": give 3 to 63 lower-case letters`},
		"queue_underscore":   {trigger(t, `"work"`, `"my_work"`), `queueName "my_work": give`},
		"queue_of_poison":    {trigger(t, `"work"`, `"a-poison"`), `queueName "a-poison" has no poison queue`},
		"queue_57":           {trigger(t, `"work"`, `"`+long[:57]+`"`), `" has no poison queue`},
		"queue_unset":        {trigger(t, `"work"`, `"%QUEUE%"`), `queueName "%QUEUE%": the setting QUEUE is not set`},
		"queue_setting_open": {trigger(t, `"work"`, `"a-%QUEUE"`), `queueName "a-%QUEUE": a % has no closing %`},
		"queue_secret":       {trigger(t, `"work"`, `"%AzureWebJobsStorage%"`), `queueName "%AzureWebJobsStorage%"`},
		"queue_nested":       {trigger(t, `"work"`, `"%NESTED%"`), "queueName"},
		"same_queue":         {again(`"WORK"`), "functions Again and Work both read queue work"},
		"same_setting":       {again(`"%SAME%"`), "functions Again and Work both read queue work"},

		"type_missing": {trigger(t, `,"dataType":"binary"`, ``), `dataType is missing: set "binary"`},
		"type_stream":  {trigger(t, `"binary"`, `"stream"`), `Work/function.json: dataType is "stream": set "binary"`},

		"folder_digit_first": {instead("1Work/function.json"), `1Work/function.json: the folder's name "1Work" is not`},
		"folder_dot":         {instead("My.Work/function.json"), "My.Work/function.json: the folder's name"},
		"folder_host":        {instead("Host/function.json"), "Host/function.json: the folder's name"},
		"folder_too_long":    {instead(long + "/function.json"), "the folder's name"},

		"none_at_all":         {app(files{"Work/function.json": ""}), deeper},
		"only_deeper":         {instead("functions/Work/function.json"), "run `make build`, and give --app "},
		"only_beside_host":    {instead("function.json"), deeper},
		"only_other_triggers": {work(function(http)), "queueTrigger: " + deeper},

		"schedule_missing": {timer(t, `,"schedule":"0 0 * * * *"`, ``), `Clock/function.json: schedule "": it is`},
		"schedule_blank":   {timer(t, "0 0 * * * *", "  "), `Clock/function.json: schedule "  ": it is empty`},
		"schedule_unset":   {timer(t, "0 0 * * * *", "%EVERY%"), `schedule "%EVERY%": the setting EVERY is not set`},
		"startup_text":     {timer(t, `"name"`, `"runOnStartup":"yes","name"`), `runOnStartup is "yes": give true`},
		"startup_number":   {timer(t, `"name"`, `"runOnStartup":1,"name"`), `runOnStartup is "1"`},
		"timer_binding":    {timer(t, `"timer"`, `"my-timer"`), `Clock/function.json: binding name "my-timer"`},
		"timer_retry": {
			app(files{"Clock/function.json": `{"retry":{"strategy":"fixedDelay"},"bindings":[` + validTimer + `]}`}),
			"Clock/function.json: retry: remove it: the host repeats a failed run at its next time",
		},
		"queue_and_timer": {work(function(validTrigger, validTimer)), "Work/function.json: it has 2 triggers"},
		"timer_folder":    {app(files{"My.Clock/function.json": function(validTimer)}), "My.Clock/function.json: the"},
		"timers_only": {
			app(files{"Work/function.json": "", "Clock/function.json": function(validTimer)}), deeper,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := functionapp.Load(test.files.write(t), []string{
				"NESTED=%SAME%", "SAME=work", "AzureWebJobsStorage=AccountKey=" + canary,
			})
			wantProblem(t, err, test.want)
		})
	}
}

// TestEveryProblemAtOnce: each problem of each file is a line, and what is valid is loaded.
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
		"Clock/function.json": function(`{"type":"timerTrigger","name":"a_b","schedule":"","runOnStartup":[]}`),
		"Good/function.json":  function(validTrigger),
		"Twin/function.json":  function(validTrigger),
	}.write(t), nil)
	want := []string{
		"host.json: version", "host.json: queues.batchsize", "host.json: extensionBundle", "host.json: functionTimeout",
		"host.json: extensions.queues.batchSize", "host.json: extensions.queues.maxDequeueCount",
		"host.json: extensions.queues.messageEncoding", "host.json: customHandler.description.defaultExecutablePath",
		"Bad/function.json: binding name", "Bad/function.json: connection", "Bad/function.json: queueName",
		"Bad/function.json: dataType", "Broken/function.json: not JSON",
		"Clock/function.json: binding name", "Clock/function.json: schedule", "Clock/function.json: runOnStartup",
		"functions Good and Twin",
	}
	lines := strings.Split(fmt.Sprint(err), "\n")
	for i, line := range lines {
		if len(lines) != len(want) || !strings.HasPrefix(line, want[i]) {
			t.Fatalf("want lines that begin with\n%s, got\n%v", strings.Join(want, "\n"), err)
		}
	}
	if loaded == nil || len(loaded.Functions) != 2 || len(loaded.Timers) != 0 {
		t.Errorf("the valid part is missing: %+v", loaded)
	}
}

// TestRelaxedJSON: the host's configuration reader accepts comments, a byte order mark and any letter case.
func TestRelaxedJSON(t *testing.T) {
	withComments := "// host.json\n" +
		mustReplace(t, validHost, `"functionTimeout"`, "/* five\nminutes */ \"functionTimeout\"")
	anyCase := strings.NewReplacer("queues", "Queues", "messageEncoding", "MESSAGEENCODING", "version", "Version")
	const slashes = `"version": "2.0", "note": "https://example.com/*x*/"`
	const output = `{"type":"queue","direction":"out","name":"out","queueName":"x"}`
	want := app(nil).mustLoad(t)
	for name, folder := range map[string]files{
		"mark_and_comments": app(files{"host.json": "\ufeff" + withComments + "\n// the end\n"}),
		"windows_line_ends": app(files{"host.json": strings.ReplaceAll(validHost, "\n", "\r\n")}),
		"any_case":          app(files{"host.json": anyCase.Replace(validHost)}),
		"numbers_as_texts":  withHost(t, `"batchSize": 4`, `"batchSize": "4"`),
		"slashes_in_texts":  withHost(t, `"version": "2.0"`, slashes),
		"function_comments": app(files{"Work/function.json": "\ufeff// trigger\n" + function(validTrigger)}),
		"function_any_case": trigger(t, `"type":"queueTrigger"`, `"Type":"QUEUETRIGGER"`),
		"data_type":         trigger(t, `"binary"`, `"Binary"`),
		"output_beside":     app(files{"Work/function.json": function(validTrigger, output)}),
	} {
		t.Run(name, func(t *testing.T) {
			got := folder.mustLoad(t)
			got.Dir = want.Dir
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("app (-want +got):\n%s", diff)
			}
		})
	}
	if got := trigger(t, `"binary"`, `"string"`).mustLoad(t).Functions[0].DataType; got != functionapp.DataString {
		t.Errorf("dataType %q", got)
	}
}

// TestConnection checks the setting of a connection: AzureWebJobs<name> if it is set, else <name>.
func TestConnection(t *testing.T) {
	const twice = "AzureWebJobsAzureWebJobsStorage"
	for name, test := range map[string]struct {
		connection string // in function.json
		variable   string
		isRefused  bool
	}{
		"left_out":                 {`null`, "", false},
		"empty":                    {`""`, "", false},
		"blank":                    {`" "`, "", false},
		"short":                    {`"storage"`, "", false},
		"any_case":                 {`"azurewebjobsSTORAGE"`, "", false},
		"other":                    {`"Orders"`, "", true},
		"other_set":                {`"Orders"`, "AzureWebJobsOrders=x", true},
		"storage_of_other_app":     {`"MyStorage"`, "", true},
		"storage_and_space":        {`"Storage "`, "", true},
		"unprefixed_storage_set":   {`"Storage"`, "Storage=x", false},
		"setting":                  {`"%CONNECTION%"`, "connection=Storage", false},
		"other_setting":            {`"%CONNECTION%"`, "CONNECTION=Orders", true},
		"twice_prefixed":           {`"AzureWebJobsStorage"`, strings.ToUpper(twice) + "=x", true},
		"twice_prefixed_identity":  {`"AzureWebJobsStorage"`, twice + "__accountName=x", true},
		"twice_prefixed_empty":     {`"AzureWebJobsStorage"`, twice + "=", false},
		"twice_prefixed_elsewhere": {`"Storage"`, twice + "=x", false},
	} {
		t.Run(name, func(t *testing.T) {
			folder := trigger(t, `"connection":"AzureWebJobsStorage"`, `"connection":`+test.connection)
			_, err := functionapp.Load(folder.write(t), []string{test.variable})
			isRefused := strings.Contains(fmt.Sprint(err), "the handler reschedules messages through AzureWebJobs")
			if isRefused != test.isRefused || err != nil && !isRefused {
				t.Errorf("error %v, want refused: %v", err, test.isRefused)
			}
		})
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
	environ := []string{"QUEUE=my-queue", "STAGE=test", "SHOUTED=LOUD", "Section__Queue=sectioned", "QUEUE2=no"}
	for name, want := range map[string]string{
		"%queue%":          "my-queue",
		"a-%QUEUE%-z":      "a-my-queue-z",
		"%QUEUE%-%STAGE%":  "my-queue-test",
		"%SHOUTED%":        "loud",
		"WORK":             "work",
		"%Section__Queue%": "sectioned",
		"%STAGE%1":         "test1",
	} {
		if got := trigger(t, `"work"`, `"`+name+`"`).mustLoad(t, environ...).Functions[0].Queue; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func TestRootPath(t *testing.T) {
	environ := map[string]string{"FUNCTIONS_APP_ROOT_PATH": "/home/site/wwwroot"}
	if got := functionapp.RootPath(func(name string) string { return environ[name] }); got != "/home/site/wwwroot" {
		t.Errorf("got %q", got)
	}
	if got := functionapp.RootPath(func(string) string { return "" }); got != "." {
		t.Errorf("got %q, want the working directory", got)
	}
}
