package cli_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/observers/sight/sighttest"
	"asynccaller/handler/internal/operate/doctor"
	"asynccaller/handler/internal/program/cli"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/internal/storage/emulator"
	"asynccaller/handler/tools/azurite"
	"asynccaller/handler/tools/azurite/azuritetest"
)

// patient is an app in a folder, and its account behind proxies.
type patient struct {
	t          *testing.T
	dir        string
	environ    map[string]string
	connection azure.Connection // without the proxies
	store      *azure.Queues
	// refuse, unless nil, returns the error code with which a service refuses a request, or "".
	refuse func(service string, r *http.Request) (status int, code string)
	// late is by how much storage's clock differs.
	late time.Duration

	mu       sync.Mutex
	requests []string
}

// newPatient returns a healthy app.
func newPatient(t *testing.T, connectionString string) *patient {
	t.Helper()
	p := &patient{t: t, dir: t.TempDir(), environ: map[string]string{"FUNCTIONS_WORKER_RUNTIME": "custom"}}
	for _, path := range []string{
		"host.json", "functions/AC-standard/function.json",
		"functions/AC-monitor/function.json", "functions/AC-poison-keeper/function.json",
	} {
		content, err := os.ReadFile(filepath.Join("../../../..", path))
		p.must(err)
		p.write(strings.TrimPrefix(path, "functions/"), string(content))
	}
	executable, err := os.Executable()
	p.must(err)
	p.must(os.Symlink(executable, filepath.Join(p.dir, "async-caller")))
	p.connection, err = azure.ParseConnection([]string{storage.ConnectionName + "=" + connectionString},
		storage.ConnectionName)
	p.must(err)
	p.store, err = azure.Open(p.connection)
	p.must(err)
	t.Cleanup(p.store.Close)
	p.must(p.store.Create(t.Context(), "async-caller"))
	p.environ[storage.ConnectionName] = regexp.MustCompile(`(Blob|Queue|Table)Endpoint=([^;]+)`).
		ReplaceAllStringFunc(connectionString, p.proxy)
	return p
}

// newAccount returns the connection string of an account in memory whose blobs are permitted.
func newAccount(t *testing.T) string {
	t.Helper()
	server, err := emulator.Start(t.Context(), emulator.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	blobs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("x-ms-error-code", "ContainerNotFound")
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(blobs.Close)
	return server.ConnectionString + "BlobEndpoint=" + blobs.URL + "/demo;"
}

func (p *patient) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// proxy replaces an endpoint in a connection string by that of a proxy.
func (p *patient) proxy(part string) string {
	name, endpoint, _ := strings.Cut(part, "=")
	service := strings.TrimSuffix(name, "Endpoint")
	target, err := url.Parse(endpoint)
	p.must(err)
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: target.Scheme, Host: target.Host})
	forward.ModifyResponse = func(r *http.Response) error {
		r.Header.Set("Date", time.Now().Add(-p.late).UTC().Format(http.TimeFormat))
		r.Header.Set("Server", "Azurite-"+service+"/3")
		return nil
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.requests = append(p.requests, service+" "+r.Method+" "+r.URL.Path)
		p.mu.Unlock()
		if p.refuse != nil {
			if status, code := p.refuse(service, r); code != "" {
				w.Header().Set("x-ms-error-code", code)
				w.Header().Set("Server", "Azurite-"+service+"/3")
				w.WriteHeader(status)
				_, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
				header := ""
				if code == "InvalidHeaderValue" {
					header = "<HeaderName>x-ms-version</HeaderName>"
				}
				_, _ = io.WriteString(w, "<Error><Code>"+code+"</Code><Message>Storage\u202e says "+code+" to "+secret+
					".</Message>"+header+"</Error>")
				return
			}
		}
		r.Host = target.Host // the emulator refuses others
		forward.ServeHTTP(w, r)
	}))
	p.t.Cleanup(server.Close)
	return name + "=" + server.URL + target.Path
}

func (p *patient) write(name, content string) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	p.must(os.MkdirAll(filepath.Dir(path), 0o755))
	p.must(os.WriteFile(path, []byte(content), 0o644))
}

func (p *patient) put(name, text string) {
	p.t.Helper()
	p.must(p.store.Create(p.t.Context(), name))
	_, err := p.store.Put(p.t.Context(), name, storage.Item{Text: text})
	p.must(err)
}

func (p *patient) table(name string) *azure.Table {
	p.t.Helper()
	table, err := azure.OpenTable(p.connection, name)
	p.must(err)
	p.t.Cleanup(table.Close)
	return table
}

// beat records that the timer functions run, by an adapter.
func (p *patient) beat(adapter string) {
	p.t.Helper()
	for _, timer := range []string{functionapp.MonitorTimer, functionapp.KeeperTimer} {
		app := heartbeat.App{Name: "local", Version: "test", Adapter: adapter}
		p.must(heartbeat.Beat(p.t.Context(), p.table(storage.ScheduledTable), app, timer))
	}
}

// examine runs doctor, and returns the lines, what was printed, and the exit code.
func (p *patient) examine() (lines []doctor.Line, printed string, code int) {
	p.t.Helper()
	var environ []string
	for name, value := range p.environ {
		environ = append(environ, name+"="+value)
	}
	run := func(flags ...string) (stdout, stderr string, code int) {
		var out, errors bytes.Buffer
		code = cli.Run(p.t.Context(), append([]string{"doctor", "--app", p.dir}, flags...),
			cli.Env{Environ: environ, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errors})
		return out.String(), errors.String(), code
	}
	text, stderr, code := run()
	inJSON, _, jsonCode := run("--json")
	if code != jsonCode {
		p.t.Errorf("exit code %d, but %d with --json:\n%s\n%s", code, jsonCode, text, inJSON)
	}
	for line := range strings.Lines(inJSON) {
		var decoded doctor.Line
		p.must(json.Unmarshal([]byte(line), &decoded))
		lines = append(lines, decoded)
	}
	printed = text + stderr + inJSON
	for line := range strings.Lines(printed) {
		line = strings.TrimSuffix(line, "\n")
		if strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
			p.t.Errorf("it has control characters: %q", line)
		}
		isWrapped := !strings.HasPrefix(line, "{") && !strings.HasPrefix(line, "async-caller:")
		if isWrapped && utf8.RuneCountInString(line) > 100 {
			p.t.Errorf("it is too wide: %s", line)
		}
		for _, secret := range []string{azurite.AccountKey, "C4nary", "SharedKey"} {
			if strings.Contains(line, secret) {
				p.t.Errorf("%q is in %s", secret, line)
			}
		}
	}
	return lines, printed, code
}

// fault injects a fault into a healthy app.
type fault func(p *patient)

func variable(name, value string) fault { return func(p *patient) { p.environ[name] = value } }

func file(name, content string) fault { return func(p *patient) { p.write(name, content) } }

func without(name string) fault {
	return func(p *patient) { p.must(os.RemoveAll(filepath.Join(p.dir, name))) }
}

// edited replaces a text in a file.
func edited(name, old, replacement string) fault {
	return func(p *patient) {
		content, err := os.ReadFile(filepath.Join(p.dir, name))
		if err != nil || !strings.Contains(string(content), old) {
			p.t.Fatalf("%s has no %q: %v", name, old, err)
		}
		p.write(name, strings.ReplaceAll(string(content), old, replacement))
	}
}

// program replaces the executable.
func program(content string, mode os.FileMode) fault {
	return func(p *patient) {
		path := filepath.Join(p.dir, "async-caller")
		p.must(os.Remove(path))
		p.must(os.WriteFile(path, []byte(content), mode))
	}
}

// connected replaces a part of the connection string.
func connected(part, replacement string) fault {
	pattern := regexp.MustCompile(part + `=[^;]*;?`)
	return func(p *patient) {
		p.environ[storage.ConnectionName] = pattern.ReplaceAllLiteralString(p.environ[storage.ConnectionName],
			replacement)
	}
}

// refused makes a service refuse the requests that have a credential, a method and a text in their path; empty means
// any.
func refused(service, method, part string, status int, code string) fault {
	return func(p *patient) {
		p.refuse = func(s string, r *http.Request) (int, string) {
			hasCredential := r.Header.Get("Authorization") != "" || r.URL.Query().Has("sig")
			isMeant := (s == service || service == "") && (r.Method == method || method == "")
			if hasCredential && isMeant && strings.Contains(r.URL.Path, part) {
				return status, code
			}
			return 0, ""
		}
	}
}

func denied(service, method, part string) fault {
	return refused(service, method, part, http.StatusForbidden, "AuthorizationPermissionMismatch")
}

func waiting(queue string, texts ...string) fault {
	return func(p *patient) {
		for _, text := range texts {
			p.put(queue, text)
		}
	}
}

// both injects two faults.
func both(first, second fault) fault {
	return func(p *patient) {
		first(p)
		second(p)
	}
}

// elsewhere runs doctor in another folder, with copies of these files of the app, and without a connection.
func elsewhere(files map[string]string) fault {
	return func(p *patient) {
		app := p.dir
		p.dir = p.t.TempDir()
		for from, to := range files {
			content, err := os.ReadFile(filepath.Join(app, from))
			p.must(err)
			p.write(to, string(content))
		}
		p.environ = map[string]string{"ASYNC_CALLER_RETRY": "of retry.json"}
	}
}

// TestDoctorFindsFaults injects one fault after another into an app. The first line that is not ok names it.
func TestDoctorFindsFaults(t *testing.T) {
	t.Parallel()
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // accepts and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	const (
		settings, connection = "local.settings.json", storage.ConnectionName
		standard, monitor    = "AC-standard/function.json", "AC-monitor/function.json"
		queueRole, tableRole = "assign the role Storage Queue Data Contr", "assign the role Storage Table Data Contr"
	)
	failing := func(p *patient) {
		sighttest.Fail(p.t, p.table(storage.SightTable), sight.Target{
			App: "app", Host: "crm.example", Cause: "503", Since: time.Now().Add(-90 * time.Minute), Latest: time.Now(),
		})
	}
	paused := func(p *patient) {
		p.must(setting.Write(p.t.Context(), p.table(storage.AppTable), setting.Setting{
			Host: "crm.example", Member: setting.Pause, Since: time.Now(), By: "anna@ops-7", Reason: "INC-4711",
		}))
	}
	clock := func(late time.Duration) fault { return func(p *patient) { p.late = late } }
	oldAPI := func(p *patient) {
		p.refuse = func(_ string, r *http.Request) (int, string) {
			if r.Header.Get("Authorization") == "" {
				return http.StatusBadRequest, "InvalidHeaderValue"
			}
			return 0, ""
		}
	}
	const sas = "SharedAccessSignature=sv=2022-11-02&ss=bqt&srt=sco&sp=rwdlacup&sig=C4nary%2BC4nary%3D&se="
	wrong := refused("Queue", "", "", http.StatusForbidden, "AuthenticationFailed")
	other := `{"bindings":[{"type":"queueTrigger","name":"message","queueName":"no-such-queue","dataType":"binary"}]}`
	tests := map[string]struct {
		inject           fault
		line, text, next string // line is the state and the check
	}{
		"setting":        {variable("ASYNC_CALLER_EXPIRATION", "soon"), "broken settings", "EXPIRATION", "restart"},
		"retry_file":     {file("retry.json", "{"), "broken settings", "retry.json: ", "restart the app"},
		"local_settings": {file(settings, `{"Values": C4nary}`), "broken settings", "not JSON", "restart the app"},
		"runtime":        {variable("FUNCTIONS_WORKER_RUNTIME", "node"), "broken runtime", `"node"`, "set it to cus"},
		"log_level":      {variable("ASYNC_CALLER_LOG_LEVEL", "warn"), "warning log", "is warn", "set it to info"},
		"no_monitor":     {without("AC-monitor"), "warning timers", "AC-monitor", "the alerts have no data"},
		"no_keeper":      {without("AC-poison-keeper"), "warning timers", "AC-poison-keeper", "deletes poison"},
		"no_app":         {elsewhere(nil), "broken app folder", "host.json", "--app dist"},
		"host_json":      {edited("host.json", `"00:05:00"`, `"5m"`), "broken app folder", "functionTimeout", "deploy"},
		"short_timeout":  {edited("host.json", `"00:05:00"`, `"00:01:00"`), "broken settings", "is 1m0s", "restart"},
		"no_executable":  {without("async-caller"), "broken executable", "async-caller: no such file", "make build"},
		"lost_bit":       {program("", 0o644), "broken executable", "is not executable", "make package"},
		"not_a_program":  {program("<html>", 0o755), "broken executable", "async-caller", "make package"},
		"no_arguments":   {edited("host.json", `["serve"]`, `[]`), "broken executable", `to ["serve"]`, "deploy again"},
		"target_fails":   {failing, "warning targets", "fail (1): crm.example for 1h", "async-caller status"},
		"target_paused":  {paused, "warning pauses", "by anna@ops-7 until it is resumed: INC-4711", "resume HOST"},
		"no_storage":     {connected(".+", ""), "broken connection", "AzureWebJobsStorage: missing", "correct"},
		"cut_off_key":    {connected("AccountKey", "AccountKey=C4nary!;"), "broken connection", "cut off?", "correct"},
		"clock":          {clock(-20*time.Minute - 30*time.Second), "broken clock", "differs by 20m", "synchronize"},
		"host_api":       {oldAPI, "warning emulator", "newer `func start` ends", "--skipApiVersionCheck"},
		"wrong_key":      {wrong, "broken queue access", "403 Authentica", "check the credential in " + connection},
		"queue_read":     {denied("Queue", "GET", ""), "broken queue access", "peek at queue", queueRole},
		"queue_write":    {denied("Queue", "PUT", ""), "broken queue access", "update message", queueRole},
		"queue_delete":   {denied("Queue", "DELETE", ""), "broken queue access", "delete message", queueRole},
		"table_read":     {denied("Table", "GET", ""), "broken table access", "403", tableRole},
		"table_write":    {denied("Table", "DELETE", ""), "broken table access", "403", tableRole},
		"one_table":      {denied("Table", "", "sight"), "broken table access", storage.SightTable + ": ", tableRole},
		"blob_write":     {denied("Blob", "", ""), "broken blob access", "403", "role Storage Blob Data Owner"},
		"no_record":      {variable("ASYNC_CALLER_TABLES", "off"), "warning table access", "not recorded", "to on"},
		"no_tables":      {connected("TableEndpoint", ""), "warning table access", "not recorded", "TableEndpoint"},
		"no_blobs":       {connected("BlobEndpoint", ""), "broken blob access", "no blob service", "BlobEndpoint"},
		"host_version":   {variable("FUNCTIONS_EXTENSION_VERSION", "~3"), "broken host version", `"~3"`, "to ~4"},
		"sampling":       {variable("APPLICATIONINSIGHTS_CONNECTION_STRING", "C4nary"), "warning log", "", "Trace"},
		"disabled_in_file": {
			edited(monitor, `"bindings"`, `"disabled": true, "bindings"`),
			"warning functions", "AC-monitor", `"disabled"`,
		},
		"disabled_by_setting": {
			variable("AzureWebJobs_AC-standard_Disabled", "True"),
			"broken functions", "AC-standard", "remove the settings",
		},
		"one_queue": {
			file("AC-other/function.json", other), "warning queues", "missing: no-such-queue", "async-caller send",
		},
		"poison": {
			waiting("async-caller-poison", "C4nary"), "warning poison", "1 on async-caller-poison", "calls list",
		},
		"no_queue": {
			edited(standard, "async-caller", "no-such-queue"), "broken queues", "missing: no-such-queue", "create them",
		},
		"empty_connection": {
			both(file(settings, `{"Values": {"AzureWebJobsStorage": "C4nary"}}`), variable(connection, "")),
			"broken connection", "AzureWebJobsStorage in the environment is empty", "correct the setting",
		},
		"key_vault": {
			variable("CRM_TOKEN", "@Microsoft.KeyVault(SecretUri=https://C4nary/)"),
			"broken key vault", "CRM_TOKEN is a reference", "Key Vault Secrets User",
		},
		"key_vault_in_file": {
			file(settings, `{"Values": {"CRM_TOKEN": "@microsoft.keyvault(C4nary)"}}`),
			"broken key vault", "CRM_TOKEN is a reference", "in this environment, set the secret itself",
		},
		"host_version_in_file": {
			file(settings, `{"Values": {"FUNCTIONS_EXTENSION_VERSION": "~3"}}`),
			"broken host version", `"~3"`, "set it to ~4",
		},
		"host_log_level": {
			edited("host.json", `"version": "2.0"`, `"version": "2.0", "logging": {"logLevel": {"Default": "Error"}}`),
			"warning log", `logging.logLevel.default is "Error"`, `"Host.Function.Console": "Information"`,
		},
		"host_log_setting": {
			variable("AzureFunctionsJobHost__logging__logLevel__Host.Function", "None"),
			"warning log", `logging.logLevel.host.function is "None"`, "AzureFunctionsJobHost__logging__",
		},
		"project": {
			elsewhere(map[string]string{"host.json": "host.json", standard: "functions/" + standard}),
			"broken app folder", "not an app folder", "--app dist",
		},
		"queue_name": {
			edited(standard, "async-caller", `UPPER_\u202e\u001b[2J`), "broken app folder", "queueName", "deploy again",
		},
		"two_sources": {
			file(settings, `{"Values": {"AzureWebJobsStorage__accountName": "other"}}`),
			"broken connection", "may mean different accounts", "correct the setting",
		},
		"line_break": {
			func(p *patient) { p.environ[connection] += "\nx=C4nary" },
			"broken connection", "part ", "correct the setting",
		},
		"unknown_name": {
			connected("QueueEndpoint", "QueueEndpoint=http://nowhere.invalid/acme;"),
			"broken storage", "nowhere.invalid", "check the account's name",
		},
		"refused": {
			connected("QueueEndpoint", "QueueEndpoint="+closed.URL+"/acme;"),
			"broken storage", "connection refused", "make azurite",
		},
		"silence": {
			connected("QueueEndpoint", "QueueEndpoint=http://"+silent.Addr().String()+"/acme;"),
			"broken storage", "deadline exceeded", "the network",
		},
		"old_azurite": {
			refused("", "", "", http.StatusBadRequest, "InvalidHeaderValue"),
			"broken queue access", "update Azurite", "make azurite",
		},
		"expired_signature": {
			both(connected("AccountKey", sas+"2020-01-01;"), wrong),
			"broken queue access", "403", "the SAS has expired at 2020-01-01",
		},
		"busy": {
			refused("Queue", "", "-poison", http.StatusServiceUnavailable, "ServerBusy"),
			"broken queues", "503 ServerBusy", "the network",
		},
		"not_base64": {
			waiting("async-caller", `{"C4nary\u001b[2J":"text"}`),
			"broken encoding", "1 of 1 on async-caller", "messageEncoding in host.json",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPatient(t, newAccount(t))
			p.beat(heartbeat.Host)
			test.inject(p)
			lines, printed, code := p.examine()
			i := slices.IndexFunc(lines, func(l doctor.Line) bool { return l.State != doctor.OK })
			if i < 0 {
				t.Fatalf("found nothing:\n%s", printed)
			}
			if l := lines[i]; string(l.State)+" "+l.Check != test.line || !strings.Contains(l.Text, test.text) ||
				!strings.Contains(l.Next, test.next) {
				t.Errorf("first line %+v, want %s: %s, next: %s", l, test.line, test.text, test.next)
			}
			if isBroken := strings.HasPrefix(test.line, "broken"); isBroken != (code == 1) {
				t.Errorf("exit code %d", code)
			}
			seen := map[string]bool{}
			for _, l := range lines {
				if l.State != doctor.OK && (l.Next == "" || seen[l.Text]) {
					t.Errorf("without a next step, or twice: %+v", l)
				}
				seen[l.Text] = true
			}
		})
	}
}

// TestDoctorOfAWorker: a worker uses no blobs, so its account needs none.
func TestDoctorOfAWorker(t *testing.T) {
	t.Parallel()
	p := newPatient(t, newAccount(t))
	connected("BlobEndpoint", "")(p)
	p.beat(heartbeat.Worker)
	_, printed, code := p.examine()
	if code != 0 || strings.Contains(printed, "blob access") {
		t.Errorf("exit code %d: %s", code, printed)
	}
}

// TestDoctorHealthyApp: an app without faults is ok, and the checks change nothing on the account. Azurite refuses the
// API version of the host, unless it is told otherwise.
//
// It does not run beside the other tests: a machine without time for a check breaks it.
func TestDoctorHealthyApp(t *testing.T) {
	p := newPatient(t, azuritetest.Run(t).ConnectionString)
	fresh, printed, code := p.examine()
	if !strings.Contains(printed, "AC-monitor has not run yet, or cannot record that it runs") || code != 0 {
		t.Errorf("before its first start: %d, %+v", code, fresh)
	}
	p.beat(heartbeat.Host)
	p.put("async-caller", storage.Base64.Encode([]byte(`{"asyncCaller":1}`)))
	lines, _, code := p.examine()
	var checks []string
	for _, l := range lines {
		if (l.State != doctor.OK || l.Next != "") != (l.Check == "emulator") {
			t.Errorf("%+v", l)
		}
		checks = append(checks, l.Check)
	}
	const want = "settings, app folder, functions, timers, executable, log, connection, storage, emulator, clock, " +
		"queue access, queues, encoding, poison, table access, heartbeats, calls that wait, targets, pauses, " +
		"blob access"
	if got := strings.Join(checks, ", "); code != 0 || got != want {
		t.Errorf("exit code %d, checks %s, want %s", code, got, want)
	}
	app := p.dir
	p.dir = t.TempDir() // the project's folder, in which `make build` has staged the app
	p.write("host.json", "{}")
	p.write("functions/AC-standard/function.json", "{}")
	p.must(os.Symlink(app, filepath.Join(p.dir, "dist")))
	staged, printed, code := p.examine()
	if code != 0 || len(staged) != len(lines) || !strings.Contains(printed, filepath.Join(p.dir, "dist")) {
		t.Errorf("in the project's folder: exit code %d, %s", code, printed)
	}
	messages, err := p.store.Receive(t.Context(), "async-caller", 32, time.Second)
	if err != nil || len(messages) != 1 || messages[0].DequeueCount != 1 {
		t.Errorf("the message has changed: %+v, %v", messages, err)
	}
	for _, request := range p.requests {
		if !strings.Contains(request, " GET ") && !strings.Contains(request, "00000000-0000-0000-0000-000000000000") {
			t.Errorf("a request that can change something: %s", request)
		}
	}
	if names, err := p.store.Names(t.Context(), ""); err != nil || len(names) != 1 {
		t.Errorf("queues: %q, %v", names, err)
	}
}
