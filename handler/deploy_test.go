package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/route"
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

// TestTemplateJudgesQueues: the template refuses in routedQueues what routes.json cannot have. A poison queue in it
// would be made twice.
func TestTemplateJudgesQueues(t *testing.T) {
	longest, shortest := 0, 0
	for length := range 100 {
		name := strings.Repeat("a", length)
		if _, err := route.Parse(fmt.Appendf(nil, `{%q: {"url": "https://t.example/"}}`, name), nil); err == nil {
			longest = length
			if shortest == 0 {
				shortest = length
			}
		}
	}
	text := read(t, template)
	mustMatch(t, text, fmt.Sprintf(`queueName => length\(queueName\) < %d \|\| length\(queueName\) > %d \|\| `,
		shortest, longest))
	const characters = "abcdefghijklmnopqrstuvwxyz0123456789-"
	mustMatch(t, text, `queueName => !empty\(filter\(.*, i => !contains\('`+characters+
		`', substring\(queueName, i, 1\)`)
	for name, part := range map[string]string{
		"-orders": "startsWith(queueName, '-')", "orders-": "endsWith(queueName, '-')",
		"orders--in": "contains(queueName, '--')", "orders-poison": "endsWith(queueName, '-poison')",
		"async-caller-1": "contains(queues, queueName)", "Orders": "", "orders_in": "", "örders": "",
	} {
		if _, err := route.Parse(fmt.Appendf(nil, `{%q: {"url": "https://t.example/"}}`, name), nil); err == nil {
			t.Errorf("routes.json can have %s", name)
		}
		if !strings.Contains(text, part) || part == "" && strings.Trim(name, characters) == "" {
			t.Errorf("the template does not refuse %s: want %s", name, part)
		}
	}
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

// azdVariable matches a value that azd takes from its environment, with a default.
var azdVariable = regexp.MustCompile(`^\$\{([A-Z_]+)=([^}]*)\}$`)

// TestParameterFiles: an environment of azd needs no edited file, because each parameter in which environments differ
// is a variable of its own. Both files have the defaults of the template. The variable of privateStorage has none: azd
// asks for it, because a default would open a closed account.
func TestParameterFiles(t *testing.T) {
	text, az := read(t, template), readParameters(t, azParameters)
	variables := map[string]string{}
	// value returns the default of a parameter of azd, as a file for az has it.
	value := func(name string, v any) any {
		written, isText := v.(string)
		if !isText {
			return v
		}
		variable := azdVariable.FindStringSubmatch(written)
		if variable == nil {
			t.Fatalf("%s: %s is %s, want a variable with a default", azdParameters, name, written)
		}
		if other, taken := variables[variable[1]]; taken {
			t.Errorf("%s: %s and %s are the same variable", azdParameters, name, other)
		}
		variables[variable[1]] = name
		var number any
		if err := json.Unmarshal([]byte(variable[2]), &number); err == nil {
			return number // azd converts the text of a number or boolean
		}
		return variable[2]
	}
	azd := map[string]any{}
	for name, v := range readParameters(t, azdParameters) {
		switch v := v.(type) {
		case map[string]any: // the members of privateDnsZoneIds; empty ones are none
			for member, id := range v {
				if value(name+"."+member, id) != "" {
					t.Errorf("%s: %s.%s is not empty", azdParameters, name, member)
				}
			}
			azd[name] = map[string]any{}
		case []any: // the ids of action groups
			for _, id := range v {
				if value(name, id) != "" {
					t.Errorf("%s: %s is not empty", azdParameters, name)
				}
			}
			azd[name] = []any{}
		case string:
			switch v {
			case "${AZURE_ENV_NAME}": // which azd always sets
			case "${PRIVATE_STORAGE}":
				variables["PRIVATE_STORAGE"], azd[name] = name, false
			default:
				azd[name] = value(name, v)
			}
		}
	}
	if diff := cmp.Diff(az, azd); diff != "" {
		t.Errorf("parameters (-%s +%s):\n%s", azParameters, azdParameters, diff)
	}
	if strings.Contains(read(t, azParameters), "$"+"{") {
		t.Errorf("%s has variables, which az does not know", azParameters)
	}
	for name, v := range az {
		if name == "privateStorage" {
			continue
		}
		declared := mustMatch(t, text, `(?m)^param `+name+` .*? = (.*)$`)[0]
		written := strings.ReplaceAll(fmt.Sprint(v), "map[]", "{}")
		if name != "maximumInstanceCount" && strings.Trim(declared, "'") != written {
			t.Errorf("%s: %s is %v, and in the template %s", azParameters, name, v, declared)
		}
	}
	for _, name := range []string{
		"name", "plan", "storageSku", "zoneRedundant", "virtualNetworkPrefix", "subnetId", "endpointSubnetId",
		"privateDnsZoneIds.blob", "privateStorage", "privateApp", "maximumInstanceCount", "instanceMemoryMB",
		"dailyQuotaGb", "alertEmail", "viewerGroupId",
	} {
		if !slices.Contains(slices.Collect(maps.Values(variables)), name) {
			t.Errorf("%s: %s is no variable, so that two environments need an edited file", azdParameters, name)
		}
	}
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

// TestTemplateStyle: what the linter of Bicep demands, as far as text shows it.
func TestTemplateStyle(t *testing.T) {
	text := readTemplates(t)
	declared := group(text, `(?m)^(?:param|var|output) (\w+)`)
	described := group(text, `(?m)^@description\('.+'\)\n(?:@.*\n)*(?:param|var|output) (\w+)`)
	compare(t, "declarations with a description of one line", declared, described)
	oldest := map[string]string{
		"Microsoft.Web": "2025-03-01", "Microsoft.Storage": "2026-04-01", "Microsoft.Network": "2026-01-01",
		"Microsoft.OperationalInsights": "2026-03-01", "Microsoft.Network/privateDnsZones": "2024-06-01",
		"Microsoft.Insights/scheduledQueryRules": "2026-03-01", "Microsoft.App": "2025-01-01",
	}
	const categories = "Microsoft.Insights/diagnosticSettings@2021-05-01-preview" // no other version has any
	for _, resource := range resourcePattern.FindAllStringSubmatch(text, -1) {
		least, listed := oldest[resource[2]+resource[3]]
		if !listed {
			least = oldest[resource[2]]
		}
		name := resource[2] + resource[3] + "@" + resource[4]
		if resource[4] < least || strings.HasSuffix(resource[4], "-preview") && name != categories {
			t.Errorf("%s has the API version %s, want %s or later, and no preview", resource[1], resource[4], least)
		}
	}
	if found := group(text, `(?m)^ +(kind: \w+ \?.*|name: endpoint)$`); found != nil {
		t.Errorf("Bicep does not check the properties of a resource whose kind or name is conditional: %s", found)
	}
}

// TestTemplateResources: calls survive a failed zone and a deletion by mistake, a closed storage account is reachable
// for the app, and each role names the kind of who has it.
func TestTemplateResources(t *testing.T) {
	text := read(t, template) + read(t, alertsModule)
	resources := map[string]string{}
	for _, resource := range resourcePattern.FindAllStringSubmatch(text, -1) {
		resources[resource[1]] = strings.Join(strings.Fields(resource[0]), " ")
	}
	for name, wanted := range map[string][]string{
		// durability
		"storage": {"sku: { name: storageSku }", "publicNetworkAccess: closed ? 'Disabled' : 'Enabled'"},
		"lock":    {"if (deleteLock)", "scope: storage", "level: 'CanNotDelete'"},
		// One plan for each kind: Bicep checks the properties only if it knows the kind.
		"flexPlan":     {"= if (flex) {", "kind: 'functionapp'", "zoneRedundant: zoneRedundant"},
		"premiumPlan":  {"= if (!flex) {", "kind: 'elastic'", "zoneRedundant: zoneRedundant", "capacity: premiumInstances"},
		"ftpPasswords": {"= if (!flex) {", "name: 'ftp'", "allow: false"},
		"scmPasswords": {"= if (!flex) {", "name: 'scm'", "allow: false"},
		// network
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
		// The same alert of two apps must be told apart.
		"alert": {"name: '${name}-${rule.name}-${token}'", "displayName: '${name}-${token}: ${rule.title}'"},
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
	for _, line := range []string{
		"  { name: 'blob', zoneId: privateDnsZoneIds.?blob ?? '' }",
		"  { name: 'queue', zoneId: privateDnsZoneIds.?queue ?? '' }",
		"  { name: 'table', zoneId: privateDnsZoneIds.?table ?? '' }",
		"var endpointsId = ownNetwork ? endpointSubnet.id : endpointSubnetId",
		"var canHaveEndpoints = ownNetwork || (!empty(subnetId) && !empty(endpointSubnetId))",
		"              : [cidrSubnet(virtualNetworkPrefix, 26, 0), cidrSubnet(virtualNetworkPrefix, 26, 1)]",
		"        maximumInstanceCount: mostInstances",
		"      dailyQuotaGb: logQuotaGb",
		// azd asks for a parameter without a value and a default, and a pipeline stops.
		"param privateStorage bool",
		"param maximumInstanceCount int = plan == 'FlexConsumption' ? 40 : 20",
		// A pipeline is no user. For another id than the deployer's nothing is known.
		"param operatorPrincipalType string = operatorPrincipalId == deployer().objectId && " +
			"empty(deployer().userPrincipalName) ? 'ServicePrincipal' : 'User'",
		"    actions: {\n        actionGroups: concat(filter(actionGroupIds, id => !empty(id)), " +
			"empty(alertEmail) ? [] : [actionGroup.id])",
		"param settings { *: string } = {}",
		"param routedQueues string[] = []",
		"output AZURE_LOCATION string = location",
		"output AZURE_TENANT_ID string = tenant().tenantId",
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("the template does not have %q", line)
		}
	}
}

// TestNamesOfResources: two apps in one resource group share no resource, except private zones, which have one name.
func TestNamesOfResources(t *testing.T) {
	isOfApp := regexp.MustCompile(`^(resourceName|account|guid\(.*|'.*\$\{token\}')$`)
	isShared := map[string]bool{"zone": true, "appZone": true}
	text := readTemplates(t)
	for _, resource := range resourcePattern.FindAllStringSubmatch(text, -1) {
		name := group(resource[0], `(?m)^ +name: (.*)$`)[0]
		parent := append(group(resource[0], `(?m)^ +(?:parent|scope): (\w+)`), "")[0]
		isChild := parent != "" && !isShared[parent]
		if resource[5] == "" && !isChild && !isShared[resource[1]] && !isOfApp.MatchString(name) {
			t.Errorf("the resource %s of two apps has the name %s", resource[1], name)
		}
	}
	mustMatch(t, text, `\n  : '\$\{name\}-\$\{token\}'\n`)
	mustMatch(t, text, `\nvar resourceName = '\$\{name\}-\$\{token\}'\n`)
	// Both templates in one group with one name share nothing.
	compare(t, "tokens", group(text, `\nvar token = (.*)\n`), []string{
		"uniqueString(resourceGroup().id, name)", "uniqueString(resourceGroup().id, name, 'worker')",
	})
}

// TestTemplateRefusals: parameters that contradict each other, or that Azure refuses later, are refused with a text
// that names them, before anything is made. The workflow provokes each refusal.
func TestTemplateRefusals(t *testing.T) {
	text := strings.Join(strings.Fields(read(t, template)), " ")
	refusals := map[string]string{} // conditions by texts
	for _, refusal := range regexp.MustCompile(`([^?:]+) \? fail\('(.+?)'\)`).FindAllStringSubmatch(text, -1) {
		refusals[refusal[2]] = refusal[1]
	}
	for _, condition := range []string{
		"!empty(virtualNetworkPrefix) && !empty('${subnetId}${endpointSubnetId}')",
		"parseCidr(virtualNetworkPrefix).cidr > 25",
		"privateStorage && !canHaveEndpoints",
		"privateApp && !canHaveEndpoints",
		"flex && contains(substring(subnetId, lastIndexOf(subnetId, '/') + 1), '_')",
		"startsWith(name, '-') || !empty(refusedCharacters)",
		"maximumInstanceCount < 3",
		"flex && maximumInstanceCount < 40",
		"!contains(virtualNetworkPrefix, '.')",
		"'${parseCidr(virtualNetworkPrefix).network}/${parseCidr(virtualNetworkPrefix).cidr}' != virtualNetworkPrefix",
		"!empty(endpointSubnetId) && !privateStorage && !privateApp",
		"!privateStorage && !empty(join(map(storageServices, service => service.zoneId), ''))",
		"!privateApp && !empty(sitesZoneId)",
		"dailyQuotaGb == 0",
		"!empty(concat(oddQueues, refusedQueues))",
	} {
		isCondition := func(of string) bool { return strings.HasSuffix(of, condition) }
		if !slices.ContainsFunc(slices.Collect(maps.Values(refusals)), isCondition) {
			t.Errorf("the template does not refuse if %s", condition)
		}
	}
	for _, refusal := range group(read(t, workerTemplate), `fail\('(.+?)'\)`) {
		refusals[refusal] = "" // TestWorkerTemplate
	}
	provoked := map[string]bool{}
	for _, c := range readSnapshots(t) {
		if _, exists := refusals[c.Refusal]; c.Refusal != "" && !exists {
			t.Errorf("%s: the template does not refuse with %q", c.Name, c.Refusal)
		}
		provoked[c.Refusal] = true
	}
	for message := range refusals {
		if !provoked[message] {
			t.Errorf("no case of snapshots.json provokes %q", message)
		}
	}
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

// TestSnapshots: the workflow makes snapshots of networks that are made and that exist, closed ones among them, and of
// zone redundancy on each plan. A case has parameters of the template, and types that the template makes.
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
	has := func(c snapshot, name string, value any) bool { return cmp.Equal(c.Parameters[name], value) }
	for what, matches := range map[string]func(snapshot) bool{
		"own and closed": func(c snapshot) bool {
			return has(c, "privateStorage", true) && c.Parameters["virtualNetworkPrefix"] != nil
		},
		"existing and closed": func(c snapshot) bool {
			return has(c, "privateStorage", true) && c.Parameters["endpointSubnetId"] != nil
		},
		"zone redundant": func(c snapshot) bool {
			return has(c, "zoneRedundant", true) && c.Parameters["plan"] == nil
		},
		"zone redundant on Elastic Premium": func(c snapshot) bool {
			return has(c, "zoneRedundant", true) && has(c, "plan", "ElasticPremium")
		},
	} {
		isCase := func(c snapshot) bool { return c.Refusal == "" && matches(c) }
		if !slices.ContainsFunc(cases, isCase) {
			t.Errorf("no snapshot is %s", what)
		}
	}
	script := read(t, "../.ci/snapshots")
	for _, command := range []string{"for file in *.parameters.json", "bicep snapshot", "../.ci/snapshots.json"} {
		if !strings.Contains(script, command) {
			t.Errorf(".ci/snapshots does not run %q", command)
		}
	}
}

// TestTemplateInWorkflow: the workflow builds the templates, lints them with all rules as errors, and makes snapshots.
func TestTemplateInWorkflow(t *testing.T) {
	var config struct {
		Analyzers struct {
			Core struct {
				Enabled bool
				Rules   map[string]struct{ Level string }
			}
		}
	}
	if err := json.Unmarshal([]byte(read(t, "../.ci/bicepconfig.json")), &config); err != nil {
		t.Fatal(err)
	}
	core := config.Analyzers.Core
	if !core.Enabled {
		t.Error("the linter is off")
	}
	for rule, setting := range core.Rules {
		want := "error"
		if rule == "use-recent-api-versions" {
			want = "warning" // it depends on the date, so it must not stop a change of something else
		}
		if setting.Level != want {
			t.Errorf("the rule %s has the level %s, want %s", rule, setting.Level, want)
		}
	}
	for _, rule := range []string{
		"no-unused-params", "use-description-params", "use-description-vars", "use-description-outputs",
		"use-recent-api-versions", "use-user-defined-types",
	} {
		if _, exists := core.Rules[rule]; !exists {
			t.Errorf("the rule %s is missing", rule)
		}
	}
	job := mustMatch(t, read(t, "../.github/workflows/ci.yml"), `(?s)\n  template:\n(.*?)\n  \w+:\n`)[0]
	for _, command := range []string{
		"cp ../.ci/bicepconfig.json .", "az bicep build --file main.bicep", "az bicep build --file worker.bicep",
		"for file in *.bicep; do az bicep lint --file",
		"run: ../.ci/snapshots\n",
	} {
		if !strings.Contains(job, command) {
			t.Errorf("the job template does not run %q", command)
		}
	}
}

// TestAzd: azd finds the app by its tag, and deploys the zip that its hook makes.
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
	released := group(read(t, "../CHANGELOG.md"), `\n## \[(\d\S*)\]`)
	compare(t, "version", []string{"async-caller@" + released[0]}, group(azd, `\nmetadata:\n  template: (\S+) `))
	if !strings.HasPrefix(azd, "# yaml-language-server: $schema=https://") {
		t.Error("azure.yaml does not name its schema in the first line")
	}
}

// TestDevContainer: the container has what `make check`, `make start` and a deployment need, in the versions of the
// workflow.
func TestDevContainer(t *testing.T) {
	container, workflow := read(t, "../.devcontainer/devcontainer.json"), read(t, "../.github/workflows/ci.yml")
	for _, tool := range []string{"go", "node"} {
		version := group(container, `features/`+tool+`:1": \{ "version": "(\S+)" \}`)
		compare(t, tool, group(workflow, tool+`-version: "(\S+)"`)[:1], version)
	}
	for _, tool := range []string{"/azure-cli:", "/azd:", "npm install --global azure-functions-core-tools@4"} {
		if !strings.Contains(container, tool) {
			t.Errorf("the container does not have %s", tool)
		}
	}
}

// TestDeployReadme: the page has the parameters of the template with their defaults, outputs that exist, and what the
// Dockerfile does.
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
	image := read(t, "../deploy/Dockerfile")
	user := mustMatch(t, image, `\nUSER ([1-9]\d*):[1-9]\d*\n`)[0]
	port := mustMatch(t, image, `http://\+:(\d+)`)[0]
	functions, err := filepath.Glob("../functions/*/function.json")
	if err != nil {
		t.Fatal(err)
	}
	zones := fmt.Sprintf("for each of the %d functions", len(functions)) // Flex Consumption scales each of its own
	for _, promise := range []string{
		"user " + user + ", not as root", "port " + port, zones, "`azd down` deletes",
		"calls leave through the network", "az provider register -n Microsoft.App",
		"az functionapp list-flexconsumption-locations --zone-redundant=true", "`cdn.functions.azure.com`",
		"`Microsoft.Network/virtualNetworks/subnets/join/action`", "`Microsoft.Network/privateDnsZones/join/action`",
		"azd env new prod", "Never give az main.parameters.json", "opens a closed account",
		"The range is /25 or larger", "azd asks for `PRIVATE_STORAGE`", "can come before its records",
		"This plan has not been tried",
		"without an underscore in its name",
	} {
		if !strings.Contains(strings.Join(strings.Fields(page), " "), promise) {
			t.Errorf("the page does not say %q", promise)
		}
	}
	if !strings.Contains(read(t, "../README.md"), "`azd down`") {
		t.Error("README does not warn that azd down deletes calls")
	}
	root := mustMatch(t, image, `AzureWebJobsScriptRoot=(\S+)`)[0]
	mustMatch(t, image, `\nCOPY --chmod=755 \. `+root+`/\n`) // the user must be able to start the files
	noKeys := []string{"allowSharedKeyAccess: false", "allowBlobPublicAccess: false", "DisableLocalAuth: true"}
	for _, line := range noKeys {
		if !strings.Contains(text, "\n    "+line+"\n") {
			t.Errorf("the page promises that there are no keys: want %s in the template", line)
		}
	}
}
