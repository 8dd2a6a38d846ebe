package envelope

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/rules/dotnet"
)

func (*nexus) names() strictjson.Names { return strictjson.FoldNames }

func (*nexus) deadlineName() string { return nexusDeadlineAt }

var (
	errNotInNexus = errors.New("the Nexus format has no place for it")
	errUserInfo   = errors.New("the Nexus format has no place for user information")
)

// nexusStrings are the members that can only be strings, apart from those of RawRequest.
var nexusStrings = []string{
	nexusOrganization, nexusEnvironment, nexusOriginalRequestID, nexusCreatedAt, nexusLatestAttemptAt,
	nexusNextAttemptAt, nexusDeadlineAt, nexusLatestResponse,
}

func (n *nexus) setPath(content []byte, path []string, text string) ([]byte, error) {
	switch path[0] {
	case string(partCall), string(partCallback):
		return n.setCall(content, part(path[0]), path[1:], text)
	case "retry", "giveUp", "notBefore", nativeMarker:
		return nil, errNotInNexus
	}
	value := asJSON(text)
	switch strings.Join(path, ".") {
	case "requestId":
		path, value = []string{nexusRawRequest, rawID}, asString(text)
	case "priority":
		path = []string{nexusRawRequest, rawPriority}
	case "context":
		path = []string{nexusRawRequest, rawContext}
		if !strictjson.IsNull(value) {
			value = inBase64(value)
		}
	case "deadline":
		return n.setDeadline(content, text)
	default:
		if isNexusString(path) {
			value = asString(text)
		}
	}
	return n.names().Set(content, path, orNull(value)) // readers of the format expect the member
}

// isNexusString reports whether a member can only be a string.
func isNexusString(path []string) bool {
	if len(path) == 2 && strings.EqualFold(path[0], nexusRawRequest) {
		known := nameIn(rawNames, path[1])
		return known != "" && known != rawPriority
	}
	return len(path) == 1 && nameIn(nexusStrings, path[0]) != ""
}

// setDeadline writes a time the way .NET does. Null means no deadline.
func (n *nexus) setDeadline(content []byte, text string) ([]byte, error) {
	var deadline time.Time
	if value := asString(text); value != nil {
		var err error
		deadline, err = parseDate(value)
		if err != nil {
			return nil, errors.New(`want a time such as "2026-01-31T12:00:00Z"`)
		}
	}
	return n.names().Set(content, []string{nexusDeadlineAt}, quote(dotnet.FormatTime(deadline)))
}

func (n *nexus) setCall(content []byte, of part, path []string, text string) ([]byte, error) {
	name := strings.Join(path, ".")
	switch {
	case name == "url":
		return n.setURL(content, of, text)
	case name == "method":
		method, err := stringOf(text)
		if err != nil {
			return nil, err
		}
		return n.changeMessage(content, of, func(message []byte) ([]byte, error) {
			return dotnet.ReplaceMethod(message, method)
		})
	case len(path) == 2 && path[0] == "headers":
		return n.changeHeader(content, of, path[1], &text)
	case of == partCall && slices.Contains(bodyMembers, name):
		return n.setBody(content, name, text)
	}
	return nil, errNotInNexus
}

func (n *nexus) setBody(content []byte, kind, text string) ([]byte, error) {
	body, contentType := []byte(text), "application/octet-stream"
	switch kind {
	case "json":
		body, contentType = asJSON(text), jsonMediaType
	case "bodyBase64":
		var err error
		body, err = parseBase64(orNull(asString(text)))
		if err != nil {
			return nil, err
		}
	}
	return n.changeMessage(content, partCall, func(message []byte) ([]byte, error) {
		return dotnet.ReplaceBody(message, body, contentType)
	})
}

func (n *nexus) setURL(content []byte, of part, text string) ([]byte, error) {
	address, err := stringOf(text)
	if err != nil {
		return nil, err
	}
	u, err := ParseURL(address)
	switch {
	case err != nil:
		return nil, err
	case u.User != nil:
		return nil, errUserInfo
	}
	return n.setTarget(content, of, strings.ToLower(u.Scheme), u.Host, u.RequestURI())
}

// setTarget sets the parts of the URL of a call. It adds a missing callback.
func (n *nexus) setTarget(content []byte, of part, scheme, host, target string) ([]byte, error) {
	_, path := n.paths(of)
	content, err := n.names().Change(content, path, func(old json.RawMessage) (json.RawMessage, error) {
		if schemeOf(old) == scheme {
			return old, nil
		}
		return quote(scheme), nil
	})
	if err != nil {
		return nil, err
	}
	return n.changeMessage(content, of, func(message []byte) ([]byte, error) {
		if message == nil && of == partCallback {
			return dotnet.FormatRequest(dotnet.Request{Method: http.MethodPost, Target: target, Host: host}), nil
		}
		return dotnet.ReplaceURL(message, host, target)
	})
}

// paths returns the paths of the HTTP request of a call and of its scheme.
func (*nexus) paths(of part) (message, scheme []string) {
	if of == partCallback {
		return []string{nexusRawRequest, rawCallBack}, []string{nexusRawRequest, rawCallBackURIScheme}
	}
	return []string{nexusRawRequest, rawCallOut}, []string{nexusRawRequest, rawCallOutURIScheme}
}

// schemeOf returns the scheme that a member means, or "" for an invalid one. A missing scheme means http.
func schemeOf(value json.RawMessage) string {
	if value == nil || strictjson.IsNull(value) {
		return defaultScheme
	}
	scheme, err := parseScheme(value)
	if err != nil {
		return ""
	}
	return cmp.Or(scheme, defaultScheme)
}

// changeMessage changes the HTTP request of a call; nil means that there is none.
func (n *nexus) changeMessage(content []byte, of part, change func(message []byte) ([]byte, error)) ([]byte, error) {
	path, _ := n.paths(of)
	return n.names().Change(content, path, func(old json.RawMessage) (json.RawMessage, error) {
		var message []byte
		if old != nil && !strictjson.IsNull(old) {
			var err error
			message, err = parseBase64(old)
			if err != nil {
				return nil, err
			}
		}
		changed, err := change(message)
		switch {
		case err != nil && message == nil:
			return nil, errors.New("missing: there is no request to change")
		case err != nil:
			return nil, err
		case bytes.Equal(changed, message):
			return old, nil // base64 has more than one way to write the same bytes
		}
		return inBase64(changed), nil
	})
}

func (n *nexus) changeHeader(content []byte, of part, name string, value *string) ([]byte, error) {
	return n.changeMessage(content, of, func(message []byte) ([]byte, error) {
		if value == nil {
			return dotnet.RemoveHeader(message, name)
		}
		return dotnet.ReplaceHeader(message, name, *value)
	})
}

func (n *nexus) replaceHost(content []byte, of part, replace HostReplacer) ([]byte, error) {
	path, schemePath := n.paths(of)
	message, _ := parseBase64(orNull(n.names().Get(content, path...)))
	request, err := dotnet.ParseRequest(message)
	if err != nil {
		return content, nil //nolint:nilerr // it calls no host; parsing the envelope reports it
	}
	scheme := schemeOf(n.names().Get(content, schemePath...))
	newScheme, host := replace(scheme, request.Host)
	if newScheme == scheme && host == request.Host {
		return content, nil
	}
	return n.setTarget(content, of, newScheme, host, request.Target)
}

// inBase64 returns null for nil.
func inBase64(content []byte) json.RawMessage {
	if content == nil {
		return null
	}
	return quote(base64.StdEncoding.EncodeToString(content))
}
