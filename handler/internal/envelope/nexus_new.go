package envelope

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/dotnet"
	"asynccaller/handler/internal/strictjson"
)

// nexusRequest is a request without attempts, as the C# SDK writes it: every member, in the order of declaration, null if
// there is no value.
type nexusRequest struct {
	Tenant
	originalRequestID, id              string
	createdAt, nextAttemptAt, deadline time.Time
	title                              string
	context                            json.RawMessage
	callOut, callBack                  []byte
	callOutScheme, callBackScheme      string
	// priority is 0 for none.
	priority int
}

func (r nexusRequest) encode() []byte {
	raw := newObject()
	raw.text(rawID, r.id)
	raw.text(rawTitle, r.title)
	raw.raw(rawContext, inBase64(r.context))
	raw.raw(rawCallOut, inBase64(r.callOut))
	raw.raw(rawCallOutURIScheme, textOrNull(r.callOutScheme))
	raw.raw(rawCallBack, inBase64(r.callBack))
	raw.raw(rawCallBackURIScheme, textOrNull(r.callBackScheme))
	if r.priority == 0 {
		raw.raw(rawPriority, null)
	} else {
		raw.number(rawPriority, r.priority)
	}

	w := newObject()
	w.raw(nexusOrganization, textOrNull(r.Organization))
	w.raw(nexusEnvironment, textOrNull(r.Environment))
	w.text(nexusOriginalRequestID, r.originalRequestID)
	w.number(nexusAttempts, 0)
	w.text(nexusCreatedAt, dotnet.FormatTime(r.createdAt))
	w.text(nexusLatestAttemptAt, dotnet.FormatTime(time.Time{}))
	w.raw(nexusLatestResponse, null)
	w.text(nexusDeadlineAt, dotnet.FormatTime(r.deadline))
	w.text(nexusNextAttemptAt, dotnet.FormatTime(r.nextAttemptAt))
	w.raw(nexusRawRequest, raw.end())
	return w.end()
}

func textOrNull(text string) json.RawMessage {
	if text == "" {
		return null
	}
	return quote(text)
}

// nexusTitle returns the name that a request has in the logs of the C# side.
func nexusTitle(method, url, id string) string {
	return fmt.Sprintf("%s %s (%s)", method, url, id)
}

// ToNexus writes an accepted native envelope without attempts as the C# SDK would write the same request. Its error names a
// member that the Nexus format cannot hold.
func (e *Envelope) ToNexus(tenant Tenant, deadline time.Time) ([]byte, error) {
	n, ok := e.format.(*native)
	if !ok {
		return nil, errors.New("the envelope is a Nexus envelope already")
	}
	if err := n.checkPlaces(); err != nil {
		return nil, err
	}
	r := nexusRequest{
		Tenant: tenant, originalRequestID: e.RequestID, id: e.RequestID, title: nexusTitle(e.Call.Method, e.Call.URL, e.RequestID),
		createdAt: e.CreatedAt, nextAttemptAt: e.NotBefore, deadline: deadline, context: e.Context, priority: e.Priority,
	}
	var err error
	if r.callOut, r.callOutScheme, err = toCallOut(e.Call); err != nil {
		return nil, strictjson.In("call", err)
	}
	if e.Callback != nil {
		if r.callBack, r.callBackScheme, err = toCallOut(n.callback); err != nil {
			return nil, strictjson.In("callback", err)
		}
	}
	return r.encode(), nil
}

// checkPlaces returns an error that names a member that the Nexus format cannot hold.
func (n *native) checkPlaces() error {
	inner := map[string][]string{
		"call":     append([]string{"url", "method", "headers"}, bodyMembers...),
		"callback": {"url", "method", "headers"},
	}
	for _, m := range n.members {
		var err error
		if !nativeMembers[m.Name].nexus {
			err = errNotInNexus
		} else if names := inner[m.Name]; names != nil && !strictjson.IsNull(m.Value) {
			err = eachMember(m, func(m strictjson.Member) error {
				if !slices.Contains(names, m.Name) {
					return errNotInNexus
				}
				return nil
			})
		}
		if err != nil {
			return strictjson.In(m.Name, err)
		}
	}
	return nil
}

// toCallOut is the inverse of parseCallOut.
func toCallOut(call Call) (message []byte, scheme string, err error) {
	u := call.Target
	switch {
	case call.Host != "" && !strings.EqualFold(call.Host, u.Host):
		return nil, "", strictjson.In("headers", strictjson.In("Host", errors.New("differs from the URL's host, but the Nexus format builds the URL from it")))
	case u.User != nil:
		return nil, "", strictjson.In("url", errors.New("the Nexus format has no place for user information"))
	}
	request := dotnet.Request{Method: call.Method, Target: u.RequestURI(), Host: u.Host, Header: call.Header, Body: call.Body}
	return dotnet.FormatRequest(request), strings.ToLower(u.Scheme), nil
}
