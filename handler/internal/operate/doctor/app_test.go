package doctor

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// folder is an app folder.
type folder struct {
	t       *testing.T
	dir     string
	environ []string
}

// newFolder returns the app folder of this project, with this test as its executable.
func newFolder(t *testing.T) *folder {
	t.Helper()
	const root = "../../../.."
	f := &folder{t: t, dir: t.TempDir()}
	for _, pattern := range []string{"host.json", "functions/*/function.json"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, path := range paths {
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			name := strings.TrimPrefix(filepath.ToSlash(path), root+"/")
			f.write(strings.TrimPrefix(name, "functions/"), string(content))
		}
	}
	program, err := os.Executable()
	if err == nil {
		err = os.Symlink(program, f.path("async-caller"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *folder) path(name string) string { return filepath.Join(f.dir, name) }

func (f *folder) write(name, content string) {
	f.t.Helper()
	err := os.MkdirAll(filepath.Dir(f.path(name)), 0o755)
	if err == nil {
		err = os.WriteFile(f.path(name), []byte(content), 0o644)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// toShop is a routes.json.
const toShop = `{"orders-in": {"url": "https://shop.example/orders"}}`

// routed writes routes.json with a route of the queue orders-in, and its function.
func (f *folder) routed(routes string) {
	f.t.Helper()
	f.write("routes.json", routes)
	if _, _, err := functionapp.SyncRoutes(f.dir, []string{"orders-in"}, nil); err != nil {
		f.t.Fatal(err)
	}
}

// posted writes routes.json with a route that takes posts, and its function.
func (f *folder) posted(authLevel string) {
	f.t.Helper()
	f.write("routes.json", `{"orders-in": {"url": "https://shop.example/orders", "http": true, "queue": false}}`)
	if _, _, err := functionapp.SyncRoutes(f.dir, nil, []string{"orders-in"}); err != nil {
		f.t.Fatal(err)
	}
	f.edit("AC-in-orders-in/function.json", `"function"`, strconv.Quote(authLevel))
}

// edit replaces a text in a file.
func (f *folder) edit(name, old, replacement string) {
	f.t.Helper()
	content, err := os.ReadFile(f.path(name))
	if err != nil || !bytes.Contains(content, []byte(old)) {
		f.t.Fatalf("%s has no %q: %v", name, old, err)
	}
	f.write(name, strings.ReplaceAll(string(content), old, replacement))
}

func (f *folder) move(from, to string) {
	f.t.Helper()
	err := os.MkdirAll(filepath.Dir(f.path(to)), 0o755)
	if err == nil {
		err = os.Rename(f.path(from), f.path(to))
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *folder) remove(name string) {
	f.t.Helper()
	if err := os.RemoveAll(f.path(name)); err != nil {
		f.t.Fatal(err)
	}
}

// examine returns the lines that are not ok. There is no storage account.
func (f *folder) examine() (lines []Line) {
	Run(f.t.Context(), f.dir, f.environ, func(line Line) {
		if line.State != OK && line.Check != "connection" && line.Check != "not checked" {
			lines = append(lines, line)
		}
	})
	return lines
}

const httpFunction = `{"bindings":[{"type":"httpTrigger","direction":"in","name":"req"},` +
	`{"type":"http","direction":"out","name":"res"}]}`

// TestAppFaults injects faults into the app folder that we ship. The first line names it.
func TestAppFaults(t *testing.T) {
	t.Parallel()
	const bundle = "extension bundle"
	host := func(old, replacement string) func(*folder) {
		return func(f *folder) { f.edit("host.json", old, replacement) }
	}
	arguments := func(list string) func(*folder) { return host(`["serve"]`, list) }
	schedule := func(text string) func(*folder) {
		return func(f *folder) { f.edit("AC-monitor/function.json", "0 * * * * *", text) }
	}
	for name, test := range map[string]struct {
		inject            func(f *folder)
		state             State
		check, text, next string
	}{
		"http_function_forwarded": {
			func(f *folder) {
				f.write("Hook/function.json", httpFunction)
				f.environ = []string{"AzureFunctionsJobHost__customHandler__enableForwardingHttpRequest=true"}
			},
			Broken, "settings", "remove customHandler.enableForwardingHttpRequest, or each httpTrigger (Hook/",
			"until then it makes no calls",
		},
		"http_function": {
			func(f *folder) { f.write("Hook/function.json", httpFunction) },
			Warning, "function", "so their invocations fail: Hook (httpTrigger)",
			"delete their folders",
		},
		"open_posts": {
			func(f *folder) { f.posted("anonymous") },
			Broken, "posts", `refuses every post with 401: AC-in-orders-in (authLevel "anonymous")`, `"function"`,
		},
		"unbounded_posts": {
			func(f *folder) {
				f.posted("function")
				host(`"maxConcurrentRequests": 100`, `"maxConcurrentRequests": 101`)(f)
			},
			Warning, "memory of posts", "FUNCTIONS_REQUEST_BODY_SIZE_LIMIT (want at most 1048576), extensions.http.max",
			"the template sets the setting",
		},
		"other_timer": {
			func(f *folder) {
				f.write("Nightly/function.json",
					`{"bindings":[{"type":"timerTrigger","direction":"in","name":"t","schedule":"0 0 3 * * *"}]}`)
			},
			Warning, "function", "their invocations fail: Nightly (another timerTrigger)", "delete their folders",
		},
		"no_queue_function_listed": {
			host(`"version": "2.0"`, `"version": "2.0", "functions": ["AC-monitor", "AC-poison-keeper"]`),
			Broken, "functions", "does not list: AC-priority01, AC-priority02", `remove "functions" from host.json`,
		},
		"one_function_not_listed": {
			host(`"version": "2.0"`, `"version": "2.0", "functions": ["ac-monitor", "AC-standard", "AC-priority01",
				"AC-priority02", "AC-priority03", "AC-priority04", "AC-priority05", "AC-priority06", "AC-priority07",
				"AC-priority08", "AC-priority09", "AC-priority10"]`),
			Warning, "functions", "does not list: AC-poison-keeper", "or add the names",
		},
		"listed_by_setting": {
			func(f *folder) { f.environ = []string{"AzureFunctionsJobHost__functions__0=AC-monitor"} },
			Broken, "functions", "does not list: AC-priority01", "AzureFunctionsJobHost__functions__<number>",
		},
		"all_disabled": {
			func(f *folder) {
				f.environ = []string{"AzureWebJobs.AC-standard.Disabled=1"}
				for _, entry := range mustGlob(f.t, f.path("AC-priority*")) {
					f.environ = append(f.environ, "AzureWebJobs."+filepath.Base(entry)+".Disabled=true")
				}
			},
			Broken, "functions", "does not list: AC-standard, AC-priority01", "remove the settings",
		},
		"route_without_function": {
			func(f *folder) { f.write("routes.json", toShop) },
			Broken, "settings", `routes.json: "orders-in": there is no function AC-route-orders-in`, "restart",
		},
		"function_without_route": {
			func(f *folder) { f.routed(toShop); f.remove("routes.json") },
			Broken, "settings", "function AC-route-orders-in is for a route, but routes.json has none", "restart",
		},
		"route_refused": {
			func(f *folder) { f.routed(`{"orders-in": {"url": "http://169.254.169.254/"}}`) },
			Broken, "settings", `routes.json: "orders-in": url: `, "restart",
		},
		"route_disabled": {
			func(f *folder) {
				f.routed(toShop)
				f.environ = []string{"AzureWebJobs.ac-route-ORDERS-in.Disabled=true"}
			},
			Warning, "functions", "in host.json does not list: ac-route-ORDERS-in", "remove the settings",
		},
		"successors_unread": {
			func(f *folder) {
				f.routed(`{"orders-in": {"url": "https://shop.example/", "priority": 3}}`)
				f.remove("AC-priority03")
			},
			Warning, "routes", "async-caller-3 (route of orders-in)", "restore the folder",
		},
		"function_deleted": {
			func(f *folder) { f.remove("AC-standard/function.json") },
			Broken, "function", "AC-standard has no function.json", "deploy again",
		},
		"other_case": {
			func(f *folder) { f.move("AC-standard/function.json", "orders/Function.JSON"); f.remove("AC-standard") },
			Broken, "function", "orders/Function.JSON: the name must be function.json", "deploy again",
		},
		"unreadable": {
			func(f *folder) { f.remove("AC-standard/function.json"); f.write("AC-standard/function.json/x", "") },
			Broken, "app folder", "AC-standard/function.json", "deploy again",
		},
		"direction": {
			func(f *folder) { f.edit("AC-standard/function.json", `"in"`, `"Out"`) },
			Broken, "function", `AC-standard/function.json: the direction of the trigger is "Out"`, "deploy again",
		},
		"direction_misspelt": {
			func(f *folder) { f.edit("AC-monitor/function.json", `"in"`, `"inn"`) },
			Broken, "function", `must be "in"`, "deploy again",
		},
		"script_file": {
			func(f *folder) {
				f.edit("AC-standard/function.json", `"bindings"`, `"scriptFile": "run.js", "bindings"`)
			},
			Broken, "function", `there is no scriptFile "run.js"`, "deploy again",
		},
		"offline": {
			func(f *folder) { f.write("app_offline.htm", "") },
			Broken, "offline", "app_offline.htm is in the app folder", "remove it",
		},
		"bundle_id": {
			host("ExtensionBundle\"", "ExtensionBundel\""),
			Broken, bundle, `id "Microsoft.Azure.Functions.ExtensionBundel", so it does not know`,
			`id "Microsoft.Azure.Functions.ExtensionBundle"`,
		},
		"cron":           {schedule("61 * * * * *"), Broken, "schedule", `AC-monitor/function.json: schedule "61`, "deploy"},
		"cron_fields":    {schedule("* * * *"), Broken, "schedule", "NCRONTAB", "deploy again"},
		"cron_question":  {schedule("0 0 0 ? * *"), Broken, "schedule", "NCRONTAB", "deploy again"},
		"cron_every":     {schedule("@every 1m"), Broken, "schedule", "NCRONTAB", "deploy again"},
		"cron_time_zone": {schedule("TZ=UTC 0 * * * * *"), Broken, "schedule", "NCRONTAB", "deploy again"},
		"no_interval":    {schedule("00:00:00"), Broken, "schedule", "NCRONTAB", "deploy again"},
		"cron_by_setting": {
			func(f *folder) {
				f.edit("AC-monitor/function.json", "0 * * * * *", "%every%")
				f.environ = []string{"EVERY=C4nary"}
			},
			Broken, "schedule", `schedule "%every%": it is not`, "deploy again",
		},
		"cron_unknown_setting": {
			schedule("%EVERY%"), Broken, "app folder", "the setting EVERY is not set", "deploy again",
		},
		"arguments_missing": {arguments(`[]`), Broken, "executable", `ends at once with the arguments []`, "deploy"},
		"arguments_more":    {arguments(`["serve", "--port=80"]`), Broken, "executable", `["serve"]`, "deploy again"},
		"arguments_other":   {arguments(`["status"]`), Broken, "executable", `["status"]`, "deploy again"},
		"script": {
			func(f *folder) {
				f.remove("async-caller")
				f.write("async-caller", "#!/bin/sh\n")
				if err := os.Chmod(f.path("async-caller"), 0o755); err != nil {
					f.t.Fatal(err)
				}
			},
			Broken, "executable", "cannot be read as async-caller: ", "make package",
		},
		"host_json_missing": {
			func(f *folder) { f.remove("host.json"); f.environ = []string{"FUNCTIONS_APP_ROOT_PATH=" + f.dir + "/"} },
			Broken, "app folder", "FUNCTIONS_APP_ROOT_PATH names this folder", "deploy again, with host.json",
		},
		"host_json_elsewhere": {
			func(f *folder) { f.remove("host.json"); f.environ = []string{"FUNCTIONS_APP_ROOT_PATH=/home/site"} },
			Broken, "app folder", "FUNCTIONS_APP_ROOT_PATH names another folder: give --app /home/site", "--app dist",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFolder(t)
			test.inject(f)
			lines := f.examine()
			if len(lines) == 0 {
				t.Fatal("found nothing")
			}
			isOfRoute := strings.HasPrefix(name, "route_") || name == "function_without_route"
			if isOfRoute && len(lines) > 1 {
				t.Errorf("more than one line: %+v", lines)
			}
			l := lines[0]
			if l.State != test.state || l.Check != test.check || !strings.Contains(l.Text, test.text) ||
				!strings.Contains(l.Next, test.next) {
				t.Errorf("%+v, want %s %s: %s, next: %s", l, test.state, test.check, test.text, test.next)
			}
			if strings.Contains(l.Text, "C4nary") {
				t.Errorf("it shows the value of a setting: %+v", l)
			}
		})
	}
}

// TestHealthyApps checks that unusual apps that work have no findings.
func TestHealthyApps(t *testing.T) {
	t.Parallel()
	for name, inject := range map[string]func(*folder){
		"shipped": func(*folder) {},
		"preview": func(f *folder) { f.edit("host.json", `ExtensionBundle"`, `ExtensionBundle.Preview"`) },
		"own_bundles": func(f *folder) {
			f.edit("host.json", `ExtensionBundle"`, `Mine"`)
			f.environ = []string{"FUNCTIONS_EXTENSIONBUNDLE_SOURCE_URI=https://bundles.example"}
		},
		"interval":   func(f *folder) { f.edit("AC-monitor/function.json", "0 * * * * *", "00:01:00") },
		"long_names": func(f *folder) { f.edit("AC-monitor/function.json", "0 * * * * *", "0 * * * January MON-Friday") },
		"no_direction": func(f *folder) {
			f.edit("AC-standard/function.json", `"direction": "in",`, ``)
		},
		"fewer_functions": func(f *folder) { f.remove("AC-priority10") },
		"routed":          func(f *folder) { f.routed(toShop) },
		"copy_of_the_app": func(f *folder) { f.write("old/AC-standard/function.json", "{}") },
		"other_files": func(f *folder) {
			f.write("docs/readme.md", "")
			f.write("node_modules/x/function.json", "{}")
			f.write(".git/x/function.json", "{}")
		},
		"script_file": func(f *folder) {
			f.write("AC-standard/run.sh", "")
			f.edit("AC-standard/function.json", `"bindings"`, `"scriptFile": "run.sh", "bindings"`)
		},
		"split_serve": func(f *folder) { f.edit("host.json", `["serve"]`, `[" serve "]`) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFolder(t)
			inject(f)
			if lines := f.examine(); len(lines) > 0 {
				t.Errorf("found %+v", lines)
			}
		})
	}
}

// TestUnreadQueues checks that a queue of a function that was deleted with its folder is found in the account.
func TestUnreadQueues(t *testing.T) {
	t.Parallel()
	store := memory.New()
	for _, name := range envelope.Queues()[:3] {
		if err := store.Create(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := store.Put(t.Context(), envelope.Queues()[1], storage.Item{Text: "{}"}); err != nil {
		t.Fatal(err)
	}
	var lines []Line
	report := Reporter(func(l Line) { lines = append(lines, l) })
	read := &account.Account{Store: store}
	report.unread(t.Context(), read, envelope.Queues())
	report.unread(t.Context(), read, envelope.Queues()[2:])
	if len(lines) != 1 || lines[0].State != Warning || !strings.HasSuffix(lines[0].Text,
		"reads: async-caller (messages: 0), async-caller-1 (messages: 1)") || lines[0].Next == "" {
		t.Errorf("%+v, want a warning about the first two queues", lines)
	}
}

func mustGlob(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: %v", pattern, err)
	}
	slices.Sort(paths)
	return paths
}
