package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
)

// template is read as text, to compare it with the code and the pages. Bicep's compiler and linter check it in the
// repository's workflow.
const template = "../deploy/main.bicep"

// alertsModule has the alerts of both templates.
const alertsModule = "../deploy/alerts.bicep"

// group returns the first group of each match of a pattern.
func group(text, pattern string) (found []string) {
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	return found
}

// mustMatch returns the groups of the only match of a pattern.
func mustMatch(t *testing.T, text, pattern string) []string {
	t.Helper()
	found := regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1)
	if len(found) != 1 {
		t.Fatalf("%d matches of %s, want 1", len(found), pattern)
	}
	return found[0][1:]
}

// compare reports the differences of two lists, whose order does not matter.
func compare(t *testing.T, what string, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got))); diff != "" {
		t.Errorf("%s (-want +deploy):\n%s", what, diff)
	}
}

// TestTemplateQueues: the queue trigger creates no queue, so the template makes all of them, and those of routes.
func TestTemplateQueues(t *testing.T) {
	paths, err := filepath.Glob("../functions/*/function.json")
	if err != nil {
		t.Fatal(err)
	}
	var bound []string
	for _, path := range paths {
		bound = append(bound, group(read(t, path), `"queueName": "(.*)"`)...)
	}
	text := read(t, template)
	made := group(mustMatch(t, text, `(?s)\nvar queues = \[\n(.*?)\]\n`)[0], `'(.+)'`)
	compare(t, "queues of functions/", bound, made)
	compare(t, "queues of senders", envelope.Queues(), made)
	// A queue that is named twice must be one resource.
	mustMatch(t, text, `\n  : union\(queues, routedQueues\)\n`)
	names := group(text, `/queues@\S+ = \[for queueName in allQueues: \{\n`+
		`  parent: queueService\n  name: (.+)\n`)
	compare(t, "resources", []string{"queueName", "'${queueName}" + storage.PoisonSuffix + "'"}, names)
	tables := group(text, `/tables@\S+ = \{\n  parent: tableService\n  name: '(.+)'\n`)
	made = []string{storage.ScheduledTable, storage.RunTable, storage.AppTable, storage.SightTable}
	compare(t, "tables", made, tables)
}

// TestTemplateSettings: the handler accepts the app settings, and reads those of the storage account.
func TestTemplateSettings(t *testing.T) {
	text := read(t, template)
	var environ []string
	for _, name := range []string{"identitySettings", "logSettings", "premiumSettings"} {
		object := mustMatch(t, text, `(?s)\nvar `+name+` = \{\n(.*?)\n\}\n`)[0]
		for _, member := range group(object, `(?m)^  (.+)$`) {
			name, value, _ := strings.Cut(member, ": ")
			environ = append(environ, name+"="+strings.Trim(value, "'"))
		}
	}
	environ = append(environ, "AzureWebJobsStorage__accountName=account") // in place of an expression
	declared := group(text, `(?m)^param (\w+) `)
	for _, path := range []string{azdParameters, azParameters, "../deploy/premium.parameters.json"} {
		parameters := readParameters(t, path)
		for name := range parameters {
			if !slices.Contains(declared, name) {
				t.Errorf("%s: the template has no parameter %s", path, name)
			}
		}
		app := slices.Clone(environ)
		settings, _ := parameters["settings"].(map[string]any)
		for name, value := range settings {
			app = append(app, fmt.Sprintf("%s=%v", name, value))
		}
		if _, err := config.Load(app, nil); err != nil {
			t.Errorf("%s: the handler refuses the settings: %v", path, err)
		}
		if _, err := functionapp.LoadHost("..", app); err != nil {
			t.Errorf("%s: the settings conflict with host.json: %v", path, err)
		}
		account, err := azure.ParseConnection(app, storage.ConnectionName)
		want := azure.Identity{ManagedIdentity: true, ClientID: "identity.properties.clientId"}
		if err != nil || account.Identity != want {
			t.Errorf("%s: the handler reads the identity %+v, %v: want %+v", path, account.Identity, err, want)
		}
	}
}

// azdParameters has variables of azd. azParameters has none: az would pass "${NAME=}" as a value.
const azdParameters, azParameters = "../deploy/main.parameters.json", "../deploy/az.parameters.json"

// readParameters returns the parameters of a file by name.
func readParameters(t *testing.T, path string) map[string]any {
	t.Helper()
	var file struct {
		Parameters map[string]struct{ Value any }
	}
	if err := json.Unmarshal([]byte(read(t, path)), &file); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	parameters := map[string]any{}
	for name, parameter := range file.Parameters {
		parameters[name] = parameter.Value
	}
	return parameters
}

// TestTemplateRoles: the identity of the app, operators and viewers have the roles that README lists, and no others.
// Those that the handler asks for are among them. A viewer has no role that writes.
func TestTemplateRoles(t *testing.T) {
	text := read(t, template)
	ids := map[string]string{ // https://learn.microsoft.com/azure/role-based-access-control/built-in-roles
		"974c5e8b-45b9-4653-ba55-5f855dd0fb88": storage.QueueRole,
		"0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3": storage.TableRole,
		"b7e6dc6d-f1e8-4753-8033-0f276bb0955b": "Storage Blob Data Owner",
		"3913510d-42f4-4e42-8a64-420c390055eb": "Monitoring Metrics Publisher",
		"ba92f5b4-2d11-453d-a403-e96b0029c9fe": "Storage Blob Data Contributor",
		"19e7f393-937e-4f77-808e-94535e297925": "Storage Queue Data Reader",
		"76199698-9eea-4c19-bc75-cec21354c6b6": "Storage Table Data Reader",
	}
	role := func(variable string) string { return ids[mustMatch(t, text, `\nvar `+variable+` = '(.+)'\n`)[0]] }
	metrics := mustMatch(t, text, `(?s)\nresource insightsRole .*?scope: insights\n.*?roleDefinitions', (\w+)\)`)[0]
	got := []string{role(metrics) + " | Application Insights"}
	onStorage := func(resource string) (names []string) {
		list := mustMatch(t, text, `\nresource `+resource+` .*for role in \[(.*?)\].*\n  scope: storage\n`)[0]
		for variable := range strings.SplitSeq(list, ", ") {
			names = append(names, role(variable))
		}
		return names
	}
	for _, name := range onStorage("storageRole") {
		got = append(got, name+" | the storage account")
	}
	asked := group(product(t, "internal/operate/doctor/*.go"), `"role (Storage [\w ]+)"`)
	for _, name := range append(asked, storage.QueueRole, storage.TableRole) {
		if !slices.Contains(got, name+" | the storage account") {
			t.Errorf("the identity does not get the role %s, which the handler asks for", name)
		}
	}
	section := mustMatch(t, read(t, "../deploy/README.md"), `(?s)\n## Roles\n(.*?)\n## `)[0]
	compare(t, "roles", group(section, `(?m)^\| ((?:Storage|Monitoring) .+? \| .+?) \|`), got)
	for parameter, resource := range map[string]string{
		"operatorPrincipalId": "operatorRole", "viewerGroupId": "viewerRole",
	} {
		listed := mustMatch(t, section, "\n\\| \\w+, `"+parameter+"` \\| (.*?) \\|")[0]
		compare(t, "roles of "+parameter, strings.Split(listed, ", "), onStorage(resource))
	}
	for _, name := range onStorage("viewerRole") {
		if !strings.HasSuffix(name, " Data Reader") {
			t.Errorf("a viewer has the role %s", name)
		}
	}
}

// resourcePattern matches a resource of the template: name, provider, first part of the type, version, and whether it
// exists.
var resourcePattern = regexp.MustCompile(
	`(?ms)^resource (\w+) '([\w.]+)(/\w+)[\w/]*@([\w-]+)' (existing )?= .*?^(?:\}|\]|\}\])$`)

// readTemplates returns the text of all templates and modules.
func readTemplates(t *testing.T) string {
	t.Helper()
	paths, err := filepath.Glob("../deploy/*.bicep")
	if err != nil || len(paths) < 2 {
		t.Fatal(paths, err)
	}
	var text strings.Builder
	for _, path := range paths {
		text.WriteString(read(t, path))
	}
	return text.String()
}

// TestTemplateNetworks: a closed storage account or app is closed, and reachable in its network. There are no keys, and
// each role names the kind of who has it.
func TestTemplateNetworks(t *testing.T) {
	text := read(t, template)
	resources := map[string]string{}
	for _, resource := range resourcePattern.FindAllStringSubmatch(text, -1) {
		resources[resource[1]] = strings.Join(strings.Fields(resource[0]), " ")
	}
	for name, wanted := range map[string][]string{
		"storage": {
			"publicNetworkAccess: closed ? 'Disabled' : 'Enabled'", "allowSharedKeyAccess: false",
			"allowBlobPublicAccess: false",
		},
		"insights":  {"DisableLocalAuth: true"},
		"appSubnet": {"parent: network", "addressPrefix: subnetPrefixes[0]", "serviceName: flex ? "},
		"endpointSubnet": {
			"parent: network", "addressPrefix: subnetPrefixes[1] defaultOutboundAccess: false",
			"dependsOn: [appSubnet]",
		},
		"endpoint": {
			"in storageServices: if (closed) {", "id: endpointsId", "privateLinkServiceId: storage.id",
			"groupIds: [service.name]",
		},
		"appEndpoint": {"= if (appClosed) {", "id: endpointsId", "privateLinkServiceId: app.id", "groupIds: ['sites']"},
		// Azure refuses a network that is linked to two zones of one name: zones are only for a network of our own.
		"zone": {
			"in storageServices: if (closed && ownNetwork && empty(service.zoneId)) {",
			"'privatelink.${service.name}.${environment().suffixes.storage}'",
		},
		"zoneLink": {
			"in storageServices: if (closed && ownNetwork && empty(service.zoneId)) {",
			"parent: zone[i] name: resourceName", "id: network.id",
		},
		"appZone": {"= if (appClosed && ownNetwork && empty(sitesZoneId)) {", "'privatelink.azurewebsites.net'"},
		"appZoneLink": {
			"= if (appClosed && ownNetwork && empty(sitesZoneId)) {",
			"parent: appZone name: resourceName", "id: network.id",
		},
		// An endpoint in a network of others has a zone group only for a given zone.
		"zoneGroup": {
			"in storageServices: if (closed && (ownNetwork || !empty(service.zoneId))) {", "parent: endpoint[i]",
			"privateDnsZoneId: empty(service.zoneId) ? zone[i].id : service.zoneId",
		},
		"appZoneGroup": {
			"= if (appClosed && (ownNetwork || !empty(sitesZoneId))) {", "parent: appEndpoint",
			"privateDnsZoneId: empty(sitesZoneId) ? appZone.id : sitesZoneId",
		},
		"app": {
			"publicNetworkAccess: appClosed ? 'Disabled' : 'Enabled'",
			"virtualNetworkSubnetId: inNetwork ? callSubnetId : null", "minimumElasticInstanceCount: premiumInstances",
			"outboundVnetRouting: inNetwork && !flex ? { applicationTraffic: true } : null",
			"functionsRuntimeScaleMonitoringEnabled: closed", "endpointSubnet zoneLink endpoint zoneGroup ]",
		},
		// roles
		"storageRole":  {"principalType: 'ServicePrincipal'"},
		"insightsRole": {"principalType: 'ServicePrincipal'"},
		"operatorRole": {"principalType: operatorPrincipalType"},
		"viewerRole":   {"if (!empty(viewerGroupId))", "principalId: viewerGroupId principalType: 'Group'"},
	} {
		for _, part := range wanted {
			if !strings.Contains(resources[name], part) {
				t.Errorf("the resource %s does not have %q", name, part)
			}
		}
	}
	if strings.Contains(resources["network"], "subnets") {
		t.Error("the network lists subnets, so provisioning again deletes others")
	}
}

// TestTemplateRefusals: parameters that contradict each other, or that Azure refuses later, are refused before anything
// is made. A case of snapshots.json provokes each refusal.
func TestTemplateRefusals(t *testing.T) {
	refusals := group(oneLine(read(t, template)+read(t, workerTemplate)), `fail\('(.+?)'\)`)
	var provoked []string
	for _, c := range readSnapshots(t) {
		if c.Refusal != "" {
			provoked = append(provoked, c.Refusal)
		}
	}
	compare(t, "refusals", slices.Compact(slices.Sorted(slices.Values(provoked))), refusals)
}

// snapshot is a case of .ci/snapshots.json: parameters, and what the resources are like, or why they are refused.
type snapshot struct {
	Name       string
	Template   string // worker, or main
	Parameters map[string]any
	Conditions []string
	Refusal    string
}

func readSnapshots(t *testing.T) (cases []snapshot) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, "../.ci/snapshots.json")), &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

// TestSnapshots: a case of snapshots.json has parameters of the template, and types that the template makes.
func TestSnapshots(t *testing.T) {
	cases := readSnapshots(t)
	for _, c := range cases {
		text := read(t, template)
		if c.Template != "" {
			text = read(t, "../deploy/"+c.Template+".bicep")
		}
		for name := range c.Parameters {
			if !strings.Contains(text, "\nparam "+name+" ") {
				t.Errorf("%s: the template has no parameter %s", c.Name, name)
			}
		}
		if (len(c.Conditions) == 0) != (c.Refusal != "") {
			t.Errorf("%s: want either conditions or a refusal", c.Name)
		}
		for _, typ := range group(strings.Join(c.Conditions, " "), `"(Microsoft\.[\w./]+)"`) {
			if !strings.Contains(readTemplates(t), "'"+typ+"@") {
				t.Errorf("%s: no template makes %s", c.Name, typ)
			}
		}
	}
}

// TestAzd: azd finds the app by its tag, and deploys the zip that its hook makes. Its files name the version of the
// first section of CHANGELOG.md, or the next one while that section is unreleased.
func TestAzd(t *testing.T) {
	azd, text := read(t, "../deploy/azure.yaml"), read(t, template)
	for target := range strings.FieldsSeq(mustMatch(t, azd, `run: make -C \.\. (.*)\n`)[0]) {
		if !strings.Contains(read(t, "../Makefile"), "\n"+target+":") {
			t.Errorf("the Makefile has no target %s", target)
		}
	}
	service := mustMatch(t, azd, `\nservices:\n  (.*):\n`)[0]
	compare(t, "service", group(text, `'azd-service-name': '(.*)'`), []string{service})
	archive := mustMatch(t, read(t, "tools/stage/main.go"), `archive = "(.*)"`)[0]
	deployed := mustMatch(t, azd, `azd: deploy (\S+) --from-package \.\./dist/(\S+)`)
	compare(t, "deployment", []string{service, archive}, deployed)
	compare(t, "package", []string{archive}, group(text, `var packageName = '(.*)'`))
	compare(t, "template", []string{"main"}, group(azd, `module: (.*)\n`))
	version := mustMatch(t, azd, `\nmetadata:\n  template: async-caller@(\S+) `)[0]
	worker := read(t, "../deploy/worker/azure.yaml")
	compare(t, "version of the worker", []string{version}, group(worker, `\n  template: async-caller-worker@(\S+) `))
	compare(t, "required azd", group(azd, `\n  azd: (".*")`), group(worker, `\n  azd: (".*")`))
	versions := group(read(t, "../CHANGELOG.md"), `\n## \[(\S+)\]`)
	if versions[0] != "Unreleased" {
		compare(t, "version", versions[:1], []string{version})
	} else if slices.Contains(versions, version) {
		t.Errorf("there are changes after %s, so azure.yaml names the next version", version)
	}
}

// TestDeployReadme: the page has the parameters of the template with their defaults, and outputs that exist.
func TestDeployReadme(t *testing.T) {
	page, text := read(t, "../deploy/README.md"), read(t, template)
	var declared []string
	defaults := strings.NewReplacer("''", "none", "{}", "none", "[]", "none",
		"resourceGroup().location", "the group's",
		"operatorPrincipalId == deployer().objectId && empty(deployer().userPrincipalName) ? "+
			"'ServicePrincipal' : 'User", "yours",
		"deployer().objectId", "yours",
		"plan == 'FlexConsumption' ? 40 : 20", "40, or 20 on Elastic Premium")
	for _, param := range regexp.MustCompile(`(?m)^param (\w+) .*?(?: = (.*))?$`).FindAllStringSubmatch(text, -1) {
		value := "required"
		if param[2] != "" {
			value = strings.Trim(defaults.Replace(param[2]), "'")
		}
		declared = append(declared, "`"+param[1]+"` | "+value)
	}
	compare(t, "parameters", group(page, "(?m)^\\| (`\\w+` \\| [^|]*?) \\| "), declared)
	var variables []string
	for _, row := range group(page, "(?m)^\\| `\\w+` \\| [^|]*? \\| ([^|]*?) \\| ") {
		variables = append(variables, group(row, "`(\\w+)`")...)
	}
	compare(t, "variables of azd", variables, group(read(t, azdParameters), `\$\{(\w+)`))
	outputs := group(text, `(?m)^output ([a-z]\w*) `) // Azure changes the letter case of others
	for _, used := range group(page, `(?:properties\.outputs\.|azd env get-value )(\w+)`) {
		if !slices.Contains(outputs, used) {
			t.Errorf("the page uses the output %s, which the template does not have", used)
		}
	}
}
