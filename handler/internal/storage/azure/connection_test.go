package azure_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/plain/secret"
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

func parse(settings map[string]string) (azure.Connection, error) {
	var environ []string
	for key, value := range settings {
		environ = append(environ, key+"="+value)
	}
	slices.Sort(environ)
	return azure.ParseConnection(environ, name)
}

func TestParseConnection(t *testing.T) {
	tests := map[string]struct {
		settings map[string]string
		want     azure.Connection
	}{
		"account_key": {
			map[string]string{name: "DefaultEndpointsProtocol=https;AccountName=acct;AccountKey=" + key +
				";EndpointSuffix=core.windows.net"},
			azure.Connection{Endpoint: "https://acct.queue.core.windows.net", AccountName: "acct", AccountKey: key},
		},
		"sovereign_cloud": {
			map[string]string{name: "AccountName=acct;AccountKey=" + key + ";EndpointSuffix=core.chinacloudapi.cn;"},
			azure.Connection{
				Endpoint: "https://acct.queue.core.chinacloudapi.cn", AccountName: "acct",
				AccountKey: key,
			},
		},
		"queue_endpoint_wins": {
			map[string]string{name: "AccountName=acct;AccountKey=" + key +
				";QueueEndpoint=http://127.0.0.1:7001/acct/;BlobEndpoint=http://b"},
			azure.Connection{Endpoint: "http://127.0.0.1:7001/acct", AccountName: "acct", AccountKey: key},
		},
		"case_order_and_empty_parts": {
			map[string]string{name: ";accountname=acct;ACCOUNTKEY=" + key + " \n;;DefaultEndpointsProtocol=HTTP;"},
			azure.Connection{Endpoint: "http://acct.queue.core.windows.net", AccountName: "acct", AccountKey: key},
		},
		"signature": {
			map[string]string{name: "QueueEndpoint=https://acct.queue.core.windows.net/;SharedAccessSignature=?" +
				signature},
			azure.Connection{Endpoint: "https://acct.queue.core.windows.net", SAS: signature},
		},
		"signature_and_name": {
			map[string]string{name: "AccountName=acct;SharedAccessSignature=" + signature},
			azure.Connection{Endpoint: "https://acct.queue.core.windows.net", SAS: signature},
		},
		"development": {
			map[string]string{name: "UseDevelopmentStorage=true"},
			azure.Connection{
				Endpoint: "http://127.0.0.1:10001/devstoreaccount1", AccountName: "devstoreaccount1",
				AccountKey: devKey,
			},
		},
		"development_elsewhere": {
			map[string]string{name: "UseDevelopmentStorage=True;DevelopmentStorageProxyUri=http://azurite:8080/"},
			azure.Connection{
				Endpoint: "http://azurite:10001/devstoreaccount1", AccountName: "devstoreaccount1",
				AccountKey: devKey,
			},
		},
		"connection_string_wins_over_identity": {
			map[string]string{
				name: "UseDevelopmentStorage=true", name + "__accountName": "acct",
				name + "__credential": "nonsense",
			},
			azure.Connection{
				Endpoint: "http://127.0.0.1:10001/devstoreaccount1", AccountName: "devstoreaccount1",
				AccountKey: devKey,
			},
		},
		"identity_default": {
			map[string]string{name + "__accountName": "acct"},
			azure.Connection{Endpoint: "https://acct.queue.core.windows.net"},
		},
		"identity_queue_service_uri": {
			map[string]string{
				name + "__queueServiceUri": "https://acct.queue.core.usgovcloudapi.net/",
				name + "__serviceUri":      "https://other",
			},
			azure.Connection{Endpoint: "https://acct.queue.core.usgovcloudapi.net"},
		},
		"identity_service_uri": {
			map[string]string{name + "__serviceUri": "https://127.0.0.1:10001/devstoreaccount1"},
			azure.Connection{Endpoint: "https://127.0.0.1:10001/devstoreaccount1"},
		},
		"identity_account_name_first": {
			map[string]string{name + "__accountName": "acct", name + "__queueServiceUri": "http://never-read"},
			azure.Connection{Endpoint: "https://acct.queue.core.windows.net"},
		},
		"identity_managed": {
			map[string]string{name + "__accountName": "acct", name + "__credential": "managedidentity"},
			azure.Connection{
				Endpoint: "https://acct.queue.core.windows.net",
				Identity: azure.Identity{ManagedIdentity: true},
			},
		},
		"identity_user_assigned": {
			map[string]string{
				name + "__accountName": "acct", name + "__credential": "ManagedIdentity",
				name + "__clientId": "id",
			},
			azure.Connection{
				Endpoint: "https://acct.queue.core.windows.net",
				Identity: azure.Identity{ManagedIdentity: true, ClientID: "id"},
			},
		},
		"identity_client_alone": {
			map[string]string{name + "__accountName": "acct", name + "__clientId": "id"},
			azure.Connection{
				Endpoint: "https://acct.queue.core.windows.net",
				Identity: azure.Identity{ManagedIdentity: true, ClientID: "id"},
			},
		},
		"identity_resource_alone": {
			map[string]string{name + "__accountName": "acct", name + "__managedIdentityResourceId": resourceID},
			azure.Connection{
				Endpoint: "https://acct.queue.core.windows.net",
				Identity: azure.Identity{ManagedIdentity: true, ResourceID: resourceID},
			},
		},
		"identity_resource": {
			map[string]string{
				name + "__accountName": "acct", name + "__credential": "managedidentity",
				name + "__managedIdentityResourceId": resourceID,
			},
			azure.Connection{
				Endpoint: "https://acct.queue.core.windows.net",
				Identity: azure.Identity{ManagedIdentity: true, ResourceID: resourceID},
			},
		},
		"identity_object": {
			map[string]string{
				name + "__accountName": "acct", name + "__credential": "managedidentity",
				name + "__managedIdentityObjectId": "id",
			},
			azure.Connection{
				Endpoint: "https://acct.queue.core.windows.net",
				Identity: azure.Identity{ManagedIdentity: true, ObjectID: "id"},
			},
		},
		"identity_colons_and_case": {
			map[string]string{
				"azurewebjobsstorage:ACCOUNTNAME": "acct", name + ":credential": "managedidentity",
				name + "__MANAGEDIDENTITYCLIENTID": " id ",
			},
			azure.Connection{
				Endpoint: "https://acct.queue.core.windows.net",
				Identity: azure.Identity{ManagedIdentity: true, ClientID: "id"},
			},
		},
		"connection_string_in_any_case": {
			map[string]string{"AZUREWEBJOBSSTORAGE": "AccountName=acct;AccountKey=" + key},
			azure.Connection{Endpoint: "https://acct.queue.core.windows.net", AccountName: "acct", AccountKey: key},
		},
		"other_services_of_the_host": {
			map[string]string{
				name + "__accountName": "acct", name + "__blobServiceUri": "https://b",
				name + "__tableServiceUri":   "https://t",
				name + "__retry__maxRetries": "5", name + ":Diagnostics:IsLoggingEnabled": "true",
				name + "2__anything": "x", name + "_x": "y",
			},
			azure.Connection{Endpoint: "https://acct.queue.core.windows.net"},
		},
		"identity_application": {
			map[string]string{
				name + "__accountName": "acct",
				name + "__tenantId":    "tenant", name + "__clientId": "id", name + "__clientSecret": "canary-secret",
			},
			azure.Connection{
				Endpoint: "https://acct.queue.core.windows.net",
				Identity: azure.Identity{TenantID: "tenant", ClientID: "id", ClientSecret: "canary-secret"},
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parse(test.settings)
			if err != nil {
				t.Fatal(err)
			}
			got.TableEndpoint, got.BlobEndpoint = "", "" // see TestSiblingEndpoints
			if diff := cmp.Diff(test.want, got,
				cmp.Transformer("reveal", func(s secret.Text) string { return string(s) })); diff != "" {
				t.Errorf("connection (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSiblingEndpoints checks the addresses of the other services of an account: tables, and blobs.
func TestSiblingEndpoints(t *testing.T) {
	account := "AccountName=acct;AccountKey=" + key
	for want, settings := range map[string]map[string]string{
		"https://acct.table.core.windows.net":      {name: account},
		"https://acct.table.core.chinacloudapi.cn": {name: account + ";EndpointSuffix=core.chinacloudapi.cn"},
		"http://127.0.0.1:7002/acct": {name: account +
			";QueueEndpoint=http://127.0.0.1:7001/acct;TableEndpoint=http://127.0.0.1:7002/acct/"},
		"": {name: account + ";QueueEndpoint=http://127.0.0.1:7001/acct"},
		"http://127.0.0.1:10002/devstoreaccount1": {name: "UseDevelopmentStorage=true"},
		"http://azurite:10002/devstoreaccount1": {name: "UseDevelopmentStorage=true;" +
			"DevelopmentStorageProxyUri=http://azurite"},
		"https://acct.table.core.usgovcloudapi.net": {name +
			"__queueServiceUri": "https://acct.queue.core.usgovcloudapi.net"},
		"https://127.0.0.1:10002/devstoreaccount1": {
			name +
				"__serviceUri": "https://127.0.0.1:10001/devstoreaccount1",
			name + "__tableServiceUri": "https://127.0.0.1:10002/devstoreaccount1",
		},
		"https://acct2.privatelink.table.core.azure.com": {name +
			"__queueServiceUri": "https://acct2.privatelink.queue.core.azure.com"},
	} {
		if got, err := parse(settings); err != nil || got.TableEndpoint != want {
			t.Errorf("%v: %q, %v, want %q", settings, got.TableEndpoint, err, want)
		}
	}
	for want, settings := range map[string]map[string]string{
		"https://acct.blob.core.windows.net": {name: account},
		"http://127.0.0.1:7000/acct": {name: account +
			";QueueEndpoint=http://127.0.0.1:7001/acct;BlobEndpoint=http://127.0.0.1:7000/acct"},
		"": {name: account + ";QueueEndpoint=http://127.0.0.1:7001/acct"},
		"http://azurite:10000/devstoreaccount1": {name: "UseDevelopmentStorage=true;" +
			"DevelopmentStorageProxyUri=http://azurite"},
		"https://127.0.0.1:10000/devstoreaccount1": {
			name + "__serviceUri":     "https://127.0.0.1:10001/devstoreaccount1",
			name + "__blobServiceUri": "https://127.0.0.1:10000/devstoreaccount1",
		},
	} {
		if got, err := parse(settings); err != nil || got.BlobEndpoint != want {
			t.Errorf("%v: %q, %v, want %q", settings, got.BlobEndpoint, err, want)
		}
	}
}

func TestParseConnectionProblems(t *testing.T) {
	const (
		canary   = "canary"
		basics   = "AccountName=acct;AccountKey=" + key
		notFound = "neither AccountName nor QueueEndpoint"
		noKey    = "neither AccountKey nor SharedAccessSignature"
	)
	tests := map[string]struct {
		settings map[string]string
		want     []string // one for each line
	}{
		"missing": {nil, []string{name + ": missing: want a connection string"}},
		"blank":   {map[string]string{name: "  "}, []string{name + ": missing"}},
		"no_pairs": {
			map[string]string{name: canary},
			[]string{name + ": part 1 of the connection string is not Name=Value"},
		},
		"nothing_known": {map[string]string{name: "Canary=canary"}, []string{"part 1 of the connection string has an unkn"}},
		"no_key":        {map[string]string{name: "AccountName=acct"}, []string{noKey}},
		"no_account": {
			map[string]string{name: "AccountKey=" + key},
			[]string{"AccountKey but no AccountName", notFound},
		},
		"key_cut_off": {
			map[string]string{name: "AccountName=acct;AccountKey=canary-"},
			[]string{"AccountKey is not base64"},
		},
		"bad_account": {
			map[string]string{name: "AccountName=Canary.x/;AccountKey=" + key},
			[]string{"3 to 24 lower-case letters"},
		},
		"bad_protocol": {
			map[string]string{name: basics + ";DefaultEndpointsProtocol=canary"},
			[]string{"DefaultEndpointsProtocol can only be"},
		},
		"bad_suffix": {
			map[string]string{name: basics + ";EndpointSuffix=x?canary"},
			[]string{"EndpointSuffix is not a domain name"},
		},
		"bad_endpoint": {
			map[string]string{name: basics + ";QueueEndpoint=%zzcanary"},
			[]string{"QueueEndpoint is not a URL"},
		},
		"relative": {
			map[string]string{name: basics + ";QueueEndpoint=/canary"},
			[]string{"QueueEndpoint is not a URL"},
		},
		"ftp": {
			map[string]string{name: basics + ";QueueEndpoint=ftp://canary"},
			[]string{"want https or http"},
		},
		"endpoint_query": {
			map[string]string{name: basics + ";QueueEndpoint=https://x/?" + signature},
			[]string{"QueueEndpoint is not a plain URL"},
		},
		"endpoint_user": {
			map[string]string{name: basics + ";QueueEndpoint=https://u:canary@x/"},
			[]string{"QueueEndpoint is not a plain URL"},
		},
		"no_signature": {
			map[string]string{name: "AccountName=acct;SharedAccessSignature=sv=canary"},
			[]string{"SharedAccessSignature is invalid"},
		},
		"development": {
			map[string]string{name: "UseDevelopmentStorage=canary"},
			[]string{"UseDevelopmentStorage can only be true"},
		},
		"proxy": {
			map[string]string{name: "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=canary"},
			[]string{"DevelopmentStorageProxyUri is not a URL"},
		},
		"identity_http": {
			map[string]string{name + "__queueServiceUri": "http://canary.example"},
			[]string{name + "__queueServiceUri: not a usable URL: want https"},
		},
		"identity_no_url": {
			map[string]string{name + "__serviceUri": "canary"},
			[]string{name + "__serviceUri: not a URL"},
		},
		"identity_account": {
			map[string]string{name + "__accountName": "canary.evil.example/"},
			[]string{name + "__accountName: not the name of a storage account"},
		},
		"identity_unknown": {
			map[string]string{name + "__accountName": "acct", name + "__credential": canary},
			[]string{name + "__credential: unknown: want managedidentity"},
		},
		"identity_parts": {
			map[string]string{name + "__accountName": "acct", name + "__clientSecret": canary},
			[]string{name + "__tenantId: missing", name + "__clientId: missing"},
		},
		"identity_client_and_tenant": {
			map[string]string{name + "__accountName": "acct", name + "__clientId": canary, name + "__tenantId": canary},
			[]string{name + "__clientSecret: missing"},
		},
		"identity_client_and_resource": {
			map[string]string{
				name + "__accountName": "acct", name + "__clientId": canary,
				name + "__managedIdentityResourceId": resourceID,
			},
			[]string{name + "__clientId: only one of __clientId, __managedIdentityResourceId can select the identity"},
		},
		"identity_two_identities": {
			map[string]string{
				name + "__accountName": "acct", name + "__credential": "managedidentity",
				name + "__clientId": canary, name + "__managedIdentityResourceId": resourceID,
			},
			[]string{name + "__clientId: only one of __clientId, __managedIdentityResourceId can select the identity"},
		},
		"identity_no_resource_id": {
			map[string]string{
				name + "__accountName": "acct", name + "__credential": "managedidentity",
				name + "__managedIdentityResourceId": canary,
			},
			[]string{name + "__managedIdentityResourceId: not a resource id: want /subscriptions/"},
		},
		"identity_object_alone": {
			map[string]string{name + "__accountName": "acct", name + "__managedIdentityObjectId": canary},
			[]string{name + "__managedIdentityObjectId: set " + name + "__credential to managedidentity as well"},
		},
		"unknown_keys": {
			map[string]string{
				name + "__accountname": "acct", name + "__acountName": canary,
				name + "__managedIdentityResourceID_": canary,
				name + ":clientCertificate":           canary, name + "__queue__serviceUri": canary,
				name + "__":      canary,
				name + "__retry": canary,
			},
			[]string{
				name + ":clientCertificate: unknown, or not supported by Async Caller: the most similar setting is " +
					name + "__clientSecret",
				name + "__: unknown",
				name + "__acountName: unknown, or not supported by Async Caller: the most similar setting is " + name +
					"__accountName",
				name + "__managedIdentityResourceID_: unknown, or not supported by Async Caller: the most similar " +
					"setting is " + name + "__managedIdentityResourceId",
				name + "__queue__serviceUri: unknown, or not supported by Async Caller: the most similar setting is " +
					name + "__queueServiceUri",
				name + "__retry: unknown",
			},
		},
		"unknown_key_beside_a_connection_string": {
			map[string]string{name: basics, name + "__acountName": canary},
			[]string{name + "__acountName: unknown"},
		},
		"identity_everything_wrong": {
			map[string]string{name + "__queueServiceUri": "http://canary", name + "__credential": canary},
			[]string{name + "__queueServiceUri: ", name + "__credential: "},
		},
		"identity_nowhere": {
			map[string]string{name + "__credential": "managedidentity"},
			[]string{name + ": missing: want a connection string, UseDevelopmentStorage=true, or an identity: " +
				name + "__accountName"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			conn, err := parse(test.settings)
			if err == nil || conn != (azure.Connection{}) {
				t.Fatalf("got %v, %v; want an error and nothing else", conn, err)
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(test.want) {
				t.Fatalf("problems:\n%v\nwant %d", err, len(test.want))
			}
			for i, want := range test.want {
				if !strings.Contains(lines[i], want) || !strings.HasPrefix(lines[i], "AzureWebJobsStorage") {
					t.Errorf("problem %q, want the setting and %q", lines[i], want)
				}
			}
			if strings.Contains(strings.ToLower(err.Error()), canary) {
				t.Errorf("a value shows in %q", err)
			}
		})
	}
}

func TestConnectionHidesSecrets(t *testing.T) {
	conn := azure.Connection{
		Endpoint: "https://acct.queue.core.windows.net", AccountName: "acct", AccountKey: "canary-key",
		SAS:      "canary-sas",
		Identity: azure.Identity{ClientSecret: "canary-secret"},
	}
	values := map[string]any{
		"value": conn, "pointer": &conn, "slice": []azure.Connection{conn},
		"map":    map[string]azure.Connection{"x": conn},
		"secret": conn.AccountKey, "pointer to secret": &conn.AccountKey, "identity": conn.Identity,
	}
	for what, value := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%q", "%x", "%X", "%t", "%08.3f", "%c", "%U"} {
			if got := fmt.Sprintf(verb, value); strings.Contains(got, "canary") ||
				strings.Contains(got, "63616e617279") || strings.Contains(got, "63616E617279") {
				t.Errorf("%s shows in %s: %s", what, verb, got)
			}
		}
		if got := fmt.Sprint(value) + fmt.Sprintln(value); strings.Contains(got, "canary") {
			t.Errorf("%s shows in Sprint: %s", what, got)
		}
		got, err := json.Marshal(value)
		if err != nil || strings.Contains(string(got), "canary") {
			t.Errorf("%s shows in JSON: %s, %v", what, got, err)
		}
	}
	if got := fmt.Sprintf("%v %s %#v", conn.SAS, conn.SAS.String(), conn.SAS.GoString()); got != `*** *** "***"` {
		t.Errorf("a secret is printed as %s", got)
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

// TestConnectionStringSiblings: the host refuses these strings, or cannot use them, and an error names the part.
func TestConnectionStringSiblings(t *testing.T) {
	const (
		account   = "AccountName=acct;AccountKey=" + key
		sas       = "SharedAccessSignature=" + signature
		queue     = ";QueueEndpoint=http://127.0.0.1:10001/acct"
		signed    = sas + queue
		developed = "UseDevelopmentStorage=true"
	)
	for text, want := range map[string]string{
		account + ";\tEndpointSuffix=core.invalid":       "part 3 of the connection string, EndpointSuffix, has",
		account + ";\r\nEndpointSuffix=core.invalid":     "part 3 of the connection string, EndpointSuffix, has",
		"'" + account + "'":                              "AccountName, has white space, a quotation mark",
		"\ufeff" + account:                               "AccountName, has white space, a quotation mark",
		account + ";=canary":                             "part 3 of the connection string has an unknown name",
		account + ";canary":                              "part 3 of the connection string is not Name=Value",
		account + ";Queue_Endpoint=http://a/b":           "unknown name; did you mean QueueEndpoint?",
		account + ";accountkey=" + key:                   "AccountKey is in the connection string twice",
		account + ";EndpointSuffix=core.invalid/":        "EndpointSuffix is not a domain name",
		account + ";EndpointSuffix=core.invalid:443":     "EndpointSuffix is not a domain name",
		account + ";EndpointSuffix=core..invalid":        "EndpointSuffix is not a domain name",
		account + ";EndpointSuffix=127.0.0.1":            "EndpointSuffix is not a domain name",
		account + queue + ";EndpointSuffix=.invalid":     "EndpointSuffix is not a domain name",
		account + ";EndpointSuffix=":                     "EndpointSuffix is empty",
		account + ";DefaultEndpointsProtocol=https ":     "DefaultEndpointsProtocol can only be https or http",
		account + ";DefaultEndpointsProtocol=":           "DefaultEndpointsProtocol is empty",
		account + ";QueueEndpoint=":                      "QueueEndpoint is empty",
		account + ";QueueEndpoint=http://a/b c":          "QueueEndpoint is not a URL",
		account + ";TableEndpoint=acct":                  "TableEndpoint is not a URL",
		account + ";FileEndpoint=:::":                    "FileEndpoint is not a URL",
		account + queue + ";QueueSecondaryEndpoint=x":    "QueueSecondaryEndpoint is not a URL",
		account + ";QueueSecondaryEndpoint=http://a/b":   "QueueSecondaryEndpoint but no QueueEndpoint",
		account + ";BlobSecondaryEndpoint=http://a/b":    "BlobSecondaryEndpoint but no BlobEndpoint",
		"AccountName=;AccountKey=" + key:                 "AccountName is empty",
		"AccountName=acct ;AccountKey=" + key:            "AccountName is not the name",
		account + "\u00a0":                               "AccountKey is not base64",
		"AccountName=acct;AccountKey= ":                  "AccountKey is not base64",
		"AccountName=acct;AccountKey=canary;" + sas:      "both AccountKey and SharedAccessSignature",
		"AccountName=acct;AccountKeyName=key1;" + sas:    "AccountKeyName but no AccountKey",
		"AccountKey=" + key + queue:                      "AccountKey but no AccountName",
		"AccountName=acct;SharedAccessSignature=":        "SharedAccessSignature is empty",
		signed + ";DefaultEndpointsProtocol=http":        "DefaultEndpointsProtocol but no AccountName",
		signed + ";EndpointSuffix=core.invalid":          "EndpointSuffix but no AccountName",
		queue:                                            "neither AccountKey nor SharedAccessSignature",
		developed + ";" + account:                        "UseDevelopmentStorage and AccountKey exclude each other",
		developed + queue:                                "UseDevelopmentStorage and QueueEndpoint exclude each other",
		developed + " ":                                  "UseDevelopmentStorage can only be true",
		"UseDevelopmentStorage=false;" + account:         "UseDevelopmentStorage can only be true",
		"UseDevelopmentStorage=":                         "UseDevelopmentStorage is empty",
		developed + ";DevelopmentStorageProxyUri=":       "DevelopmentStorageProxyUri is empty",
		account + ";DevelopmentStorageProxyUri=http://a": "DevelopmentStorageProxyUri but no UseDevelopmentStorage",
	} {
		_, err := parse(map[string]string{name: text})
		switch {
		case err == nil || !strings.Contains(err.Error(), want):
			t.Errorf("%q: %v, want %q", text, err, want)
		case strings.Contains(err.Error(), key), strings.Contains(err.Error(), "canary"):
			t.Errorf("%q: a value shows in %v", text, err)
		}
	}
	for text, want := range map[string]string{
		"AccountKey=" + key + ";AccountKeyName=key1;AccountName=Acct":         "https://acct.queue.core.windows.net",
		account + ";EndpointSuffix=core.invalid.":                             "https://acct.queue.core.invalid.",
		account + ";queueendpoint=http://127.0.0.1:10001/acct\n":              "http://127.0.0.1:10001/acct",
		account + queue + ";QueueSecondaryEndpoint=http://127.0.0.1:2/acct-2": "http://127.0.0.1:10001/acct",
		account + ";defaultendpointsprotocol=Http":                            "http://acct.queue.core.windows.net",
		"SharedAccessSignature=?" + signature + ";AccountName=acct;EndpointSuffix=core.invalid": "https://acct.queue." +
			"core.invalid",
		developed + ";DEVELOPMENTSTORAGEPROXYURI=https://azurite:1/": "https://azurite:10001/devstoreaccount1",
	} {
		conn, err := parse(map[string]string{name: text})
		if err != nil || conn.Endpoint != want {
			t.Errorf("%q: %s, %v, want %s", text, conn.Endpoint, err, want)
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
		conn, err := parse(map[string]string{name: text})
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
