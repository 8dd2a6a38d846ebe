package azure

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Connection is the address of a Queue Storage account and the credential for it: AccountKey if it is set, else SAS,
// else Identity. Printing it shows no secret.
type Connection struct {
	// Endpoint is the URL of the account's queue service, without a query:
	// https://myaccount.queue.core.windows.net, or http://127.0.0.1:10001/devstoreaccount1.
	Endpoint string
	// AccountName belongs to AccountKey, which signs requests; otherwise it is empty.
	AccountName string
	// AccountKey is the account's shared key, base64-encoded.
	AccountKey Secret
	// SAS is a shared access signature: the query, without a question mark.
	SAS Secret
	// Identity is used when there is neither key nor SAS.
	Identity Identity
}

// Identity is the Microsoft Entra identity that requests storage tokens. It needs the role Storage Queue Data
// Contributor. The zero value is the default credential: the environment's variables, a workload or managed identity,
// or the account with which a developer has signed in.
type Identity struct {
	// ManagedIdentity selects the machine's identity: the one with ClientID, or the system-assigned one if ClientID
	// is empty.
	ManagedIdentity bool
	// TenantID, ClientID and ClientSecret together are the credential of an application.
	TenantID     string
	ClientID     string
	ClientSecret Secret
}

// ParseConnection reads the connection with the given name, normally AzureWebJobsStorage, from settings, as the
// Functions host does. The setting of that name is a connection string and takes precedence. Otherwise the first of
// <name>__accountName, <name>__queueServiceUri and <name>__serviceUri is the address of the account, and
// <name>__credential, __clientId, __tenantId and __clientSecret are the identity. The error joins all problems. Each
// names the setting and what is wanted, and none repeats a value.
func ParseConnection(getenv func(string) string, name string) (Connection, error) {
	s := settings{name: name, get: func(key string) string { return strings.TrimSpace(getenv(key)) }}
	var conn Connection
	if text := s.get(name); text != "" {
		conn = s.connectionString(text)
	} else {
		conn = s.identity()
	}
	if err := errors.Join(s.problems...); err != nil {
		return Connection{}, err
	}
	return conn, nil
}

// settings reads the settings of one connection and collects the problems.
type settings struct {
	name     string
	get      func(string) string
	problems []error
}

func (s *settings) problem(key, format string, args ...any) {
	s.problems = append(s.problems, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
}

const (
	accountNameKey     = "__accountName"
	queueServiceURIKey = "__queueServiceUri"
	serviceURIKey      = "__serviceUri"
	credentialKey      = "__credential" //nolint:gosec // a setting's name
	clientIDKey        = "__clientId"
	tenantIDKey        = "__tenantId"
	clientSecretKey    = "__clientSecret"
)

// identity reads a connection without a connection string.
func (s *settings) identity() Connection {
	return Connection{Endpoint: s.serviceURI(), Identity: s.credential()}
}

func (s *settings) serviceURI() string {
	if account := s.get(s.name + accountNameKey); account != "" {
		// Like the host, which supports only the public cloud here; for other clouds set the URI.
		return s.accountEndpoint(s.name+accountNameKey, "https", account, defaultSuffix)
	}
	for _, suffix := range []string{queueServiceURIKey, serviceURIKey} {
		key := s.name + suffix
		if uri := s.get(key); uri != "" {
			return s.endpoint(key, "", uri, "https")
		}
	}
	s.problem(s.name, "missing: want a connection string, UseDevelopmentStorage=true, or an identity: %s or %s",
		s.name+accountNameKey, s.name+queueServiceURIKey)
	return ""
}

func (s *settings) credential() Identity {
	id := Identity{
		TenantID:     s.get(s.name + tenantIDKey),
		ClientID:     s.get(s.name + clientIDKey),
		ClientSecret: Secret(s.get(s.name + clientSecretKey)),
	}
	switch kind := s.get(s.name + credentialKey); {
	case strings.EqualFold(kind, "managedidentity"):
		return Identity{ManagedIdentity: true, ClientID: id.ClientID}
	case kind != "":
		s.problem(s.name+credentialKey, "unknown: want managedidentity, or leave it out")
	case id != Identity{}:
		s.requireAll(id)
	}
	return id
}

// requireAll reports the missing parts of an application's credential.
func (s *settings) requireAll(id Identity) {
	const why = "missing: %s, %s and %s only work together (or set %s to managedidentity)"
	for _, part := range []struct{ suffix, value string }{
		{tenantIDKey, id.TenantID}, {clientIDKey, id.ClientID}, {clientSecretKey, string(id.ClientSecret)},
	} {
		if part.value == "" {
			s.problem(s.name+part.suffix, why, tenantIDKey, clientIDKey, clientSecretKey, credentialKey)
		}
	}
}

// accountName matches the names that Azure allows. The name becomes part of a host name.
var accountName = regexp.MustCompile(`^[a-z0-9]{3,24}$`)

// accountEndpoint returns the URL of an account's queue service.
func (s *settings) accountEndpoint(key, scheme, account, suffix string) string {
	if !accountName.MatchString(account) {
		s.problem(key, "not the name of a storage account: want 3 to 24 lower-case letters and digits")
		return ""
	}
	return scheme + "://" + account + ".queue." + suffix
}

// endpoint checks a URL and returns it without slashes at the end. Part names the part of the setting that holds the
// URL; it is empty if the whole setting does.
func (s *settings) endpoint(key, part, text string, schemes ...string) string {
	if part != "" {
		part += " is "
	}
	want := strings.Join(schemes, " or ")
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "": // the error would repeat the text
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
