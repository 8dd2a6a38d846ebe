package azure

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"asynccaller/handler/internal/plain/nearest"
	"asynccaller/handler/internal/plain/secret"
)

// Connection is the address of a Queue Storage account and the credential for it: AccountKey if it is set, else SAS,
// else Identity. Printing it shows no secret.
type Connection struct {
	// Endpoint is the URL of the account's queue service, without a query:
	// https://myaccount.queue.core.windows.net, or http://127.0.0.1:10001/devstoreaccount1.
	Endpoint string
	// TableEndpoint is the URL of the account's table service; it is empty if the settings do not tell it.
	TableEndpoint string
	// BlobEndpoint is that of the blob service, which only the Functions host uses. It is not validated.
	BlobEndpoint string
	// AccountName belongs to AccountKey, which signs requests; otherwise it is empty.
	AccountName string
	// AccountKey is the account's shared key, base64-encoded.
	AccountKey secret.Text
	// SAS is a shared access signature: the query, without a question mark.
	SAS secret.Text
	// Identity is used when there is neither key nor SAS.
	Identity Identity
}

// Account names the account: its endpoint without the scheme, so that the protocol does not matter.
func (c Connection) Account() string {
	u, err := url.Parse(c.Endpoint)
	if err != nil {
		return ""
	}
	return u.Host + strings.TrimRight(u.Path, "/")
}

// Identity is the Microsoft Entra identity that requests storage tokens. It needs the role Storage Queue Data
// Contributor. The zero value is the default credential: the environment's variables, a workload or managed identity,
// or the account with which a developer has signed in.
type Identity struct {
	// ManagedIdentity selects the machine's identity: the one with ClientID, ResourceID or ObjectID, or the
	// system-assigned one if all are empty.
	ManagedIdentity      bool
	ResourceID, ObjectID string
	// TenantID, ClientID and ClientSecret together are the credential of an application.
	TenantID     string
	ClientID     string
	ClientSecret secret.Text
}

// ParseConnection reads the connection with the given name, normally AzureWebJobsStorage, from an environment in the
// form of os.Environ, as the Functions host does: the letter case of names does not matter, and a colon means the same
// as two underscores. The setting of that name is a connection string and takes precedence. Otherwise the first of
// <name>__accountName, <name>__queueServiceUri and <name>__serviceUri is the address of the account, and
// <name>__credential, __clientId and so on are the identity. Other settings below the name are problems. The error
// joins all problems. Each names the setting and what is wanted, and none repeats a value.
func ParseConnection(environ []string, name string) (Connection, error) {
	s := newSettings(environ, name)
	for _, variable := range environ {
		key, value, _ := strings.Cut(variable, "=")
		suffix, ok := strings.CutPrefix(configKey(key), configKey(name+separator))
		if ok && strings.TrimSpace(value) != "" {
			s.checkKey(key, suffix)
		}
	}
	var conn Connection
	if s.get(name) != "" {
		conn = s.connectionString(s.values[configKey(name)])
	} else {
		conn = Connection{
			Endpoint:      s.serviceURI(),
			Identity:      s.credential(),
			BlobEndpoint:  s.get(name + blobServiceURIKey),
			TableEndpoint: s.endpoint(name+tableServiceURIKey, "", s.get(name+tableServiceURIKey), "https"),
		}
	}
	conn.TableEndpoint = cmp.Or(conn.TableEndpoint, siblingEndpoint(conn.Endpoint, ".table."))
	conn.BlobEndpoint = cmp.Or(conn.BlobEndpoint, siblingEndpoint(conn.Endpoint, ".blob."))
	if err := errors.Join(s.problems...); err != nil {
		return Connection{}, err
	}
	return conn, nil
}

// azureHost matches the hosts of queues, tables and blobs in the public cloud, in Azure Government and in China, which
// are the clouds of azcore's package cloud, and of accounts with an Azure DNS zone. Microsoft owns all names below
// these suffixes.
var azureHost = regexp.MustCompile(`^([a-z0-9-]+\.)+(queue|table|blob)\.` +
	`(core\.windows\.net|core\.usgovcloudapi\.net|core\.chinacloudapi\.cn|storage\.azure\.net)$`)

// isAzure reports whether an endpoint is one of Azure Storage, and TLS proves it.
func isAzure(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "https" || u.User != nil {
		return false
	}
	defaultPort := u.Port() == "" || u.Port() == "443"
	return defaultPort && azureHost.MatchString(strings.ToLower(u.Hostname()))
}

// UntrustedHosts returns the settings of a valid connection that would send a token of its identity to a host that is
// neither Azure Storage nor named by the same setting of the trusted environment. With a key or a SAS there are none:
// the connection string that names the host has the credential too.
func UntrustedHosts(environ, trusted []string, name string) (untrusted []string) {
	conn, err := ParseConnection(environ, name)
	if err != nil || conn.AccountKey != "" || conn.SAS != "" {
		return nil
	}
	s, own := newSettings(environ, name), newSettings(trusted, name)
	account := s.first(accountNameKey, queueServiceURIKey, serviceURIKey)
	for _, service := range []struct{ endpoint, key string }{
		{conn.Endpoint, account},
		{conn.TableEndpoint, cmp.Or(s.first(tableServiceURIKey), account)},
		{conn.BlobEndpoint, cmp.Or(s.first(blobServiceURIKey), account)},
	} {
		isTrusted := service.endpoint == "" || isAzure(service.endpoint) || own.get(service.key) == s.get(service.key)
		if !isTrusted && !slices.Contains(untrusted, service.key) {
			untrusted = append(untrusted, service.key)
		}
	}
	return untrusted
}

// Sets reports whether a variable, in the form of os.Environ, has a value and belongs to the connection with the given
// name.
func Sets(variable, name string) bool {
	key, value, _ := strings.Cut(variable, "=")
	key, name = configKey(key), configKey(name)
	return strings.TrimSpace(value) != "" && (key == name || strings.HasPrefix(key, configKey(name+separator)))
}

// settings reads the settings of one connection and collects the problems.
type settings struct {
	name string
	// values are those of all variables as they are written, by configKey.
	values   map[string]string
	problems []error
}

func newSettings(environ []string, name string) *settings {
	s := &settings{name: name, values: map[string]string{}}
	for _, variable := range environ {
		key, value, _ := strings.Cut(variable, "=")
		s.values[configKey(key)] = value
	}
	return s
}

// get returns a value without white space around it, which a connection string must not have.
func (s *settings) get(key string) string { return strings.TrimSpace(s.values[configKey(key)]) }

// first returns the name of the first setting that has a value, by the end of its name.
func (s *settings) first(suffixes ...string) string {
	for _, suffix := range suffixes {
		if s.get(s.name+suffix) != "" {
			return s.name + suffix
		}
	}
	return ""
}

const separator = "__"

// configKey returns the form of a variable's name in which the Functions host looks it up.
func configKey(name string) string { return strings.ToLower(strings.ReplaceAll(name, separator, ":")) }

// checkKey reports a setting that has no effect: it would be a typing error, or a credential that only the host
// supports.
func (s *settings) checkKey(key, suffix string) {
	known := []string{
		accountNameKey, queueServiceURIKey, serviceURIKey, credentialKey, clientIDKey, tenantIDKey, clientSecretKey,
		managedClientIDKey, resourceIDKey, objectIDKey,
		// The host has these for its other services, and retry and diagnostics for its own storage client.
		blobServiceURIKey, tableServiceURIKey, "__fileServiceUri",
	}
	own, nested, _ := strings.Cut(suffix, ":")
	isHosts := nested != "" && (own == "retry" || own == "diagnostics")
	similar, _ := nearest.Name(separator+suffix, known)
	if !isHosts && configKey(similar) != ":"+suffix {
		s.problem(key, "unknown, or not supported by Async Caller: the most similar setting is %s", s.name+similar)
	}
}

func (s *settings) problem(key, format string, args ...any) {
	s.problems = append(s.problems, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
}

const (
	accountNameKey     = "__accountName"
	queueServiceURIKey = "__queueServiceUri"
	tableServiceURIKey = "__tableServiceUri"
	blobServiceURIKey  = "__blobServiceUri"
	serviceURIKey      = "__serviceUri"
	credentialKey      = "__credential" //nolint:gosec // a setting's name
	clientIDKey        = "__clientId"
	tenantIDKey        = "__tenantId"
	clientSecretKey    = "__clientSecret"
	managedClientIDKey = "__managedIdentityClientId"
	resourceIDKey      = "__managedIdentityResourceId"
	objectIDKey        = "__managedIdentityObjectId"
)

func (s *settings) serviceURI() string {
	if account := s.get(s.name + accountNameKey); account != "" {
		// Like the host, which supports only the public cloud here; for other clouds set the URI.
		if !accountName.MatchString(account) {
			s.problem(s.name+accountNameKey, notAccount)
		}
		return "https://" + account + ".queue." + defaultSuffix
	}
	if key := s.first(queueServiceURIKey, serviceURIKey); key != "" {
		return s.endpoint(key, "", s.get(key), "https")
	}
	s.problem(s.name, "missing: want a connection string, UseDevelopmentStorage=true, or an identity: %s or %s",
		s.name+accountNameKey, s.name+queueServiceURIKey)
	return ""
}

func (s *settings) credential() Identity {
	kind := s.get(s.name + credentialKey)
	if strings.EqualFold(kind, "managedidentity") {
		return s.managedIdentity()
	}
	if kind != "" {
		s.problem(s.name+credentialKey, "unknown: want managedidentity, or leave it out")
		return Identity{}
	}
	for _, key := range []string{managedClientIDKey, objectIDKey} {
		if s.get(s.name+key) != "" {
			s.problem(s.name+key, "set %s to managedidentity as well", s.name+credentialKey)
		}
	}
	isManaged := s.first(tenantIDKey, clientSecretKey) == "" && s.first(clientIDKey, resourceIDKey) != ""
	if isManaged { // the host tries this identity first
		return s.managedIdentity()
	}
	id := Identity{
		TenantID:     s.get(s.name + tenantIDKey),
		ClientID:     s.get(s.name + clientIDKey),
		ClientSecret: secret.Text(s.get(s.name + clientSecretKey)),
	}
	if id != (Identity{}) {
		const why = "missing: %s, %s and %s only work together (or set %s to managedidentity)"
		for _, key := range []string{tenantIDKey, clientIDKey, clientSecretKey} {
			if s.get(s.name+key) == "" {
				s.problem(s.name+key, why, tenantIDKey, clientIDKey, clientSecretKey, credentialKey)
			}
		}
	}
	return id
}

// managedIdentity reads which of the machine's identities is meant. The host refuses more than one answer.
func (s *settings) managedIdentity() Identity {
	id := Identity{
		ManagedIdentity: true,
		ClientID:        cmp.Or(s.get(s.name+clientIDKey), s.get(s.name+managedClientIDKey)),
		ResourceID:      s.get(s.name + resourceIDKey),
		ObjectID:        s.get(s.name + objectIDKey),
	}
	given := slices.DeleteFunc([]string{clientIDKey, managedClientIDKey, resourceIDKey, objectIDKey},
		func(key string) bool { return s.get(s.name+key) == "" })
	if len(given) > 1 {
		s.problem(s.name+given[0], "only one of %s can select the identity", strings.Join(given, ", "))
	}
	if id.ResourceID != "" && !strings.HasPrefix(strings.ToLower(id.ResourceID), "/subscriptions/") {
		s.problem(s.name+resourceIDKey, "not a resource id: want /subscriptions/.../userAssignedIdentities/NAME")
	}
	return id
}

// accountName matches the names that Azure allows. The name becomes part of a host name.
var accountName = regexp.MustCompile(`^[a-z0-9]{3,24}$`)

const notAccount = "not the name of a storage account: want 3 to 24 lower-case letters and digits"

// endpoint checks a URL, if there is one, and returns it without slashes at the end. Part names the part of the setting
// that holds the URL; it is empty if the whole setting does.
func (s *settings) endpoint(key, part, text string, schemes ...string) string {
	if part != "" {
		part += " is "
	}
	want := strings.Join(schemes, " or ")
	text = strings.Trim(text, " \t\r\n") // as .NET does
	u, err := url.Parse(text)
	switch {
	case text == "":
	case err != nil || u.Hostname() == "" || strings.ContainsAny(text, " \\\"<>^`{|}"): // the error would repeat the text
		s.problem(key, "%snot a URL: want an absolute %s URL", part, want)
	case !slices.Contains(schemes, u.Scheme):
		s.problem(key, "%snot a usable URL: want %s", part, want)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		s.problem(key, "%snot a plain URL: want it without user, query and fragment", part)
	default:
		return strings.TrimRight(text, "/")
	}
	return ""
}

// defaultSuffix ends the host names of the public cloud.
const defaultSuffix = "core.windows.net"

// The account that UseDevelopmentStorage=true means: Azurite's, whose key is public
// (https://learn.microsoft.com/azure/storage/common/storage-use-azurite).
const (
	developmentAccount   = "devstoreaccount1"
	developmentKey       = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
	developmentPort      = "10001"
	developmentTablePort = "10002"
	developmentBlobPort  = "10000"
)

// connectionString reads a storage connection string, `Name=Value;Name=Value`, as the host does, with
// StorageConnectionString of Azure.Storage.Common (.NET): it refuses what the host refuses. It also refuses what the
// host accepts but cannot use: no credential, an empty key, a SAS without a signature, and endpoints that are not plain
// http or https URLs. The reader of the SDK for Go accepts far more.
func (s *settings) connectionString(text string) Connection {
	services := []string{"Queue", "Table", "Blob", "File"}
	parts, ok := s.parts(text, services)
	if !ok {
		return Connection{} // other problems would follow from these
	}
	if parts["UseDevelopmentStorage"] != "" {
		return s.development(parts)
	}
	needs := [][2]string{
		{"DevelopmentStorageProxyUri", "UseDevelopmentStorage"},
		{"DefaultEndpointsProtocol", "AccountName"},
		{"EndpointSuffix", "AccountName"},
		{"AccountKey", "AccountName"},
		{"AccountKeyName", "AccountKey"},
	}
	endpoints := map[string]string{}
	for _, service := range services {
		primary, secondary := service+"Endpoint", service+"SecondaryEndpoint"
		endpoints[service] = s.endpoint(s.name, primary, parts[primary], "https", "http")
		s.endpoint(s.name, secondary, parts[secondary], "https", "http")
		needs = append(needs, [2]string{secondary, primary})
	}
	for _, pair := range needs {
		if parts[pair[0]] != "" && parts[pair[1]] == "" {
			s.problem(s.name, "the connection string has %s but no %s", pair[0], pair[1])
		}
	}
	defaultEndpoint := s.defaultEndpoint(parts)
	if parts["QueueEndpoint"] == "" {
		endpoints["Queue"] = defaultEndpoint
	}
	conn := Connection{
		Endpoint: endpoints["Queue"], TableEndpoint: endpoints["Table"], BlobEndpoint: endpoints["Blob"],
	}
	key, signature := parts["AccountKey"], parts["SharedAccessSignature"]
	switch {
	case key != "" && signature != "":
		s.problem(s.name, "the connection string has both AccountKey and SharedAccessSignature: remove one of them")
	case key != "":
		// .NET ignores these characters in base64.
		key = strings.NewReplacer(" ", "", "\t", "", "\r", "", "\n", "").Replace(key)
		if _, err := base64.StdEncoding.DecodeString(key); err != nil || key == "" {
			s.problem(s.name, "AccountKey is not base64: was it cut off?")
		}
		conn.AccountName, conn.AccountKey = parts["AccountName"], secret.Text(key)
	case signature != "":
		signature = strings.TrimPrefix(signature, "?")
		if query, err := url.ParseQuery(signature); err != nil || query.Get("sig") == "" {
			s.problem(s.name, "SharedAccessSignature is invalid: want a query with sig=")
		}
		conn.SAS = secret.Text(signature)
	default:
		s.problem(s.name, "the connection string has neither AccountKey nor SharedAccessSignature")
	}
	return conn
}

// parts returns the values by the names of the parts, which have any letter case. It reports false if a part itself is
// wrong. A problem repeats no part, which may be half a key.
func (s *settings) parts(text string, services []string) (parts map[string]string, ok bool) {
	known := []string{
		"DefaultEndpointsProtocol", "EndpointSuffix", "AccountName", "AccountKey", "AccountKeyName",
		"SharedAccessSignature", "UseDevelopmentStorage", "DevelopmentStorageProxyUri",
	}
	for _, service := range services {
		known = append(known, service+"Endpoint", service+"SecondaryEndpoint")
	}
	parts, before := map[string]string{}, len(s.problems)
	for i, part := range strings.Split(text, ";") {
		written, value, isPair := strings.Cut(part, "=")
		bare := strings.TrimFunc(written, func(r rune) bool { return !unicode.IsLetter(r) })
		name, _ := nearest.Name(bare, known)
		isKnown := strings.EqualFold(name, bare)
		switch {
		case part == "":
		case !isPair:
			s.problem(s.name, "part %d of the connection string is not Name=Value", i+1)
		case !isKnown:
			s.problem(s.name, "part %d of the connection string has an unknown name%s", i+1, nearest.Hint(bare, known))
		case bare != written:
			s.problem(s.name, "part %d of the connection string, %s, has white space, a quotation mark or another "+
				"character beside its name", i+1, name)
		case value == "":
			s.problem(s.name, "%s is empty", name)
		case parts[name] != "":
			s.problem(s.name, "%s is in the connection string twice", name)
		default:
			parts[name] = value
		}
	}
	return parts, len(s.problems) == before
}

// domain matches the domain names that .NET accepts, and IPv4 addresses.
var domain = regexp.MustCompile(`^([A-Za-z0-9][\w-]{0,62}\.)*[A-Za-z0-9][\w-]{0,62}\.?$`)

// defaultEndpoint returns the URL of the queue service of a connection string without QueueEndpoint. It checks the
// parts of the URL in either case.
func (s *settings) defaultEndpoint(parts map[string]string) string {
	account := parts["AccountName"]
	switch {
	case account == "" && parts["QueueEndpoint"] == "":
		s.problem(s.name, "the connection string has neither AccountName nor QueueEndpoint")
	case account != "" && !domain.MatchString(account):
		s.problem(s.name, "AccountName is "+notAccount)
	}
	scheme := strings.ToLower(cmp.Or(parts["DefaultEndpointsProtocol"], "https"))
	if scheme != "https" && scheme != "http" {
		s.problem(s.name, "DefaultEndpointsProtocol can only be https or http")
	}
	suffix := cmp.Or(parts["EndpointSuffix"], defaultSuffix)
	if !domain.MatchString(suffix) || net.ParseIP(suffix) != nil {
		s.problem(s.name, "EndpointSuffix is not a domain name such as core.windows.net: "+
			"want no white space, scheme, port or path, and no dot at the beginning")
	}
	return scheme + "://" + strings.ToLower(account+".queue."+suffix)
}

// siblingEndpoint returns the URL of another service of an account with a normal address, such as ".table.", else an
// empty text.
func siblingEndpoint(queueEndpoint, service string) string {
	account, suffix, ok := strings.Cut(queueEndpoint, ".queue.")
	if !ok {
		return ""
	}
	return account + service + suffix
}

// development returns the connection to Azurite, on this machine or on the one that the proxy URI names. As in
// Microsoft's libraries, only the scheme and the host of the URI count; the port is always Azurite's.
func (s *settings) development(parts map[string]string) Connection {
	if !strings.EqualFold(parts["UseDevelopmentStorage"], "true") {
		s.problem(s.name, "UseDevelopmentStorage can only be true")
	}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		if name != "UseDevelopmentStorage" && name != "DevelopmentStorageProxyUri" {
			s.problem(s.name, "UseDevelopmentStorage and %s exclude each other: remove one of them", name)
		}
	}
	scheme, host := "http", "127.0.0.1"
	valid := s.endpoint(s.name, "DevelopmentStorageProxyUri", parts["DevelopmentStorageProxyUri"], "http", "https")
	if u, err := url.Parse(valid); err == nil && valid != "" {
		scheme, host = u.Scheme, u.Hostname()
	}
	at := func(port string) string {
		return scheme + "://" + net.JoinHostPort(host, port) + "/" + developmentAccount
	}
	return Connection{
		Endpoint:      at(developmentPort),
		TableEndpoint: at(developmentTablePort),
		BlobEndpoint:  at(developmentBlobPort),
		AccountName:   developmentAccount,
		AccountKey:    developmentKey,
	}
}
