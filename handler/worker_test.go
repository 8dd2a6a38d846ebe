package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/program/work"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
)

// The template of the worker, its module, its parameters for azd, and its page.
const (
	workerTemplate   = "../deploy/worker.bicep"
	workerModule     = "../deploy/worker-account.bicep"
	workerParameters = "../deploy/worker.parameters.json"
	workerPage       = "../docs/worker.md"
)

// oneLine returns a text with one blank in the place of each white space.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// TestWorkerQueues: the worker creates no queue, so its template makes those of functions/ and of routes, and scales by
// them alone: the rule of a queue that does not exist would keep the app up.
func TestWorkerQueues(t *testing.T) {
	text, module := read(t, workerTemplate), oneLine(read(t, workerModule))
	parts := mustMatch(t, text, `\nvar queues = union\(\['([\w-]+)'\], `+
		`map\(range\((\d+), (\d+)\), i => '([\w-]+)\$\{i\}'\), routedQueues\)\n`)
	first, _ := strconv.Atoi(parts[1])
	count, _ := strconv.Atoi(parts[2])
	made := []string{parts[0]}
	for i := range count {
		made = append(made, parts[3]+strconv.Itoa(first+i))
	}
	paths, err := filepath.Glob("../functions/*/function.json")
	if err != nil {
		t.Fatal(err)
	}
	var bound []string
	for _, path := range paths {
		bound = append(bound, group(read(t, path), `"queueName": "(.*)"`)...)
	}
	compare(t, "queues of functions/", bound, made)
	compare(t, "queues of senders", envelope.Queues(), made)
	tables := mustMatch(t, module, `var tables = \[(.*?)\]`)[0]
	compare(t, "tables", []string{
		storage.ScheduledTable, storage.RunTable, storage.AppTable, storage.SightTable,
	}, group(tables, `'(\w+)'`))
	for _, want := range []string{
		"concat(queues, map(queues, queueName => '${queueName}" + storage.PoisonSuffix + "'))",
		"= [for queueName in allQueues: { parent: queueService name: queueName }]",
		"= [for tableName in tables: { parent: tableService name: tableName }]",
	} {
		if !strings.Contains(module, want) {
			t.Errorf("the module does not have %q", want)
		}
	}
	mustMatch(t, text, `\n    queues: queues\n`)
	rules := mustMatch(t, oneLine(text),
		`rules: \[ for queueName in queues: \{ name: queueName custom: \{ (.*?) \} \} \]`)[0]
	for _, want := range []string{
		"type: 'azure-queue' identity: identity.id", "accountName: account queueName: queueName",
		"queueLengthStrategy: minReplicas == 0 ? 'all' : 'visibleonly'",
	} {
		if !strings.Contains(rules, want) {
			t.Errorf("the rule of a queue does not have %q: %s", want, rules)
		}
	}
	host, err := functionapp.LoadHost("..", nil)
	if err != nil {
		t.Fatal(err)
	}
	slots := host.Queues.BatchSize + host.Queues.NewBatchThreshold
	if want := fmt.Sprintf("queueLength: '%d'", slots); !strings.Contains(rules, want) {
		t.Errorf("a replica calls %d messages of a queue at once: want %s: %s", slots, want, rules)
	}
}

// TestWorkerRoles: the identity of the worker and operators have the roles that the code asks for, and no others.
func TestWorkerRoles(t *testing.T) {
	module := oneLine(read(t, workerModule))
	ids := map[string]string{
		"974c5e8b-45b9-4653-ba55-5f855dd0fb88": storage.QueueRole,
		"0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3": storage.TableRole,
	}
	var got []string
	for _, id := range group(mustMatch(t, module, `var roles = \[(.*?)\]`)[0], `'([\w-]+)'`) {
		got = append(got, ids[id])
	}
	compare(t, "roles", []string{storage.QueueRole, storage.TableRole}, got)
	main := oneLine(read(t, template))
	for _, want := range []string{
		"[for role in roles: { scope: account name: guid(account.id, identityId, role)",
		"for role in roles: if (!empty(operatorPrincipalId)) { scope: account " +
			"name: guid(account.id, operatorPrincipalId, role)",
		"principalId: identityPrincipalId principalType: 'ServicePrincipal'",
		"principalId: operatorPrincipalId principalType: operatorPrincipalType",
	} {
		if !strings.Contains(module, want) {
			t.Errorf("the module does not have %q", want)
		}
	}
	// A second assignment of a role to an operator would be refused, so it must be the same one.
	if !strings.Contains(main, "name: guid(storage.id, operatorPrincipalId, role)") {
		t.Error("main.bicep names the roles of operators in another way")
	}
}

// mustPackage returns a folder with the app as the package has it.
func mustPackage(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS("../functions")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "host.json"), []byte(read(t, "../host.json")), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

// TestWorkerSettings: the worker accepts the environment variables of the template, and finds the account and its
// name in them.
func TestWorkerSettings(t *testing.T) {
	text := read(t, workerTemplate)
	values := map[string]string{
		"data.outputs.openAccountName": "account", "'managedidentity'": "managedidentity",
		"identity.properties.clientId": "id", "empty(appName) ? resourceName : appName": "async-caller-abc",
	}
	var environ []string
	for _, variable := range regexp.MustCompile(`\{ name: '(\w+)', value: (.*) \}`).FindAllStringSubmatch(text, -1) {
		value, isKnown := values[variable[2]]
		if !isKnown {
			t.Errorf("%s is %s", variable[1], variable[2])
		}
		environ = append(environ, variable[1]+"="+value)
	}
	if len(environ) != len(values) {
		t.Errorf("the template sets %v", environ)
	}
	c, err := work.ReadConfig(mustPackage(t), environ, nil)
	if err != nil || c.InHoldMode() {
		t.Fatalf("the worker refuses the settings: %v, %v", err, c.App.SettingsErr)
	}
	account, err := azure.ParseConnection(environ, storage.ConnectionName)
	want := azure.Identity{ManagedIdentity: true, ClientID: "id"}
	if err != nil || account.Identity != want {
		t.Errorf("the worker reads the identity %+v, %v: want %+v", account.Identity, err, want)
	}
	if name := c.App.Name(); name != "async-caller-abc" {
		t.Errorf("the name of the app is %s", name)
	}
	// The platform waits until the longest call has ended, so no call is made twice when a replica ends.
	seconds, _ := strconv.Atoi(mustMatch(t, text, `\n +terminationGracePeriodSeconds: (\d+)\n`)[0])
	if time.Duration(seconds)*time.Second < c.Grace {
		t.Errorf("the platform kills a worker after %d s, which waits %v for its calls", seconds, c.Grace)
	}
	page := oneLine(read(t, workerPage))
	for _, said := range []string{
		fmt.Sprintf("lets the platform wait %d s", seconds),
		"| longest call | 270 s | " + work.LongestCall.String() + ",",
		fmt.Sprintf("renewed while the function runs | %.0f minutes, never renewed", work.Lease.Minutes()),
		fmt.Sprintf("which take %.0f minutes", 5*work.Lease.Minutes()), // five crashes, as maxDequeueCount says
	} {
		if !strings.Contains(page, said) {
			t.Errorf("the page does not say %q", said)
		}
	}
	if c.App.Functions.Host.Queues.MaxDequeueCount != 5 {
		t.Error("the page says what five crashes do")
	}
}

// azdVariable matches a value that azd takes from its environment, with a default.
var azdVariable = regexp.MustCompile(`^\$\{([A-Z_]+)=([^}]*)\}$`)

// TestWorkerParameters: the parameters for azd have the defaults of the template, each in a variable of its own, and
// the page has both. azd asks for the image, which has no default.
func TestWorkerParameters(t *testing.T) {
	text, page := read(t, workerTemplate), read(t, workerPage)
	defaults := map[string]string{}
	for _, param := range regexp.MustCompile(`(?m)^param (\w+) .*?(?: = (.*))?$`).FindAllStringSubmatch(text, -1) {
		defaults[param[1]] = strings.Trim(param[2], "'")
	}
	var variables []string
	for name, value := range readParameters(t, workerParameters) {
		declared, exists := defaults[name]
		if !exists {
			t.Errorf("%s: the template has no parameter %s", workerParameters, name)
		}
		list, isList := value.([]any)
		if isList && len(list) == 1 {
			value, declared = list[0], ""
		}
		written, isText := value.(string)
		switch variable := azdVariable.FindStringSubmatch(written); {
		case variable != nil:
			variables = append(variables, variable[1])
			if variable[2] != declared {
				t.Errorf("%s: %s is %s, and in the template %s", workerParameters, name, variable[2], declared)
			}
		case written == "${AZURE_ENV_NAME}" || written == "${IMAGE}":
			variables = append(variables, strings.Trim(written, "${}"))
		case isText || name != "settings" && name != "routedQueues":
			t.Errorf("%s: %s is %v, want a variable", workerParameters, name, value)
		}
	}
	compare(t, "variables", slices.Compact(slices.Sorted(slices.Values(variables))), variables)
	if defaults["image"] != "" {
		t.Error("the image has a default")
	}
	short := strings.NewReplacer("{}", "none", "[]", "none", "resourceGroup().location", "the group's",
		"operatorPrincipalId == deployer().objectId && empty(deployer().userPrincipalName) ? "+
			"'ServicePrincipal' : 'User", "yours", "deployer().objectId", "yours")
	var declared []string
	for name, value := range defaults {
		switch {
		case name == "image":
			value = "required"
		case value == "":
			value = "none"
		}
		declared = append(declared, "`"+name+"` | "+short.Replace(value))
	}
	compare(t, "parameters of the page", group(page, "(?m)^\\| (`\\w+` \\| [^|\n]*?) \\| [^|\n]*\\| "), declared)
	var named []string
	for _, row := range group(page, "(?m)^\\| `\\w+` \\| [^|\n]*? \\| ([^|\n]*?) \\| ") {
		named = append(named, group(row, "`(\\w+)`")...)
	}
	compare(t, "variables of the page", named, variables)
	outputs := group(text+read(t, template), `(?m)^output (\w+) `) // an app of main.bicep can move to a worker
	for _, used := range group(page, `(?:properties\.outputs\.|azd env get-value )(\w+)`) {
		if !slices.Contains(outputs, used) {
			t.Errorf("the page uses the output %s, which no template has", used)
		}
	}
}
