package azure_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/storage/azure"
)

const (
	name = "AzureWebJobsStorage"
	// key is base64 and easy to find in output.
	key = "Y2FuYXJ5LWtleS1jYW5hcnkta2V5LWNhbmFyeQ=="
	// signature is a SAS.
	signature  = "sv=2022-11-02&ss=q&srt=sco&sp=raup&sig=canarySAS%2Bsig%3D"
	resourceID = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i"
	devKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// parse reads settings whose names lack the name of the connection: "=connection string", "__accountName=acct".
func parse(settings ...string) (azure.Connection, error) {
	var environ []string
	for _, setting := range settings {
		environ = append(environ, name+setting)
	}
	return azure.ParseConnection(environ, name)
}

// TestIdentity: which identity settings select. They are separated by blanks.
func TestIdentity(t *testing.T) {
	const managed = "__accountName=acct __credential=managedidentity "
	for settings, want := range map[string]azure.Identity{
		"__accountName=acct":               {},
		managed:                            {ManagedIdentity: true},
		managed + "__clientId=id":          {ManagedIdentity: true, ClientID: "id"},
		"__accountName=acct __clientId=id": {ManagedIdentity: true, ClientID: "id"},
		managed + "__managedIdentityResourceId=" + resourceID: {ManagedIdentity: true, ResourceID: resourceID},
		"__accountName=acct __managedIdentityResourceId=" + resourceID: {
			ManagedIdentity: true, ResourceID: resourceID,
		},
		managed + "__managedIdentityObjectId=id": {ManagedIdentity: true, ObjectID: "id"},
		":ACCOUNTNAME=acct :credential=ManagedIdentity __MANAGEDIDENTITYCLIENTID=id": {
			ManagedIdentity: true, ClientID: "id",
		},
		"__accountName=acct __tenantId=tenant __clientId=id __clientSecret=canary": {
			TenantID: "tenant", ClientID: "id", ClientSecret: "canary",
		},
	} {
		got, err := parse(strings.Fields(settings)...)
		if err != nil || got.Identity != want || got.AccountKey+got.SAS != "" {
			t.Errorf("%s: identity %+v, %v, want %+v", settings, got.Identity, err, want)
		}
	}
}

// TestEndpoints: the addresses of the services for queues, tables and blobs.
func TestEndpoints(t *testing.T) {
	const (
		account   = "=AccountName=acct;AccountKey=" + key
		developed = "=UseDevelopmentStorage=true"
		local     = "https://127.0.0.1:10001/devstoreaccount1"
	)
	at := func(form string) (endpoints []string) {
		for _, service := range []string{"queue", "table", "blob"} {
			endpoints = append(endpoints, fmt.Sprintf(form, service))
		}
		return endpoints
	}
	public, azurite := at("https://acct.%s.core.windows.net"), []string{
		"http://127.0.0.1:10001/devstoreaccount1", "http://127.0.0.1:10002/devstoreaccount1",
		"http://127.0.0.1:10000/devstoreaccount1",
	}
	for settings, want := range map[string][]string{
		account: public,
		account + ";EndpointSuffix=core.chinacloudapi.cn;": at("https://acct.%s.core.chinacloudapi.cn"),
		account + ";QueueEndpoint=http://127.0.0.1:7001/acct/;TableEndpoint=http://127.0.0.1:7002/acct/;" +
			"BlobEndpoint=http://127.0.0.1:7000/acct": {
			"http://127.0.0.1:7001/acct", "http://127.0.0.1:7002/acct", "http://127.0.0.1:7000/acct",
		},
		account + ";QueueEndpoint=http://127.0.0.1:7/acct":                  {"http://127.0.0.1:7/acct", "", ""},
		"=;accountname=Ac1;;ACCOUNTKEY=eA==;DefaultEndpointsProtocol=HTTP;": at("http://ac1.%s.core.windows.net"),
		developed: azurite,
		developed + ";DEVELOPMENTSTORAGEPROXYURI=https://azurite:1/": {
			"https://azurite:10001/devstoreaccount1", "https://azurite:10002/devstoreaccount1",
			"https://azurite:10000/devstoreaccount1",
		},
		developed + " __accountName=other __credential=nonsense": azurite,
		"__accountName=acct": public,
		"__accountName=acct __queueServiceUri=http://never-read":      public,
		"__queueServiceUri=" + public[0] + "/ __serviceUri=https://b": public,
		"__queueServiceUri=https://a.b.queue.core.azure.com":          at("https://a.b.%s.core.azure.com"),
		"__serviceUri=" + local:                                       {local, "", ""},
		"__serviceUri=" + local + " __tableServiceUri=https://t __blobServiceUri=https://b": {
			local, "https://t", "https://b",
		},
		"__accountName=acct __retry__maxRetries=5 :Diagnostics:IsLoggingEnabled=true 2__anything=x _x=y": public,
	} {
		got, err := parse(strings.Fields(settings)...)
		endpoints := []string{got.Endpoint, got.TableEndpoint, got.BlobEndpoint}
		if err != nil || !slices.Equal(endpoints, want) {
			t.Errorf("%s: %q, %v, want %q", settings, endpoints, err, want)
		}
	}
}

// TestCredentials: the key without white space, and the SAS without a question mark.
func TestCredentials(t *testing.T) {
	got, err := parse("=AccountName=acct;AccountKey=" + key[:10] + " \t" + key[10:] + " \r\n")
	if err != nil || got.AccountName != "acct" || got.AccountKey != key || got.SAS != "" {
		t.Errorf("account %q, key %q, %v", got.AccountName, string(got.AccountKey), err)
	}
	got, err = parse("=AccountName=acct;SharedAccessSignature=?" + signature)
	if err != nil || got.AccountName != "" || got.AccountKey != "" || got.SAS != signature {
		t.Errorf("account %q, SAS %q, %v", got.AccountName, string(got.SAS), err)
	}
	got, err = azure.ParseConnection([]string{"AZUREWEBJOBSSTORAGE=UseDevelopmentStorage=true"}, name)
	if err != nil || got.AccountName != "devstoreaccount1" || got.AccountKey != devKey {
		t.Errorf("account %q, key %q, %v", got.AccountName, string(got.AccountKey), err)
	}
}

// mustFind checks the lines of the error about settings, which each begin with the name of the connection.
func mustFind(t *testing.T, settings, want []string) {
	t.Helper()
	conn, err := parse(settings...)
	if err == nil || conn != (azure.Connection{}) {
		t.Errorf("%q: got %v, %v; want an error and nothing else", settings, conn, err)
		return
	}
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		if len(lines) != len(want) || !strings.HasPrefix(line, name+want[i]) {
			t.Errorf("%q: problems\n%v\nwant\n%q", settings, err, want)
			break
		}
	}
	if strings.Contains(strings.ToLower(err.Error()), "canary") || strings.Contains(err.Error(), key) {
		t.Errorf("%q: a value shows in %q", settings, err)
	}
}

// TestConnectionStringProblems: the host refuses these strings, or cannot use them. The error names the part.
func TestConnectionStringProblems(t *testing.T) {
	const (
		account   = "AccountName=acct;AccountKey=" + key
		sas       = "SharedAccessSignature=" + signature
		queue     = ";QueueEndpoint=http://127.0.0.1:10001/acct"
		signed    = sas + queue
		developed = "UseDevelopmentStorage=true"
		has       = "the connection string has "
		first     = "part 1 of the connection string"
		third     = "part 3 of the connection string"
		noDomain  = "EndpointSuffix is not a domain name"
		noName    = "AccountName is not the name of a storage account"
	)
	for text, want := range map[string]string{
		"  ":                                   "missing: want a connection string, UseDevelopmentStorage=true, or an ",
		"canary":                               first + " is not Name=Value",
		"Canary=canary":                        first + " has an unknown name",
		account + ";canary":                    third + " is not Name=Value",
		account + ";=canary":                   third + " has an unknown name",
		account + ";Queue_Endpoint=http://a/b": third + " has an unknown name; did you mean Q",
		account + ";\tEndpointSuffix=core.invalid":   third + ", EndpointSuffix, has white space",
		account + ";\r\nEndpointSuffix=core.invalid": third + ", EndpointSuffix, has white space",
		"'" + account + "'":                          first + ", AccountName, has white space",
		"\ufeff" + account:                           first + ", AccountName, has white space",
		account + ";accountkey=" + key:               "AccountKey is in the connection string twice",

		"AccountName=acct":                                 has + "neither AccountKey nor SharedAccessSignature",
		"AccountKey=" + key + queue:                        has + "AccountKey but no AccountName",
		"AccountName=acct;AccountKeyName=k;" + sas:         has + "AccountKeyName but no AccountKey",
		"AccountName=acct;AccountKey=a;" + sas:             has + "both AccountKey and SharedAccessSignature",
		"AccountName=;AccountKey=" + key:                   "AccountName is empty",
		"AccountName=acct ;AccountKey=" + key:              noName,
		"AccountName=Canary.x/;AccountKey=" + key:          noName,
		"AccountName=acct;AccountKey=canary-":              "AccountKey is not base64: was it cut off?",
		"AccountName=acct;AccountKey= ":                    "AccountKey is not base64",
		account + "\u00a0":                                 "AccountKey is not base64",
		"AccountName=acct;SharedAccessSignature=sv=canary": "SharedAccessSignature is invalid",

		account + ";DefaultEndpointsProtocol=https ": "DefaultEndpointsProtocol can only be https or http",
		account + ";DefaultEndpointsProtocol=canary": "DefaultEndpointsProtocol can only be https or http",
		signed + ";DefaultEndpointsProtocol=http":    has + "DefaultEndpointsProtocol but no Acc",
		signed + ";EndpointSuffix=core.invalid":      has + "EndpointSuffix but no AccountName",
		account + ";EndpointSuffix=x?canary":         noDomain,
		account + ";EndpointSuffix=core.invalid:443": noDomain,
		account + ";EndpointSuffix=core..invalid":    noDomain,
		account + ";EndpointSuffix=127.0.0.1":        noDomain,
		account + queue + ";EndpointSuffix=.invalid": noDomain,
		account + ";EndpointSuffix=":                 "EndpointSuffix is empty",

		account + ";QueueEndpoint=%zzcanary":               "QueueEndpoint is not a URL",
		account + ";QueueEndpoint=/canary":                 "QueueEndpoint is not a URL",
		account + ";QueueEndpoint=http://a/b c":            "QueueEndpoint is not a URL",
		account + ";TableEndpoint=acct":                    "TableEndpoint is not a URL",
		account + ";FileEndpoint=:::":                      "FileEndpoint is not a URL",
		account + ";QueueEndpoint=ftp://canary":            "QueueEndpoint is not a usable URL: want https or http",
		account + ";QueueEndpoint=https://x/?" + signature: "QueueEndpoint is not a plain URL",
		account + ";QueueEndpoint=https://u:canary@x/":     "QueueEndpoint is not a plain URL",
		account + queue + ";QueueSecondaryEndpoint=x":      "QueueSecondaryEndpoint is not a URL",
		account + ";QueueSecondaryEndpoint=http://a/b":     has + "QueueSecondaryEndpoint but no Queu",
		account + ";BlobSecondaryEndpoint=http://a/b":      has + "BlobSecondaryEndpoint but no BlobE",

		"UseDevelopmentStorage=canary":                   "UseDevelopmentStorage can only be true",
		developed + " ":                                  "UseDevelopmentStorage can only be true",
		developed + queue:                                "UseDevelopmentStorage and QueueEndpoint exclude each other",
		developed + ";DevelopmentStorageProxyUri=canary": "DevelopmentStorageProxyUri is not a URL",
		account + ";DevelopmentStorageProxyUri=http://a": has + "DevelopmentStorageProxyUri but no",
	} {
		mustFind(t, []string{"=" + text}, []string{": " + want})
	}
	mustFind(t, []string{"=AccountKey=" + key}, []string{
		": " + has + "AccountKey but no AccountName", ": " + has + "neither AccountName nor QueueEndpoint",
	})
}

// TestIdentityProblems: settings that identify nobody, or are unknown. They are separated by blanks.
func TestIdentityProblems(t *testing.T) {
	const (
		acct     = "__accountName=acct "
		managed  = acct + "__credential=managedidentity "
		oneOfTwo = "__clientId: only one of __clientId, __managedIdentityResourceId can select the identity"
		unknown  = ": unknown, or not supported by Async Caller: the most similar setting is " + name
		resource = " __managedIdentityResourceId="
		object   = "__managedIdentityObjectId"
	)
	for settings, want := range map[string][]string{
		"__queueServiceUri=http://canary.example":             {"__queueServiceUri: not a usable URL: want https"},
		"__serviceUri=canary":                                 {"__serviceUri: not a URL"},
		"__accountName=canary.evil.example/":                  {"__accountName: not the name of a storage account"},
		"__credential=managedidentity":                        {": missing: want a connection string, UseDevelopmen"},
		acct + "__credential=canary":                          {"__credential: unknown: want managedidentity"},
		acct + "__clientSecret=canary":                        {"__tenantId: missing", "__clientId: missing"},
		acct + "__clientId=canary __tenantId=canary":          {"__clientSecret: missing"},
		acct + "__clientId=canary" + resource + resourceID:    {oneOfTwo},
		managed + "__clientId=canary" + resource + resourceID: {oneOfTwo},
		managed + "__managedIdentityResourceId=canary":        {"__managedIdentityResourceId: not a resource id"},
		acct + object + "=canary":                             {object + ": set " + name + "__credential to managed"},
		"__queueServiceUri=http://canary __credential=canary": {"__queueServiceUri: ", "__credential: "},
		acct + "__acountName=canary":                          {"__acountName" + unknown + "__accountName"},
		acct + ":clientCertificate=canary":                    {":clientCertificate" + unknown + "__clientSecret"},
		acct + "__queue__serviceUri=canary":                   {"__queue__serviceUri" + unknown + "__queueServiceUri"},
		acct + "__=canary __retry=canary":                     {"__: unknown", "__retry: unknown"},
		"=UseDevelopmentStorage=true __acountName=canary":     {"__acountName: unknown"},
	} {
		mustFind(t, strings.Fields(settings), want)
	}
}

func TestConnectionHidesSecrets(t *testing.T) {
	conn := azure.Connection{
		Endpoint: "https://acct.queue.core.windows.net", AccountName: "acct", AccountKey: "canary-key",
		SAS:      "canary-sas",
		Identity: azure.Identity{ClientSecret: "canary-secret"},
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%q", "%x", "%X"} {
		got := strings.ToLower(fmt.Sprintf(verb+verb, conn, &conn))
		if strings.Contains(got, "canary") || strings.Contains(got, "63616e617279") {
			t.Errorf("a secret shows in %s: %s", verb, got)
		}
	}
	got, err := json.Marshal(conn)
	if err != nil || strings.Contains(string(got), "canary") {
		t.Errorf("a secret shows in JSON: %s, %v", got, err)
	}
}

// TestUntrustedHosts checks to which hosts settings that are not of the environment may send tokens.
func TestUntrustedHosts(t *testing.T) {
	for uri, want := range map[string]bool{
		"https://acct.queue.core.windows.net":                                      true,
		"https://ACCT.Queue.Core.Windows.NET/":                                     true,
		"HTTPS://acct.queue.core.windows.net:443":                                  true,
		"https://acct-secondary.queue.core.windows.net":                            true,
		"https://acct.queue.core.usgovcloudapi.net":                                true,
		"https://acct.queue.core.chinacloudapi.cn":                                 true,
		"https://acct.z07.queue.storage.azure.net":                                 true,
		"https://acct.privatelink.queue.core.windows.net":                          true,
		"https://acct.queue.core.windows.net:8443":                                 false,
		"https://acct.queue.core.windows.net.":                                     false,
		"https://acct.queue.core.windows.net.evil.example/":                        false,
		"https://acct.queue.core.windows.net.evil.example/.queue.core.windows.net": false,
		"https://evil.example/acct.queue.core.windows.net":                         false,
		"https://evilqueue.core.windows.net":                                       false,
		"https://queue.core.windows.net":                                           false,
		"https://acct.web.core.windows.net":                                        false,
		"https://acct.queue.core.windows.net.cn":                                   false,
		"https://acct.queueXcore.windows.net":                                      false,
		"https://evil.example／.queue.core.windows.net":                             false,
		"https://evil.example\u2024queue.core.windows.net":                         false,
		"https://acct.queue.core.windows。net":                                      false,
		"https://[::1].queue.core.windows.net":                                     false,
		"https://storage.corp.example":                                             false,
		"https://127.0.0.1:10001/devstoreaccount1":                                 false,
		"https://localhost":                                                        false,
	} {
		for _, key := range []string{"__queueServiceUri", "__serviceUri", "__tableServiceUri", "__blobServiceUri"} {
			settings := []string{name + key + "=" + uri}
			if key == "__tableServiceUri" || key == "__blobServiceUri" {
				settings = append(settings, name+"__accountName=acct")
			}
			_, err := azure.ParseConnection(settings, name)
			got := azure.UntrustedHosts(settings, nil, name)
			if isTrusted := len(got) == 0; isTrusted != want && err == nil {
				t.Errorf("%s%s: untrusted %v, want trusted %v", key, uri, got, want)
			}
			if want && err != nil {
				t.Errorf("%s%s: %v", key, uri, err)
			}
			if got := azure.UntrustedHosts(settings, settings, name); len(got) > 0 {
				t.Errorf("%s%s is in the environment, but not trusted", key, uri)
			}
		}
	}
	for _, text := range []string{
		"UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://evil.example",
		"AccountName=acct;AccountKey=" + key + ";QueueEndpoint=https://evil.example",
		"QueueEndpoint=https://evil.example;SharedAccessSignature=" + signature,
	} {
		if got := azure.UntrustedHosts([]string{name + "=" + text}, nil, name); len(got) > 0 {
			t.Errorf("%s: %v, though no token is sent", text, got)
		}
	}
	const setting = name + "__queueServiceUri"
	ours := []string{setting + "=https://b.example"}
	got := azure.UntrustedHosts([]string{setting + "=https://a.example"}, ours, name)
	if diff := cmp.Diff([]string{setting}, got); diff != "" {
		t.Errorf("another host in the environment (-want +got):\n%s", diff)
	}
}

func TestAccountName(t *testing.T) {
	for endpoint, want := range map[string]string{
		"https://acme.queue.core.windows.net":     "acme.queue.core.windows.net",
		"https://acme.queue.core.windows.net/":    "acme.queue.core.windows.net",
		"http://127.0.0.1:10001/devstoreaccount1": "127.0.0.1:10001/devstoreaccount1",
	} {
		if got := (azure.Connection{Endpoint: endpoint}).Account(); got != want {
			t.Errorf("%s: %q, want %q", endpoint, got, want)
		}
	}
}

// TestConnectionStrings checks that each connection string of the table is accepted or refused as Microsoft's client
// library does, with the same endpoint and account. An empty key, which opens nothing, is refused.
func TestConnectionStrings(t *testing.T) {
	const zeros = "AAAAAAAAAAAAAAAAAAAAAA=="
	table, err := os.ReadFile("testdata/connection-strings.tsv")
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(strings.TrimSpace(string(table)), "\n")[1:]
	for _, row := range rows {
		columns := strings.Split(row, "\t")
		var text string
		if err := json.Unmarshal([]byte(columns[1]), &text); err != nil {
			t.Fatalf("%s: %v", row, err)
		}
		text = strings.ReplaceAll(text, "KEY", zeros)
		isAccepted := columns[2] == "accepted" && columns[0] != "key empty"
		conn, err := parse("=" + text)
		switch {
		case isAccepted && err != nil, !isAccepted && err == nil:
			t.Errorf("%s: error %v, want %s", columns[0], err, columns[2])
		case !isAccepted && (strings.Contains(err.Error(), zeros) || strings.Contains(err.Error(), "a%3D")):
			t.Errorf("%s: the error shows the credential: %v", columns[0], err)
		case isAccepted:
			endpoint, account := conn.Endpoint, conn.AccountName
			if conn.SAS != "" {
				endpoint += "/?" + string(conn.SAS)
				account, _, _ = strings.Cut(conn.Account(), ".")
			}
			if endpoint != strings.TrimSuffix(columns[3], "/") || account != columns[4] {
				t.Errorf("%s: endpoint %s of %s, want %s of %s", columns[0], endpoint, account, columns[3], columns[4])
			}
		}
	}
}
