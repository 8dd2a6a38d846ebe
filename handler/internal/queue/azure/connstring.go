package azure

import (
	"cmp"
	"encoding/base64"
	"net"
	"net/url"
	"strings"
)

// defaultSuffix ends the host names of the public cloud.
const defaultSuffix = "core.windows.net"

// The account that UseDevelopmentStorage=true means: Azurite's, whose key is public
// (https://learn.microsoft.com/azure/storage/common/storage-use-azurite).
const (
	developmentAccount = "devstoreaccount1"
	developmentKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
	developmentPort    = "10001"
	developmentHost    = "127.0.0.1:" + developmentPort
)

// connectionString reads a storage connection string, `Name=Value;Name=Value`, with names in any letter case. The
// SDK's reader is not used: its errors name no setting, and it accepts keys that are not base64 and endpoints that
// are not URLs.
func (s *settings) connectionString(text string) Connection {
	parts := s.parts(text)
	if use, ok := parts["usedevelopmentstorage"]; ok {
		if !strings.EqualFold(use, "true") {
			s.problem(s.name, "UseDevelopmentStorage can only be true")
		}
		return s.development(parts["developmentstorageproxyuri"])
	}
	conn := Connection{Endpoint: s.queueEndpoint(parts)}
	switch {
	case parts["accountkey"] != "":
		conn.AccountName, conn.AccountKey = parts["accountname"], Secret(parts["accountkey"])
		s.checkKey(conn)
	case parts["sharedaccesssignature"] != "":
		conn.SAS = s.signature(parts["sharedaccesssignature"])
	default:
		s.problem(s.name, "the connection string has neither AccountKey nor SharedAccessSignature")
	}
	return conn
}

// parts returns the values by their names in lower case.
func (s *settings) parts(text string) map[string]string {
	parts := make(map[string]string)
	for i, part := range strings.Split(text, ";") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		key, value, ok := strings.Cut(part, "=")
		if !ok || key == "" {
			// The message does not repeat the part, which may be half a key.
			s.problem(s.name, "part %d of the connection string is not Name=Value", i+1)
			continue
		}
		parts[strings.ToLower(key)] = value
	}
	return parts
}

func (s *settings) queueEndpoint(parts map[string]string) string {
	if endpoint := parts["queueendpoint"]; endpoint != "" {
		return s.endpoint(s.name, "QueueEndpoint", endpoint, "https", "http")
	}
	account := parts["accountname"]
	if account == "" {
		s.problem(s.name, "the connection string has neither AccountName nor QueueEndpoint")
		return ""
	}
	scheme := cmp.Or(strings.ToLower(parts["defaultendpointsprotocol"]), "https")
	if scheme != "https" && scheme != "http" {
		s.problem(s.name, "DefaultEndpointsProtocol can only be https or http")
		return ""
	}
	suffix := cmp.Or(parts["endpointsuffix"], defaultSuffix)
	if endpoint := s.accountEndpoint(s.name, scheme, account, suffix); endpoint != "" {
		return s.endpoint(s.name, "EndpointSuffix", endpoint, scheme)
	}
	return ""
}

func (s *settings) checkKey(conn Connection) {
	if conn.AccountName == "" {
		s.problem(s.name, "the connection string has an AccountKey but no AccountName")
	}
	if _, err := base64.StdEncoding.DecodeString(string(conn.AccountKey)); err != nil {
		s.problem(s.name, "AccountKey is not base64: was it cut off?")
	}
}

func (s *settings) signature(text string) Secret {
	text = strings.TrimPrefix(text, "?")
	if query, err := url.ParseQuery(text); err != nil || query.Get("sig") == "" {
		s.problem(s.name, "SharedAccessSignature is invalid: want a query with sig=")
	}
	return Secret(text)
}

// development returns the connection to Azurite, on this machine or on the one that the proxy URI names. As in
// Microsoft's libraries, only the scheme and the host of the URI count; the port is always Azurite's.
func (s *settings) development(proxyURI string) Connection {
	base := url.URL{Scheme: "http", Host: developmentHost}
	if proxyURI != "" {
		if u, err := url.Parse(s.endpoint(s.name, "DevelopmentStorageProxyUri", proxyURI, "http", "https")); err == nil {
			base.Scheme, base.Host = u.Scheme, net.JoinHostPort(u.Hostname(), developmentPort)
		}
	}
	return Connection{
		Endpoint:    base.String() + "/" + developmentAccount,
		AccountName: developmentAccount,
		AccountKey:  developmentKey,
	}
}
