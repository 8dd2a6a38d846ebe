package deploytest

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/config"
	"asynccaller/handler/internal/functionapp"
	account "asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
)

const project = "../../.."

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(project, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// files are the files of deploy that belong together, so that a test can change them.
type files struct{ template, flex, premium string }

func readFiles(t *testing.T) files {
	t.Helper()
	return files{read(t, "deploy/main.bicep"), read(t, "deploy/main.parameters.json"), read(t, "deploy/premium.parameters.json")}
}

// everything are parameters that nobody needs to set. With them the template makes every resource that it can.
var everything = map[string]any{
	"virtualNetworkPrefix": "10.20.0.0/24", "operatorPrincipalId": "11111111-2222-3333-4444-555555555555", "alertEmail": "ops@example.com",
	"actionGroupIds": []any{"/subscriptions/x"},
}

// variants are the templates to check: each parameter file, as it is and with everything.
func (f files) variants(t *testing.T, root node) map[string]*template {
	t.Helper()
	variants := map[string]*template{}
	for name, text := range map[string]string{"flex": f.flex, "premium": f.premium} {
		var file struct {
			Parameters map[string]struct{ Value any }
		}
		if err := json.Unmarshal([]byte(text), &file); err != nil {
			t.Fatal(err)
		}
		parameters := map[string]any{}
		for parameter, p := range file.Parameters {
			parameters[parameter] = p.Value
		}
		variants[name] = evaluate(root, parameters)
		maps.Copy(parameters, everything)
		variants[name+" with everything"] = evaluate(root, parameters)
	}
	return variants
}

// check returns everything that is wrong with each of these sets of files.
func check(t *testing.T, all ...files) (found []problems) {
	t.Helper()
	types := map[module]sdkTypes{}
	for _, s := range schemas {
		if _, loaded := types[s.module]; !loaded {
			types[s.module] = s.module.load(t)
		}
	}
	var texts []string
	for _, f := range all {
		texts = append(texts, f.template)
	}
	for i, root := range parse(t, texts, nil).Bicep {
		var p problems
		for name, variant := range all[i].variants(t, root) {
			if len(variant.problems) == 0 {
				checkSchemas(variant, types)
				checkNames(t, variant)
				checkSettings(variant, strings.HasPrefix(name, "flex"))
				checkSecurity(variant)
				checkSiteConfig(variant, strings.HasPrefix(name, "flex"))
				checkAlerts(variant, read(t, "docs/operating.md"))
				checkScale(variant, strings.HasPrefix(name, "flex"))
			}
			for _, problem := range variant.problems {
				p.add("%s: %s", name, problem)
			}
		}
		slices.Sort(p)
		found = append(found, p)
	}
	return found
}

// inTemplate are the members of a resource that Bicep takes for itself.
var inTemplate = []string{"name", "parent", "scope", "dependsOn"}

func checkSchemas(variant *template, types map[module]sdkTypes) {
	for _, r := range variant.Resources {
		s, ok := schemas[r.Type]
		if !ok {
			variant.add("line %d: the resource type and API version %s is not one of the tested ones", r.Line, r.Type)
			continue
		}
		_, version, _ := strings.Cut(r.Type, "@")
		if s.version != "" {
			version = s.version
		}
		if !slices.Contains(types[s.module].versions, version) {
			variant.add("%s has no API version %s", s.module.path, version)
		}
		body := maps.Clone(r.Body)
		for _, name := range inTemplate {
			delete(body, name)
		}
		if r.Body["name"] == nil {
			variant.add("line %d: %s has no name", r.Line, r.Symbol)
		}
		types[s.module].checkNamed(&variant.problems, r.Symbol, body, s.goType)
	}
}

// names returns the names of all resources of a type.
func (t *template) resourceNames(kind string) (names []string) {
	for _, r := range t.ofType(kind) {
		names = append(names, fmt.Sprint(r.Body["name"]))
	}
	slices.Sort(names)
	return names
}

// compare adds a problem for each difference of two lists.
func (t *template) compare(what string, want, got []string) {
	for _, item := range want {
		if !slices.Contains(got, item) {
			t.add("%s: %s is missing", what, item)
		}
	}
	for _, item := range got {
		if !slices.Contains(want, item) {
			t.add("%s: %s is not wanted", what, item)
		}
	}
	if len(got) != len(slices.Compact(slices.Sorted(slices.Values(got)))) {
		t.add("%s: some are there twice: %v", what, got)
	}
}

// appQueues returns the queues that the functions of the app read.
func appQueues(t *testing.T) (queues []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(project, "functions", "*", "function.json"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("functions/ has %d functions: %v", len(paths), err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var file struct{ Bindings []struct{ QueueName string } }
		if err := json.Unmarshal(text, &file); err != nil {
			t.Fatal(err)
		}
		if name := file.Bindings[0].QueueName; name != "" {
			queues = append(queues, name)
		}
	}
	return queues
}

// checkNames: the queue trigger creates no queue, so the template must create all that functions read and their poison queues.
func checkNames(t *testing.T, variant *template) {
	t.Helper()
	var want []string
	for _, name := range appQueues(t) {
		want = append(want, name, name+"-poison")
	}
	slices.Sort(want)
	variant.compare("queues", want, variant.resourceNames("Microsoft.Storage/storageAccounts/queueServices/queues"))
	want = []string{account.RunTable, account.ScheduledTable}
	variant.compare("tables", want, variant.resourceNames("Microsoft.Storage/storageAccounts/tableServices/tables"))
}

// The settings of the Functions host and of the platform that the template makes.
var (
	hostSettings = []string{
		"APPLICATIONINSIGHTS_AUTHENTICATION_STRING", "APPLICATIONINSIGHTS_CONNECTION_STRING",
		"AzureFunctionsJobHost__logging__applicationInsights__samplingSettings__excludedTypes", "AzureFunctionsJobHost__logging__logLevel__Function",
		"AzureWebJobsStorage__accountName", "AzureWebJobsStorage__clientId", "AzureWebJobsStorage__credential",
	}
	// Flex Consumption refuses these.
	premiumSettings = []string{
		"FUNCTIONS_EXTENSION_VERSION", "FUNCTIONS_WORKER_RUNTIME", "WEBSITE_RUN_FROM_PACKAGE", "WEBSITE_RUN_FROM_PACKAGE_BLOB_MI_RESOURCE_ID",
	}
)

// checkSettings compares the app settings with those of the host, and has the product itself read them.
func checkSettings(variant *template, flex bool) {
	found := variant.ofType("Microsoft.Web/sites/config")
	if len(found) != 1 || found[0].Body["name"] != "appsettings" {
		variant.add("want the app settings once")
		return
	}
	want := slices.Clone(hostSettings)
	if !flex {
		want = append(want, premiumSettings...)
	}
	var names, environ []string
	for name, value := range found[0].Body["properties"].(map[string]any) {
		if !strings.HasPrefix(strings.ToUpper(name), config.Prefix) {
			names = append(names, name)
		}
		if _, later := value.(unknown); later {
			value = "placeholder"
		}
		environ = append(environ, fmt.Sprintf("%s=%v", name, value))
	}
	slices.Sort(names)
	variant.compare("settings of the host", want, names)
	if _, err := config.Load(environ, nil); err != nil {
		variant.add("the handler refuses the settings: %v", err)
	}
	if _, err := azure.ParseConnection(environ, account.ConnectionName); err != nil {
		variant.add("the handler refuses the storage account: %v", err)
	}
	if _, err := functionapp.LoadHost(project, environ); err != nil {
		variant.add("the settings spoil host.json: %v", err)
	}
}

// roles are the roles of the identity, by id. docs and errors name them.
var roles = map[string]string{
	"974c5e8b-45b9-4653-ba55-5f855dd0fb88": "Storage Queue Data Contributor",
	"0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3": account.TableRole,
	"b7e6dc6d-f1e8-4753-8033-0f276bb0955b": "Storage Blob Data Owner",
	"3913510d-42f4-4e42-8a64-420c390055eb": "Monitoring Metrics Publisher",
}

// at returns the value at a path of members.
func at(value any, path ...string) any {
	for _, name := range path {
		value = memberOf(value, name)
	}
	return value
}

// checkSecurity: no shared key, no public blob, no password, TLS 1.2, and the identity has its four roles and no more.
func checkSecurity(variant *template) {
	for _, want := range []struct {
		kind, path string
		value      any
	}{
		{"Microsoft.Storage/storageAccounts", "properties.allowSharedKeyAccess", false},
		{"Microsoft.Storage/storageAccounts", "properties.allowBlobPublicAccess", false},
		{"Microsoft.Storage/storageAccounts", "properties.minimumTlsVersion", "TLS1_2"},
		{"Microsoft.Storage/storageAccounts/blobServices/containers", "properties.publicAccess", "None"},
		{"Microsoft.Insights/components", "properties.DisableLocalAuth", true},
		{"Microsoft.Web/sites", "properties.httpsOnly", true},
		{"Microsoft.Web/sites", "properties.siteConfig.minTlsVersion", "1.2"},
		{"Microsoft.Web/sites", "identity.type", "UserAssigned"},
	} {
		found := variant.ofType(want.kind)
		if len(found) == 0 {
			variant.add("there is no %s", want.kind)
		}
		for _, r := range found {
			if got := at(r.Body, strings.Split(want.path, ".")...); got != want.value {
				variant.add("%s: %s is %v: want %v", r.Symbol, want.path, got, want.value)
			}
		}
	}
	var got []string
	for _, r := range variant.ofType("Microsoft.Authorization/roleAssignments") {
		if at(r.Body, "properties", "principalId") == unknown("identity.properties.principalId") {
			id := strings.TrimSuffix(string(at(r.Body, "properties", "roleDefinitionId").(unknown)), ")")
			id = id[strings.LastIndex(id, " ")+1:]
			got = append(got, roles[id]+" on "+string(r.Body["scope"].(unknown)))
		}
	}
	slices.Sort(got)
	variant.compare("roles of the identity", []string{
		"Monitoring Metrics Publisher on insights", "Storage Blob Data Owner on storage", "Storage Queue Data Contributor on storage",
		"Storage Table Data Contributor on storage",
	}, got)
}

// alertText is an alert of docs/operating.md: its title, its interval and its query, indented.
var alertText = regexp.MustCompile(`(?s)\n\d\. ([^.]+)\. (.*?)\n\n((?: {8}[^\n]+\n)+)`)

// intervals are the intervals of alerts in the document, and as Azure writes them.
var intervals = map[string]string{"every 5 minutes": "PT5M", "every 15 minutes": "PT15M", "every hour": "PT1H"}

// checkAlerts: the template has the alerts of the document, each with its interval.
func checkAlerts(variant *template, document string) {
	_, section, _ := strings.Cut(document, "## Alerts")
	section, _, _ = strings.Cut(section, "\n## ")
	var want, got []string
	for _, match := range alertText.FindAllStringSubmatch(section, -1) {
		for text, interval := range intervals {
			if strings.Contains(strings.ToLower(oneLine(match[2])), text+".") {
				want = append(want, "Async Caller: "+oneLine(match[1])+"; "+interval+" "+interval+"; "+oneLine(match[3]))
			}
		}
	}
	for _, r := range variant.ofType("Microsoft.Insights/scheduledQueryRules") {
		p := r.Body["properties"]
		condition := at(p, "criteria", "allOf").([]any)[0]
		query := oneLine(fmt.Sprint(at(condition, "query")))
		got = append(got, fmt.Sprintf("%v; %v %v; %s", at(p, "displayName"), at(p, "evaluationFrequency"), at(p, "windowSize"), query))
		if at(condition, "operator") != "GreaterThan" || at(condition, "threshold") != 0.0 || at(condition, "timeAggregation") != "Count" {
			variant.add("the alert %v does not fire on any result", at(p, "displayName"))
		}
	}
	if len(want) != 5 {
		variant.add("docs/operating.md has %d alerts with an interval, want 5", len(want))
	}
	variant.compare("alerts", want, got)
}

var (
	queryText  = regexp.MustCompile(`(?m)^ +traces( *\|[^\n]+\n)+`)
	hasText    = regexp.MustCompile(`message has (?:'([^']+)'|"([^"]+)")`)
	startsWith = regexp.MustCompile(`tostring\(line\.(\w+)\) startswith "([^"]+)"`)
)

// selects reports whether a line of the log passes the tests that a query makes of its text and of its fields.
func selects(t *testing.T, query string, line map[string]string) bool {
	t.Helper()
	text, err := json.Marshal(line)
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range hasText.FindAllStringSubmatch(query, -1) {
		if !strings.Contains(string(text), match[1]+match[2]) {
			return false
		}
	}
	for _, match := range startsWith.FindAllStringSubmatch(query, -1) {
		if !strings.HasPrefix(line[match[1]], match[2]) {
			return false
		}
	}
	return true
}

// TestQueries: a query finds the lines with its message, and no line in which a sender wrote the same text, as its
// tenant.
func TestQueries(t *testing.T) {
	searches := 0
	for _, page := range []string{"deploy/main.bicep", "deploy/README.md", "docs/operating.md", "docs/log.md", "docs/poison.md"} {
		for _, query := range queryText.FindAllString(read(t, page), -1) {
			var texts []string
			for _, match := range hasText.FindAllStringSubmatch(query, -1) {
				texts = append(texts, match[1]+match[2])
			}
			if texts == nil {
				continue
			}
			searches++
			all := strings.Join(texts, " ")
			if selects(t, query, map[string]string{"message": "settled elsewhere", "organization": all}) {
				t.Errorf("%s: a sender can make the query find a line:\n%s", page, query)
			}
			message := strings.Trim(strings.TrimPrefix(texts[0], `"message":`), `"`)
			if !selects(t, query, map[string]string{"message": message, "error": all}) {
				t.Errorf("%s: the query does not find the message %q:\n%s", page, message, query)
			}
		}
	}
	if searches < 14 {
		t.Errorf("only %d queries search for a text", searches)
	}
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// flexSiteConfig are the members of siteConfig that Flex Consumption accepts in all regions. It refuses others, such as
// ftpsState and functionAppScaleLimit, even if they are null.
var flexSiteConfig = []string{"minTlsVersion"}

// checkSiteConfig: Flex Consumption gets only the members that it accepts, and Elastic Premium has no FTP.
func checkSiteConfig(variant *template, flex bool) {
	for _, app := range variant.ofType("Microsoft.Web/sites") {
		siteConfig, ok := at(app.Body, "properties", "siteConfig").(map[string]any)
		switch {
		case !ok:
			variant.add("%s: siteConfig is no object", app.Symbol)
		case flex:
			variant.compare("siteConfig on Flex Consumption", flexSiteConfig, slices.Sorted(maps.Keys(siteConfig)))
		case siteConfig["ftpsState"] != "Disabled":
			variant.add("%s: ftpsState is %v: want Disabled", app.Symbol, siteConfig["ftpsState"])
		}
	}
}

// lowestLimitOnFlex is the lowest limit of instances that Flex Consumption accepts in all regions.
const lowestLimitOnFlex = 40

// checkScale: the plan, its runtime and its limit of instances.
func checkScale(variant *template, flex bool) {
	app, farm := variant.ofType("Microsoft.Web/sites"), variant.ofType("Microsoft.Web/serverfarms")
	if len(app) != 1 || len(farm) != 1 {
		variant.add("want one app and one plan")
		return
	}
	configuration := at(app[0].Body, "properties", "functionAppConfig")
	if !flex {
		limit := at(app[0].Body, "properties", "siteConfig", "functionAppScaleLimit")
		if n, ok := limit.(float64); configuration != nil || at(farm[0].Body, "sku", "tier") != "ElasticPremium" || !ok || n > 10 {
			variant.add("Elastic Premium with %v and limit %v", configuration, limit)
		}
		return
	}
	runtime := fmt.Sprint(at(configuration, "runtime", "name"), " ", at(configuration, "runtime", "version"))
	if runtime != "custom 1.0" || at(farm[0].Body, "sku", "tier") != "FlexConsumption" {
		variant.add("the runtime is %s on %v: want custom 1.0", runtime, at(farm[0].Body, "sku"))
	}
	if n, ok := at(configuration, "scaleAndConcurrency", "maximumInstanceCount").(float64); !ok || n < lowestLimitOnFlex || n > 100 {
		variant.add("at most %v instances: Flex Consumption accepts %d and more", n, lowestLimitOnFlex)
	}
	if _, ok := at(configuration, "scaleAndConcurrency", "instanceMemoryMB").(float64); !ok {
		variant.add("there is no instanceMemoryMB")
	}
	if value := fmt.Sprint(at(configuration, "deployment", "storage", "value")); !strings.HasSuffix(value, "}packages") {
		variant.add("the deployment container is %s", value)
	}
}

// TestTemplate: the template and its parameter files are right as they are.
func TestTemplate(t *testing.T) {
	for _, problem := range check(t, readFiles(t))[0] {
		t.Error(problem)
	}
}

// TestTemplateUsesEverySchema: a type that the template no longer has is no longer tested.
func TestTemplateUsesEverySchema(t *testing.T) {
	f := readFiles(t)
	used := map[string]bool{}
	for _, variant := range f.variants(t, parse(t, []string{f.template}, nil).Bicep[0]) {
		for _, r := range variant.Resources {
			used[r.Type] = true
		}
	}
	for name := range schemas {
		if !used[name] {
			t.Errorf("no variant of the template makes a %s", name)
		}
	}
}

// TestFaults: each mistake in the template is found.
func TestFaults(t *testing.T) {
	flexFile, premiumFile := func(f *files) *string { return &f.flex }, func(f *files) *string { return &f.premium }
	templateFile := func(f *files) *string { return &f.template }
	const none, with = `"settings": { "value": {} }`, `"settings": { "value": {"%s": "%s"} }`
	tests := map[string]struct {
		file     func(*files) *string
		old, new string
		want     string
	}{
		"misspelt_property":     {templateFile, "allowSharedKeyAccess: false", "allowSharedKeysAccess: false", "has no member allowSharedKeysAccess"},
		"nested_property":       {templateFile, "        maximumInstanceCount: max", "        maxInstanceCount: max", "has no member maxInstanceCount"},
		"letter_case":           {templateFile, "Application_Type", "application_Type", "has no member application_Type"},
		"unknown_enum_value":    {templateFile, "'TLS1_2'", "'TLS12'", "is TLS12: want one of"},
		"wrong_type":            {templateFile, "retentionInDays: 30", "retentionInDays: '30'", "retentionInDays is 30: want int"},
		"object_for_array":      {templateFile, "addressPrefixes: [virtualNetworkPrefix]", "addressPrefixes: virtualNetworkPrefix", "want an array"},
		"required_missing":      {templateFile, "    groupShortName: 'asynccaller'\n", "", "has no groupShortName"},
		"read_only":             {templateFile, "    httpsOnly: true", "    state: 'Running'\n    httpsOnly: true", "state is read-only"},
		"unknown_version":       {templateFile, "sites@2024-11-01'", "sites@2024-11-31'", "not one of the tested ones"},
		"unknown_type":          {templateFile, "components@2020-02-02", "component@2020-02-02", "not one of the tested ones"},
		"missing_queue":         {templateFile, "  'async-caller-7'\n", "", "queues: async-caller-7-poison is missing"},
		"misspelt_queue":        {templateFile, "'async-caller-7'", "'async-caller-07'", "queues: async-caller-07 is not wanted"},
		"missing_poison_queue":  {templateFile, "'${queueName}-poison'", "'${queueName}-poisoned'", "queues: async-caller-poisoned is not wanted"},
		"missing_table":         {templateFile, "'asynccallerscheduled'", "'scheduled'", "tables: asynccallerscheduled is missing"},
		"unknown_setting":       {flexFile, none, fmt.Sprintf(with, "ASYNC_CALLER_EXPIRY", "24h"), "ASYNC_CALLER_EXPIRY: no such setting"},
		"wrong_setting":         {flexFile, none, fmt.Sprintf(with, "ASYNC_CALLER_EXPIRATION", "soon"), "ASYNC_CALLER_EXPIRATION"},
		"misspelt_host_setting": {templateFile, "AzureWebJobsStorage__clientId:", "AzureWebJobsStorage__clientID2:", "AzureWebJobsStorage__clientID2 is not wanted"},
		"setting_of_plan":       {templateFile, "flex ? {} : premiumSettings", "premiumSettings", "FUNCTIONS_WORKER_RUNTIME is not wanted"},
		"host_json_spoilt":      {flexFile, none, fmt.Sprintf(with, "AzureFunctionsJobHost__extensions__queues__batchSize", "64"), "batchSize"},
		"shared_keys":           {templateFile, "allowSharedKeyAccess: false", "allowSharedKeyAccess: true", "allowSharedKeyAccess is true"},
		"role_missing":          {templateFile, ", tableContributor, blobOwner]", ", blobOwner]", "Storage Table Data Contributor on storage is missing"},
		"role_unknown":          {templateFile, "b7e6dc6d-f1e8", "b7e6dc6d-f1e9", "Storage Blob Data Owner on storage is missing"},
		"alert_changed":         {templateFile, "calls > 10\n", "calls > 100\n", "calls > 100 is not wanted"},
		"alert_interval":        {templateFile, "every: 'PT1H'", "every: 'PT5M'", "PT5M PT5M; traces | where timestamp > ago(1h)"},
		"ftp":                   {templateFile, "ftpsState: 'Disabled'", "ftpsState: 'AllAllowed'", "ftpsState is AllAllowed: want Disabled"},
		"runtime":               {templateFile, "name: 'custom'", "name: 'node'", "the runtime is node 1.0"},
		"too_few_instances":     {templateFile, "maximumInstanceCount int = 40", "maximumInstanceCount int = 39", "at most 39 instances"},
		"unknown_name":          {templateFile, "name: packageContainer", "name: packageContainers", "unknown name packageContainers"},
		"unknown_function":      {templateFile, "uniqueString(", "uniqString(", "unknown function uniqString"},
		"syntax":                {templateFile, "kind: 'web'", "kind = 'web'", "syntax error"},
		"unclosed":              {templateFile, "    allow: false\n  }\n", "    allow: false\n", "syntax error"},
		"unknown_parameter":     {premiumFile, `"premiumSize"`, `"premiumSizes"`, "there is no parameter premiumSizes"},
		"parameter_type":        {premiumFile, `{ "value": 5 }`, `{ "value": "5" }`, "the parameter maximumInstanceCount is 5: want int"},
		"parameter_value":       {premiumFile, `"EP1"`, `"EP4"`, "the parameter premiumSize is EP4"},
		"site_config_member": {
			templateFile, "{ minTlsVersion: '1.2' }", "{ minTlsVersion: '1.2', alwaysOn: false }",
			"siteConfig on Flex Consumption: alwaysOn is not wanted",
		},
		"site_config_null": {
			templateFile, "'1.2' }, flex ? {} : {", "'1.2' }, {\n      numberOfWorkers: flex ? null : 1",
			"siteConfig on Flex Consumption: numberOfWorkers is not wanted",
		},
	}
	var names []string
	var changed []files
	for name, test := range tests {
		f := readFiles(t)
		text := test.file(&f)
		if !strings.Contains(*text, test.old) {
			t.Fatalf("%s: %q is not there to change", name, test.old)
		}
		*text = strings.Replace(*text, test.old, test.new, 1)
		names, changed = append(names, name), append(changed, f)
	}
	for i, found := range check(t, changed...) {
		t.Run(names[i], func(t *testing.T) {
			if want := tests[names[i]].want; !strings.Contains(strings.Join(found, "\n"), want) {
				t.Errorf("found %q, and not %q", found, want)
			}
		})
	}
}

// TestReadme: the page has all parameters with their defaults, and all roles. Its commands name outputs of the
// template, whose letter case Azure keeps.
func TestReadme(t *testing.T) {
	readme, f := read(t, "deploy/README.md"), readFiles(t)
	root := parse(t, []string{f.template}, nil).Bicep[0]
	outputs := f.variants(t, root)["flex"].Outputs
	for name := range outputs {
		if !regexp.MustCompile(`^[a-z][a-zA-Z]*$`).MatchString(name) {
			t.Errorf("Azure changes the letter case of the output %s", name)
		}
	}
	used := regexp.MustCompile(`(?:properties\.outputs\.|azd env get-value )(\w+)`).FindAllStringSubmatch(readme, -1)
	for _, match := range used {
		if outputs[match[1]] == nil {
			t.Errorf("the template has no output %s", match[1])
		}
	}
	if len(used) < 4 {
		t.Errorf("the page names %d outputs", len(used))
	}
	var declared, documented []string
	for _, n := range root.find("parameter_declaration") {
		declared = append(declared, n.named()[0].Text)
	}
	_, table, _ := strings.Cut(readme, "## Parameters")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, match := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([^|]*) \\|").FindAllStringSubmatch(table, -1) {
		documented = append(documented, match[1])
		if match[2] != "none" && match[2] != "the group's" && !regexp.MustCompile(`param `+match[1]+` \w+ = '?`+match[2]+`'?\n`).MatchString(f.template) {
			t.Errorf("the default of %s is not %s", match[1], match[2])
		}
	}
	if diff := cmp.Diff(declared, documented); diff != "" {
		t.Errorf("parameters (-main.bicep +README.md):\n%s", diff)
	}
	for _, role := range roles {
		if !strings.Contains(readme, "\n| "+role+" |") {
			t.Errorf("no word about the role %s", role)
		}
	}
}

// TestAzd: azd deploys the zip of `make package`, packs nothing itself, and needs none of its alpha features. A
// service with `language: custom` would need one. azd runs the hook in the folder of azure.yaml, and versions
// before 1.18.2 delete the zip.
func TestAzd(t *testing.T) {
	root := parse(t, nil, []string{read(t, "deploy/azure.yaml")}).YAML[0]
	for path, want := range map[string]any{
		"requiredVersions.azd":  ">= 1.18.2",
		"services.async-caller": map[string]any{"project": ".", "host": "function"},
		"hooks":                 map[string]any{"preup": map[string]any{"shell": "sh", "run": "make -C .. build package"}},
		"workflows.up.steps": []any{
			map[string]any{"azd": "provision"},
			map[string]any{"azd": "deploy async-caller --from-package ../dist/async-caller.zip"},
		},
	} {
		if diff := cmp.Diff(want, at(root, strings.Split(path, ".")...)); diff != "" {
			t.Errorf("%s (-want +azure.yaml):\n%s", path, diff)
		}
	}
	f := readFiles(t)
	app := f.variants(t, parse(t, []string{f.template}, nil).Bicep[0])["flex"].ofType("Microsoft.Web/sites")[0]
	if tag := at(app.Body, "tags", "azd-service-name"); tag != "async-caller" {
		t.Errorf("azd looks for an app with the tag azd-service-name=async-caller, and it is %v", tag)
	}
}

// dockerfile returns what is wrong with a Dockerfile.
func dockerfile(text string) (p problems) {
	text = regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(text, "")
	text = strings.ReplaceAll(text, "\\\n", " ")
	var order []string
	environment := map[string]string{}
	for line := range strings.SplitSeq(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		order = append(order, words[0])
		switch words[0] {
		case "FROM":
			if words[1] != "mcr.microsoft.com/azure-functions/base:4" {
				p.add("the base image is %s", words[1])
			}
		case "ENV":
			for _, word := range words[1:] {
				name, value, _ := strings.Cut(word, "=")
				environment[name] = value
			}
		case "COPY":
			if target := words[len(words)-1]; target != environment["AzureWebJobsScriptRoot"]+"/" {
				p.add("the app is in %s, and the host looks in %s", target, environment["AzureWebJobsScriptRoot"])
			}
			if !slices.Contains(words, "--chmod=755") {
				p.add("the user can read and start the files only if the folder that is copied allows it: want --chmod=755")
			}
		case "USER":
			// A number, because Kubernetes cannot know that a name is not root's. Without a group the process gets
			// root's.
			if !regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`).MatchString(words[1]) {
				p.add("the user is %s: want the numbers of a user and a group that are not root", words[1])
			}
		}
	}
	// Another instruction would replace how the image starts the host, or what it contains.
	if got := strings.Join(order, " "); got != "FROM ENV COPY USER" {
		p.add("the instructions are %s", got)
	}
	for name, value := range environment {
		switch name {
		case "AzureWebJobsScriptRoot", "AzureFunctionsJobHost__Logging__Console__IsEnabled", "FUNCTIONS_WORKER_RUNTIME":
		case "ASPNETCORE_URLS":
			if port, err := strconv.Atoi(strings.TrimPrefix(value, "http://+:")); err != nil || port < 1024 {
				p.add("the host listens on %s: only root can use a port below 1024", value)
			}
		case "FUNCTIONS_SECRETS_PATH":
			if !strings.HasPrefix(value, "/tmp/") {
				p.add("the host cannot write to %s", value)
			}
		default:
			p.add("%s is set in the image: settings and secrets belong to the app", name)
		}
	}
	for _, name := range []string{"ASPNETCORE_URLS", "FUNCTIONS_SECRETS_PATH"} {
		if environment[name] == "" {
			p.add("%s is not set: the base image has a value for root", name)
		}
	}
	if environment["FUNCTIONS_WORKER_RUNTIME"] != "custom" {
		p.add("the runtime is %s", environment["FUNCTIONS_WORKER_RUNTIME"])
	}
	return p
}

func TestDockerfile(t *testing.T) {
	text := read(t, "deploy/Dockerfile")
	if p := dockerfile(text); p != nil {
		t.Errorf("%q", p)
	}
	for name, test := range map[string]struct{ old, new, want string }{
		"tag":      {"base:4", "base:latest", "the base image"},
		"folder":   {" . /home/site/wwwroot/", " . /app/", "the host looks in /home/site/wwwroot"},
		"modes":    {" --chmod=755", "", "--chmod=755"},
		"root":     {"USER 1654:1654", "USER 0:0", "the user is 0:0"},
		"group":    {"USER 1654:1654", "USER 1654", "the user is 1654"},
		"no_user":  {"USER 1654:1654\n", "", "the instructions"},
		"port":     {"8080", "80", "only root"},
		"no_port":  {" \\\n    ASPNETCORE_URLS=http://+:8080", "", "ASPNETCORE_URLS is not set"},
		"secrets":  {"=/tmp/", "=/home/", "the host cannot write to /home/"},
		"runtime":  {"RUNTIME=custom", "RUNTIME=node", "the runtime is node"},
		"secret":   {"ENV ", "ENV AzureWebJobsStorage=AccountKey ", "settings and secrets"},
		"start":    {"COPY", "CMD [\"sh\"]\nCOPY", "the instructions"},
		"one_line": {" \\\n    FUNCTIONS_WORKER_RUNTIME", "\nFUNCTIONS_WORKER_RUNTIME", "the instructions"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(dockerfile(strings.Replace(text, test.old, test.new, 1)), "\n"); !strings.Contains(got, test.want) {
				t.Errorf("found %q, and not %q", got, test.want)
			}
		})
	}
}
