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

	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/observers/sight/sighttest"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/operate/doctor"
	"asynccaller/handler/internal/program/cli"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/tools/azurite"
	"asynccaller/handler/tools/azurite/azuritetest"
)

// patient is an app in a folder, and its account on an Azurite behind proxies.
type patient struct {
	t       *testing.T
	dir     string
	queue   string
	environ map[string]string
	store   *azure.Queues
	// refuse, unless nil, returns the error code with which the blob, queue or table service refuses a request, or "".
	refuse func(service string, r *http.Request) (status int, code string)
	// detail is part of its answers.
	detail string
	// late is by how much storage's clock differs.
	late time.Duration

	mu       sync.Mutex
	requests []string
}

// newAccount returns the connection string of an empty account on the shared Azurite.
func newAccount(t *testing.T) string {
	t.Helper()
	connectionString, _, err := emulator.account()
	if err != nil {
		t.Fatal(err)
	}
	return connectionString
}

// newPatient returns a healthy app whose queue is called name.
func newPatient(t *testing.T, connectionString, name string) *patient {
	t.Helper()
	p := &patient{t: t, dir: t.TempDir(), queue: name, environ: map[string]string{"FUNCTIONS_WORKER_RUNTIME": "custom"}}
	for _, path := range []string{
		"host.json", "functions/AC-standard/function.json",
		"functions/AC-monitor/function.json", "functions/AC-poison-keeper/function.json",
	} {
		content, err := os.ReadFile(filepath.Join("../../../..", path))
		if err != nil {
			t.Fatal(err)
		}
		p.write(strings.TrimPrefix(path, "functions/"), strings.ReplaceAll(string(content), `"async-caller",
      "conn`, `"`+name+`",
      "conn`))
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(p.dir, "async-caller")); err != nil {
		t.Fatal(err)
	}
	direct := p.connect(connectionString)
	p.store, err = azure.Open(direct)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.store.Close)
	if err := p.store.Create(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	p.environ[storage.ConnectionName] = regexp.MustCompile(`(Blob|Queue|Table)Endpoint=([^;]+)`).
		ReplaceAllStringFunc(connectionString, p.proxy)
	return p
}

func (p *patient) connect(connectionString string) azure.Connection {
	p.t.Helper()
	connection, err := azure.ParseConnection([]string{storage.ConnectionName + "=" + connectionString},
		storage.ConnectionName)
	if err != nil {
		p.t.Fatal(err)
	}
	return connection
}

// proxy replaces an endpoint in a connection string by that of a proxy.
func (p *patient) proxy(part string) string {
	name, endpoint, _ := strings.Cut(part, "=")
	service := strings.TrimSuffix(name, "Endpoint")
	target, err := url.Parse(endpoint)
	if err != nil {
		p.t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: target.Scheme, Host: target.Host})
	forward.ModifyResponse = func(r *http.Response) error {
		r.Header.Set("Date", time.Now().Add(-p.late).UTC().Format(http.TimeFormat))
		return nil
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.requests = append(p.requests, service+" "+r.Method+" "+r.URL.Path)
		p.mu.Unlock()
		if p.refuse != nil && (r.Header.Get("Authorization") != "" || r.URL.Query().Has("sig")) {
			if status, code := p.refuse(service, r); code != "" {
				w.Header().Set("x-ms-error-code", code)
				w.WriteHeader(status)
				_, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
				_, _ = io.WriteString(w, "<Error><Code>"+code+"</Code><Message>Storage\u202e says "+code+" to "+secret+
					".</Message>"+p.detail+"</Error>")
				return
			}
		}
		forward.ServeHTTP(w, r)
	}))
	p.t.Cleanup(server.Close)
	return name + "=" + server.URL + target.Path
}

func (p *patient) write(name, content string) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// remove deletes the folder of a function.
func (p *patient) remove(name string) {
	p.t.Helper()
	if err := os.RemoveAll(filepath.Join(p.dir, name)); err != nil {
		p.t.Fatal(err)
	}
}

// edit replaces a text in a file of the app.
func (p *patient) edit(name, old, replacement string) {
	p.t.Helper()
	content, err := os.ReadFile(filepath.Join(p.dir, name))
	if err != nil || !strings.Contains(string(content), old) {
		p.t.Fatalf("%s has no %q: %v", name, old, err)
	}
	p.write(name, strings.ReplaceAll(string(content), old, replacement))
}

// program replaces the executable by a file that a function writes.
func (p *patient) program(mode os.FileMode, change func([]byte) []byte) {
	p.t.Helper()
	path := filepath.Join(p.dir, "async-caller")
	content, err := os.ReadFile(path)
	if err == nil {
		err = os.Remove(path)
	}
	if err == nil && change != nil {
		err = os.WriteFile(path, change(content), mode)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *patient) put(name, text string) {
	p.t.Helper()
	if err := p.store.Create(p.t.Context(), name); err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.store.Put(p.t.Context(), name, storage.Item{Text: text}); err != nil {
		p.t.Fatal(err)
	}
}

// replaceConnection replaces a text in the connection string.
func (p *patient) replaceConnection(old, replacement string) {
	const name = storage.ConnectionName
	p.environ[name] = regexp.MustCompile(old).ReplaceAllString(p.environ[name], replacement)
}

// denied is a refusal of the requests to a service that have a method; empty means all.
func (p *patient) denied(service, method string) {
	p.refuse = func(s string, r *http.Request) (int, string) {
		if s == service && (method == "" || r.Method == method) {
			return http.StatusForbidden, "AuthorizationPermissionMismatch"
		}
		return 0, ""
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
		if err := json.Unmarshal([]byte(line), &decoded); err != nil {
			p.t.Fatalf("%v: %s", err, line)
		}
		lines = append(lines, decoded)
	}
	return lines, text + stderr + inJSON, code
}

// mustBePrintable checks that the table fits a terminal, and that nothing that was printed is secret or controls the
// terminal.
func mustBePrintable(t *testing.T, printed string) {
	t.Helper()
	for line := range strings.Lines(printed) {
		line = strings.TrimSuffix(line, "\n")
		if strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("it has control characters: %q", line)
		}
		if !strings.HasPrefix(line, "{") && utf8.RuneCountInString(line) > 100 &&
			!strings.HasPrefix(line, "async-caller:") {
			t.Errorf("it is too wide: %s", line)
		}
		for _, secret := range []string{azurite.AccountKey, "C4nary", "SharedKey"} {
			if strings.Contains(line, secret) {
				t.Errorf("%q is in %s", secret, line)
			}
		}
	}
}

// TestDoctorFindsFaults injects one fault after another into an app, and checks the line that names it.
func TestDoctorFindsFaults(t *testing.T) {
	t.Parallel()
	account := newAccount(t)
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // accepts and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	const role = "assign the role Storage "
	tests := []struct {
		name   string
		inject func(p *patient)
		// state, check, text and next describe the line.
		state             doctor.State
		check, text, next string
	}{
		{
			"setting", func(p *patient) { p.environ["ASYNC_CALLER_EXPIRATION"] = "soon" }, "broken", "settings",
			"ASYNC_CALLER_EXPIRATION", "restart the app",
		},
		{
			"retry_file", func(p *patient) { p.write("retry.json", "{") }, "broken", "settings", "retry.json: ",
			"restart the app",
		},
		{
			"local_settings", func(p *patient) { p.write("local.settings.json", `{"Values": C4nary}`) }, "broken",
			"settings", "not JSON", "restart the app",
		},
		{
			"empty_connection", func(p *patient) {
				p.write("local.settings.json", `{"Values": {"AzureWebJobsStorage": "UseDevelopmentStorage=true"}}`)
				p.environ[storage.ConnectionName] = ""
			},
			"broken", "connection", "AzureWebJobsStorage in the environment is empty", "correct the setting",
		},
		{
			"runtime", func(p *patient) { p.environ["FUNCTIONS_WORKER_RUNTIME"] = "node" }, "broken", "runtime",
			`"node"`, "set it to custom",
		},
		{
			"host_version", func(p *patient) { p.environ["FUNCTIONS_EXTENSION_VERSION"] = "~3" }, "broken",
			"host version", `"~3"`, "set it to ~4",
		},
		{
			"key_vault", func(p *patient) { p.environ["CRM_TOKEN"] = "@Microsoft.KeyVault(SecretUri=https://C4nary/)" },
			"broken", "key vault", "CRM_TOKEN is a reference", "Key Vault Secrets User",
		},
		{
			"key_vault_in_file", func(p *patient) {
				p.write("local.settings.json", `{"Values": {"CRM_TOKEN": "@microsoft.keyvault(C4nary)"}}`)
			}, "broken", "key vault", "CRM_TOKEN is a reference", "in this environment, set the secret itself",
		},
		{
			"host_version_in_file", func(p *patient) {
				p.write("local.settings.json", `{"Values": {"FUNCTIONS_EXTENSION_VERSION": "~3"}}`)
			}, "broken", "host version", `"~3"`, "set it to ~4",
		},
		{
			"no_monitor", func(p *patient) { p.remove("AC-monitor") }, "warning", "timers", "AC-monitor",
			"the alerts have no data",
		},
		{
			"no_keeper", func(p *patient) { p.remove("AC-poison-keeper") }, "warning", "timers", "AC-poison-keeper",
			"deletes poison messages",
		},
		{
			"log_level", func(p *patient) { p.environ["ASYNC_CALLER_LOG_LEVEL"] = "warn" }, "warning", "log",
			"ASYNC_CALLER_LOG_LEVEL is warn", "set it to info",
		},
		{
			"host_log_level", func(p *patient) {
				p.edit("host.json", `"version": "2.0"`,
					`"version": "2.0", "logging": {"logLevel": {"Default": "Error"}}`)
			}, "warning", "log", `logging.logLevel.default is "Error"`, `"Host.Function.Console": "Information"`,
		},
		{
			"host_log_setting", func(p *patient) {
				p.environ["AzureFunctionsJobHost__logging__logLevel__Host.Function"] = "None"
			}, "warning", "log", `logging.logLevel.host.function is "None"`, "AzureFunctionsJobHost__logging__",
		},
		{
			"sampling", func(p *patient) { p.environ["APPLICATIONINSIGHTS_CONNECTION_STRING"] = "C4nary" }, "warning",
			"log", "samples the log", "Trace",
		},
		{
			"target_fails", func(p *patient) {
				account := newAccount(p.t) // of its own, because the line is about all apps of an account
				beat(p.t, account)
				p.environ = newPatient(p.t, account, p.queue).environ
				table, err := azure.OpenTable(p.connect(account), storage.SightTable)
				if err != nil {
					p.t.Fatal(err)
				}
				defer table.Close()
				sighttest.Fail(p.t, table, sight.Target{
					App: "app", Host: "crm.example", Cause: "503", Since: time.Now().Add(-90 * time.Minute),
					Latest: time.Now(),
				})
			}, "warning", "targets", "fail (1): crm.example for 1h", "async-caller status",
		},
		{
			"target_paused", func(p *patient) {
				account := newAccount(p.t) // of its own, as above
				beat(p.t, account)
				p.environ = newPatient(p.t, account, p.queue).environ
				table, err := azure.OpenTable(p.connect(account), storage.AppTable)
				if err != nil {
					p.t.Fatal(err)
				}
				defer table.Close()
				paused := setting.Setting{
					Host: "crm.example", Member: setting.Pause, Since: time.Now(), By: "anna@ops-7", Reason: "INC-4711",
				}
				if err := setting.Write(p.t.Context(), table, paused); err != nil {
					p.t.Fatal(err)
				}
			}, "warning", "pauses", "by anna@ops-7 until it is resumed: INC-4711", "async-caller targets resume HOST",
		},
		{
			"no_app", func(p *patient) {
				p.dir = p.t.TempDir()
				p.environ = map[string]string{"ASYNC_CALLER_RETRY": "of retry.json"} // and no connection
			},
			"broken", "app folder", "host.json", "--app dist",
		},
		{
			"project", func(p *patient) {
				host, err := os.ReadFile(filepath.Join(p.dir, "host.json"))
				if err != nil {
					p.t.Fatal(err)
				}
				p.dir = p.t.TempDir()
				p.write("host.json", string(host))
				p.write("functions/AC-standard/function.json", "{}")
				p.environ = map[string]string{"ASYNC_CALLER_RETRY": "of retry.json"} // and no connection
			},
			"broken", "app folder", "not an app folder", "--app dist",
		},
		{
			"host_json", func(p *patient) { p.edit("host.json", `"00:05:00"`, `"5m"`) }, "broken", "app folder",
			"functionTimeout", "deploy again",
		},
		{
			"short_timeout", func(p *patient) { p.edit("host.json", `"00:05:00"`, `"00:01:00"`) }, "broken", "settings",
			"functionTimeout is 1m0s", "restart",
		},
		{
			"queue_name", func(p *patient) { p.edit("AC-standard/function.json", p.queue, `UPPER_\u202e\u001b[2J`) },
			"broken", "app folder", "queueName", "deploy again",
		},
		{
			"disabled_by_setting", func(p *patient) { p.environ["AzureWebJobs_AC-standard_Disabled"] = "True" },
			"broken", "functions", "AC-standard", "remove the settings",
		},
		{"disabled_in_file", func(p *patient) {
			p.edit("AC-monitor/function.json", `"bindings"`,
				`"disabled": true, "bindings"`)
		}, "warning", "functions", "AC-monitor", `"disabled"`},
		{
			"no_executable", func(p *patient) { p.program(0, nil) }, "broken", "executable",
			"async-caller: no such file",
			"make build",
		},
		{
			"lost_bit", func(p *patient) { p.program(0o644, func([]byte) []byte { return nil }) }, "broken",
			"executable",
			"is not executable", "make package",
		},
		{
			"not_a_program", func(p *patient) { p.program(0o755, func([]byte) []byte { return []byte("<html>") }) },
			"broken", "executable", "async-caller", "make package",
		},
		{
			"no_arguments", func(p *patient) { p.edit("host.json", `["serve"]`, `[]`) }, "broken", "executable",
			`to ["serve"]`, "deploy again",
		},

		{
			"no_storage", func(p *patient) { delete(p.environ, storage.ConnectionName) }, "broken", "connection",
			"AzureWebJobsStorage: missing", "correct the setting",
		},
		{
			"cut_off_key", func(p *patient) { p.replaceConnection(`AccountKey=[^;]*`, "AccountKey=C4nary!") }, "broken",
			"connection", "was it cut off?", "correct the setting",
		},
		{"two_sources", func(p *patient) {
			p.write("local.settings.json", `{"Values": {"AzureWebJobsStorage__accountName": "other"}}`)
		}, "broken", "connection", "may mean different accounts", "correct the setting"},
		{"unknown_name", func(p *patient) {
			p.replaceConnection(`QueueEndpoint=[^;]*`, "QueueEndpoint=http://nowhere.invalid/acme")
		}, "broken", "storage", "nowhere.invalid", "check the account's name"},
		{"refused", func(p *patient) {
			p.replaceConnection(`QueueEndpoint=[^;]*`,
				"QueueEndpoint="+closed.URL+"/acme")
		}, "broken", "storage", "connection refused", "make azurite"},
		{"silence", func(p *patient) {
			p.replaceConnection(`QueueEndpoint=[^;]*`, "QueueEndpoint=http://"+silent.Addr().String()+"/acme")
		}, "broken", "storage", "deadline exceeded", "the network"},
		{
			"clock", func(p *patient) { p.late = -20*time.Minute - 30*time.Second }, "broken", "clock",
			"differs by 20m",
			"synchronize",
		},
		{
			"slow_clock", func(p *patient) { p.late = 2*time.Minute + 30*time.Second }, "warning", "clock",
			"differs by 2m", "synchronize",
		},
		{"old_azurite", func(p *patient) {
			p.refuse = func(string, *http.Request) (int, string) { return http.StatusBadRequest, "InvalidHeaderValue" }
			p.detail = "<HeaderName>x-ms-version</HeaderName>"
		}, "broken", "queue access", "update Azurite", "make azurite"},
		{"wrong_key", func(p *patient) {
			p.replaceConnection(`AccountKey=[^;]*`, "AccountKey=C4naryC4naryC4naryC4nary")
		}, "broken", "queue access", "403 AuthenticationFailed", "check the credential in AzureWebJobsStorage"},
		{"expired_signature", func(p *patient) {
			p.replaceConnection(`AccountKey=[^;]*`,
				"SharedAccessSignature=sv=2022-11-02&ss=bqt&srt=sco&sp=rwdlacup&se=2020-01-01&sig=C4nary")
		}, "broken", "queue access", "403", "the SAS has expired at 2020-01-01"},
		{
			"line_break", func(p *patient) { p.environ[storage.ConnectionName] += "\nx=C4nary" }, "broken",
			"connection", "part ", "correct the setting",
		},
		{"wrong_signature", func(p *patient) {
			p.replaceConnection(`AccountKey=[^;]*`,
				"SharedAccessSignature=sv=2022-11-02&ss=q&srt=sco&sp=r&se=2099-01-01&sig=C4nary%2BC4nary%3D")
		}, "broken", "queue access", "403", "check the credential in AzureWebJobsStorage"},
		{
			"queue_read", func(p *patient) { p.denied("Queue", http.MethodGet) }, "broken", "queue access",
			"peek at queue", role + "Queue Data Contributor",
		},
		{
			"queue_write", func(p *patient) { p.denied("Queue", http.MethodPut) }, "broken", "queue access",
			"update message", role + "Queue Data Contributor",
		},
		{
			"queue_delete", func(p *patient) { p.denied("Queue", http.MethodDelete) }, "broken", "queue access",
			"delete message", role + "Queue Data Contributor",
		},
		{"busy", func(p *patient) {
			p.refuse = func(_ string, r *http.Request) (int, string) {
				if strings.HasSuffix(r.URL.Path, "-poison") {
					return http.StatusServiceUnavailable, "ServerBusy"
				}
				return 0, ""
			}
		}, "broken", "queues", "503 ServerBusy", "the network"},
		{
			"no_queue", func(p *patient) { p.edit("AC-standard/function.json", p.queue, "no-such-queue") }, "broken",
			"queues", "missing: no-such-queue", "create them",
		},
		{"one_queue", func(p *patient) {
			p.write("AC-other/function.json", `{"bindings":[{"type":"queueTrigger","name":"message",`+
				`"queueName":"no-such-queue","dataType":"binary"}]}`)
		}, "warning", "queues", "missing: no-such-queue", "async-caller send"},
		{
			"not_base64", func(p *patient) { p.put(p.queue, `{"C4nary\u001b[2J":"text"}`) }, "broken", "encoding",
			"1 of 1 on not-base64", "messageEncoding in host.json",
		},
		{"base64", func(p *patient) {
			p.edit("host.json", `"base64"`, `"none"`)
			p.put(p.queue, storage.Base64.Encode([]byte(` {"C4nary": 1}`)))
			p.put(p.queue, `{"C4nary": 1}`)
		}, "broken", "encoding", "1 of 2 on base64", "or the sender"},
		{"twice_base64", func(p *patient) {
			p.put(p.queue, storage.Base64.Encode([]byte(storage.Base64.Encode([]byte(`{}`)))))
		}, "broken", "encoding", "1 of 1 on twice-base64", "--fix-encoding"},
		{
			"poison", func(p *patient) { p.put(p.queue+"-poison", "C4nary") }, "warning", "poison",
			"1 on poison-poison",
			"calls list --state poison",
		},
		{
			"table_read", func(p *patient) { p.denied("Table", http.MethodGet) }, "broken", "table access", "403",
			role + "Table Data Contributor",
		},
		{
			"table_write", func(p *patient) { p.denied("Table", http.MethodDelete) }, "broken", "table access",
			"403", role + "Table Data Contributor",
		},
		{
			"one_table", func(p *patient) {
				p.refuse = func(_ string, r *http.Request) (int, string) {
					if strings.Contains(r.URL.Path, storage.SightTable) {
						return http.StatusForbidden, "AuthorizationPermissionMismatch"
					}
					return 0, ""
				}
			}, "broken", "table access", storage.SightTable + ": ", role + "Table Data Contributor",
		},
		{
			"no_record", func(p *patient) { p.environ["ASYNC_CALLER_TABLES"] = "off" }, "warning", "table access",
			"not recorded", "ASYNC_CALLER_TABLES to on",
		},
		{
			"no_tables", func(p *patient) { p.replaceConnection(`TableEndpoint=[^;]*;`, "") }, "warning",
			"table access",
			"not recorded", "TableEndpoint",
		},
		{
			"no_blobs", func(p *patient) { p.replaceConnection(`BlobEndpoint=[^;]*;`, "") }, "broken", "blob access",
			"no blob service", "BlobEndpoint",
		},
		{"blobs_away", func(p *patient) {
			p.replaceConnection(`BlobEndpoint=[^;]*`,
				"BlobEndpoint="+closed.URL+"/acme")
		}, "broken", "blob access", "connection refused", "make azurite"},
		{
			"blob_write", func(p *patient) { p.denied("Blob", "") }, "broken", "blob access", "403",
			role + "Blob Data Owner",
		},
	}
	beat(t, account)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newPatient(t, account, strings.ReplaceAll(test.name, "_", "-"))
			test.inject(p)
			lines, printed, code := p.examine()
			t.Log("\n" + printed)
			mustBePrintable(t, printed)
			i := slices.IndexFunc(lines, func(l doctor.Line) bool { return l.State != doctor.OK })
			if i < 0 {
				t.Fatalf("found nothing:\n%s", printed)
			}
			if l := lines[i]; l.State != test.state || l.Check != test.check || !strings.Contains(l.Text, test.text) ||
				!strings.Contains(l.Next, test.next) {
				t.Errorf("first line %+v, want %s %s: %s, next: %s", l, test.state, test.check, test.text, test.next)
			}
			if want := map[doctor.State]int{doctor.Broken: 1, doctor.Warning: 0}[test.state]; code != want {
				t.Errorf("exit code %d, want %d", code, want)
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

// beat records that the timer functions run.
func beat(t *testing.T, connectionString string) {
	t.Helper()
	table, err := azure.OpenTable((&patient{t: t}).connect(connectionString), storage.ScheduledTable)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	for _, timer := range []string{functionapp.MonitorTimer, functionapp.KeeperTimer} {
		if err := heartbeat.Beat(t.Context(), table, heartbeat.App{Name: "local", Version: "test"}, timer); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDoctorAzuriteChecksVersions checks that doctor names the flag without which the Functions host ends. All
// that the handler itself needs works.
func TestDoctorAzuriteChecksVersions(t *testing.T) {
	t.Parallel()
	account := azuritetest.Run(t).ConnectionString
	beat(t, account)
	p := newPatient(t, account, "versions")
	lines, printed, code := p.examine()
	mustBePrintable(t, printed)
	var found []doctor.Line
	for _, l := range lines {
		if l.State != doctor.OK {
			found = append(found, l)
		}
	}
	if code != 0 || len(found) != 1 {
		t.Fatalf("exit code %d, lines %+v, want a warning", code, found)
	}
	l := found[0]
	if l.State != doctor.Warning || l.Check != "emulator" || !strings.Contains(l.Text, "func start") ||
		!strings.Contains(l.Next, "--skipApiVersionCheck") || !strings.Contains(l.Next, "make azurite") {
		t.Errorf("%+v, want a warning that names func start, the flag, and make azurite", l)
	}
}

// TestDoctorHealthyApp checks that an app without faults is ok, and that the checks change nothing on the account.
//
// It does not run beside the other tests: a machine without time for a check breaks it.
func TestDoctorHealthyApp(t *testing.T) {
	account := newAccount(t)
	p := newPatient(t, account, "healthy")
	fresh, _, code := p.examine()
	if last := fresh[len(fresh)-5]; code != 0 || last.State != doctor.Warning ||
		last.Text != "AC-monitor has not run yet, or cannot record that it runs" {
		t.Errorf("before its first start: %d, %+v", code, fresh)
	}
	beat(t, account)
	p.put("healthy", storage.Base64.Encode([]byte(`{"asyncCaller":1}`)))
	lines, printed, code := p.examine()
	mustBePrintable(t, printed)
	var checks []string
	for _, l := range lines {
		if l.State != doctor.OK || l.Next != "" {
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
	if err := os.Symlink(app, filepath.Join(p.dir, "dist")); err != nil {
		t.Fatal(err)
	}
	if staged, printed, code := p.examine(); code != 0 || len(staged) != len(lines) ||
		!strings.Contains(printed, filepath.Join(p.dir, "dist")) {
		t.Errorf("in the project's folder: exit code %d, %s", code, printed)
	}
	messages, err := p.store.Receive(t.Context(), "healthy", 32, time.Second)
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
