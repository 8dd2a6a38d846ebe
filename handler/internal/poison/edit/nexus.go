package edit

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/dotnet"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/strictjson"
)

// nexus edits envelopes of Nexus Async Caller, whose calls are the bytes of HTTP requests.
type nexus struct{}

// rawRequest is the member that holds the calls.
const rawRequest = "RawRequest"

// foldName tells names apart as the C# side does.
func foldName(a, b string) bool { return strings.EqualFold(a, b) }

// members are those of RawRequest that make up one of the calls.
func (p part) members() (message, scheme []string) {
	if p == callbacks {
		return []string{rawRequest, "CallBack"}, []string{rawRequest, "CallBackUriScheme"}
	}
	return []string{rawRequest, "CallOut"}, []string{rawRequest, "CallOutUriScheme"}
}

// errNoPlace is about members that only native envelopes have.
var errNoPlace = errors.New("the Nexus format has no place for it")

// nexusStrings are the members that only a string can be, in lower case.
var nexusStrings = []string{
	"organization", "environment", "originalrequestid", "createdat", "latestattemptat", "nextattemptat", "deadlineat",
	"latestresponse", "rawrequest.id", "rawrequest.title", "rawrequest.context", "rawrequest.callout",
	"rawrequest.callouturischeme", "rawrequest.callback", "rawrequest.callbackurischeme",
}

func (n nexus) set(content []byte, path []string, text string) ([]byte, error) {
	switch path[0] {
	case string(calls), string(callbacks):
		return n.setCall(content, part(path[0]), path[1:], text)
	case "retry", "giveUp", "notBefore", "asyncCaller":
		return nil, errNoPlace
	}
	switch joined := strings.Join(path, "."); joined {
	case "requestId":
		return n.setRaw(content, []string{rawRequest, "Id"}, asString(text))
	case "deadline":
		return n.setDeadline(content, text)
	case "priority":
		return n.setRaw(content, []string{rawRequest, "Priority"}, asJSON(text))
	case "context":
		value := asJSON(text)
		if !strictjson.IsNull(value) {
			value = inBase64(value)
		}
		return n.setRaw(content, []string{rawRequest, "Context"}, value)
	default:
		value := asJSON(text)
		if slices.Contains(nexusStrings, strings.ToLower(joined)) {
			value = asString(text)
		}
		return n.setRaw(content, path, value)
	}
}

// setRaw sets a member of the format's own. Readers of the format expect those that there are.
func (nexus) setRaw(content []byte, path []string, value json.RawMessage) ([]byte, error) {
	if value == nil {
		value = json.RawMessage("null")
	}
	return names(foldName).at(content, path, become(value))
}

// setDeadline writes a moment as .NET does.
func (n nexus) setDeadline(content []byte, text string) ([]byte, error) {
	var deadline time.Time // never
	if value := asString(text); value != nil {
		moment, err := strictjson.String(value)
		if err == nil {
			deadline, err = dotnet.ParseTime(moment)
		}
		if err != nil {
			return nil, errors.New(`want a time such as "2026-01-31T12:00:00Z"`)
		}
	}
	return n.setRaw(content, []string{"DeadlineAt"}, quote(dotnet.FormatTime(deadline)))
}

func (n nexus) setCall(content []byte, of part, path []string, text string) ([]byte, error) {
	name := strings.Join(path, ".")
	switch {
	case name == "url":
		return n.setURL(content, of, text)
	case name == "method":
		method, err := strictjson.String(orNothing(asString(text)))
		if err != nil {
			return nil, err
		}
		return n.changeMessage(content, of, func(message []byte) ([]byte, error) { return dotnet.ReplaceMethod(message, method) })
	case len(path) == 2 && path[0] == "headers":
		return n.changeHeader(content, of, HeaderChange{name: path[1], value: text})
	case of == calls && slices.Contains(bodies, name):
		return n.setBody(content, name, text)
	}
	return nil, errNoPlace
}

func (n nexus) setBody(content []byte, kind, text string) ([]byte, error) {
	body, contentType := []byte(text), "application/octet-stream"
	switch kind {
	case "json":
		body, contentType = asJSON(text), "application/json"
	case "bodyBase64":
		encoded, err := strictjson.String(orNothing(asString(text)))
		if err != nil {
			return nil, err
		}
		if body, err = base64.StdEncoding.DecodeString(encoded); err != nil {
			return nil, errors.New("not base64 (standard alphabet, with padding)")
		}
	}
	return n.changeMessage(content, calls, func(message []byte) ([]byte, error) {
		return dotnet.ReplaceBody(message, body, contentType)
	})
}

func (n nexus) setURL(content []byte, of part, text string) ([]byte, error) {
	address, err := strictjson.String(orNothing(asString(text)))
	if err != nil {
		return nil, err
	}
	u, err := envelope.ParseURL(address)
	if err != nil {
		return nil, err
	}
	if u.User != nil {
		return nil, errors.New("the Nexus format has no place for user information")
	}
	if content, err = n.setScheme(content, of, u.Scheme); err != nil {
		return nil, err
	}
	return n.changeMessage(content, of, func(message []byte) ([]byte, error) {
		if message == nil && of == callbacks {
			return dotnet.FormatRequest(dotnet.Request{Method: methodOfCallback, Target: u.RequestURI(), Host: u.Host}), nil
		}
		return dotnet.ReplaceURL(message, u.Host, u.RequestURI())
	})
}

// setScheme leaves the member as it is where it means this scheme already.
func (nexus) setScheme(content []byte, of part, scheme string) ([]byte, error) {
	_, member := of.members()
	return names(foldName).at(content, member, func(old json.RawMessage) (json.RawMessage, error) {
		if strings.EqualFold(schemeOf(old), scheme) {
			return old, nil
		}
		return quote(strings.ToLower(scheme)), nil
	})
}

// schemeOf is what a scheme's member means: http when it says nothing.
func schemeOf(value json.RawMessage) string {
	text, err := strictjson.String(orNothing(value))
	if text = strings.TrimSpace(text); err != nil || text == "" {
		return "http"
	}
	return text
}

// changeMessage changes the HTTP request of a call; nil is one that is not there.
func (nexus) changeMessage(content []byte, of part, to func(message []byte) ([]byte, error)) ([]byte, error) {
	member, _ := of.members()
	return names(foldName).at(content, member, func(old json.RawMessage) (json.RawMessage, error) {
		message, err := messageIn(old)
		if err != nil {
			return nil, err
		}
		changed, err := to(message)
		switch {
		case err != nil && message == nil:
			return nil, errors.New("missing: there is no request to be changed")
		case err != nil:
			return nil, err
		case bytes.Equal(changed, message):
			return old, nil // base64 has more than one way to write the same bytes
		}
		return inBase64(changed), nil
	})
}

// messageIn is the HTTP request that a member holds, or nil.
func messageIn(value json.RawMessage) ([]byte, error) {
	if value == nil || strictjson.IsNull(value) {
		return nil, nil
	}
	text, err := strictjson.String(value)
	if err != nil {
		return nil, err
	}
	message, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, errors.New("not base64 (standard alphabet, with padding)")
	}
	return message, nil
}

func (n nexus) changeHeader(content []byte, of part, change HeaderChange) ([]byte, error) {
	return n.changeMessage(content, of, func(message []byte) ([]byte, error) {
		if change.remove {
			return dotnet.RemoveHeader(message, change.name)
		}
		return dotnet.ReplaceHeader(message, change.name, change.value)
	})
}

func (n nexus) replaceHost(content []byte, change HostChange) ([]byte, error) {
	var err error
	for _, of := range []part{calls, callbacks} {
		replaced := false
		content, err = n.changeMessage(content, of, func(message []byte) ([]byte, error) {
			request, err := dotnet.ParseRequest(message)
			if err != nil {
				return message, nil //nolint:nilerr // it calls no host; the handler finds fault with it
			}
			host, found := change.in(request.Host)
			if replaced = found; !found {
				return message, nil
			}
			return dotnet.ReplaceURL(message, host, request.Target)
		})
		if err == nil && replaced && change.scheme != "" {
			content, err = n.setScheme(content, of, change.scheme)
		}
		if err != nil {
			return nil, err
		}
	}
	return content, nil
}

func inBase64(content []byte) json.RawMessage {
	return quote(base64.StdEncoding.EncodeToString(content))
}

// orNothing lets a missing value be read as null, which is no string.
func orNothing(value json.RawMessage) json.RawMessage {
	if value == nil {
		return json.RawMessage("null")
	}
	return value
}
