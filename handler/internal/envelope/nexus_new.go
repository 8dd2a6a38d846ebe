package envelope

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/dotnet"
	"asynccaller/handler/internal/strictjson"
)

// nexusRequest is a request that was never tried, as the C# SDK writes it: every member, in the order of
// declaration, with null for what there is not.
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
	raw.raw(rawContext, base64OrNull(r.context))
	raw.raw(rawCallOut, base64OrNull(r.callOut))
	raw.raw(rawCallOutURIScheme, textOrNull(r.callOutScheme))
	raw.raw(rawCallBack, base64OrNull(r.callBack))
	raw.raw(rawCallBackURIScheme, textOrNull(r.callBackScheme))
	if r.priority == 0 {
		raw.raw(rawPriority, null)
	} else {
		raw.raw(rawPriority, fmt.Append(nil, r.priority))
	}

	w := newObject()
	w.raw(nexusOrganization, textOrNull(r.Organization))
	w.raw(nexusEnvironment, textOrNull(r.Environment))
	w.text(nexusOriginalRequestID, r.originalRequestID)
	w.raw(nexusAttempts, []byte("0"))
	w.text(nexusCreatedAt, dotnet.FormatTime(r.createdAt))
	w.text(nexusLatestAttemptAt, dotnet.FormatTime(time.Time{}))
	w.raw(nexusLatestResponse, null)
	w.text(nexusDeadlineAt, dotnet.FormatTime(r.deadline))
	w.text(nexusNextAttemptAt, dotnet.FormatTime(r.nextAttemptAt))
	w.raw(nexusRawRequest, raw.end())
	return w.end()
}

func base64OrNull(content []byte) json.RawMessage {
	if content == nil {
		return null
	}
	return quote(base64.StdEncoding.EncodeToString(content))
}

func textOrNull(text string) json.RawMessage {
	if text == "" {
		return null
	}
	return quote(text)
}

// nexusTitle is what the C# side's logs call a request.
func nexusTitle(method, url, id string) string {
	return fmt.Sprintf("%s %s (%s)", method, url, id)
}

// ToNexus writes an accepted native envelope that has not been tried as the C# SDK writes the same
// request, to be given up at deadline. Its error names the member that the Nexus format has no place for.
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
	if e.Callback == nil {
		return r.encode(), nil
	}
	to, err := n.callbackTo.call(e.Callback.URL)
	if err == nil {
		r.callBack, r.callBackScheme, err = toCallOut(to)
	}
	if err != nil {
		return nil, strictjson.In("callback", err)
	}
	return r.encode(), nil
}

// checkPlaces names a member that the Nexus format has no place for.
func (n *native) checkPlaces() error {
	places := map[string][]string{
		"":         {nativeMarker, "requestId", "call", "callback", "context", "priority", "notBefore", "deadline", "createdAt"},
		"call":     {"url", "method", "headers", "body", "bodyBase64", "json"},
		"callback": {"url", "method", "headers"},
	}
	for _, m := range n.members {
		if !slices.Contains(places[""], m.Name) {
			return strictjson.In(m.Name, errNoPlace)
		}
		inner := places[m.Name]
		if inner == nil || strictjson.IsNull(m.Value) {
			continue
		}
		members, err := strictjson.Members(m.Value)
		if err != nil {
			return strictjson.In(m.Name, err)
		}
		for _, within := range members {
			if !slices.Contains(inner, within.Name) {
				return strictjson.In(m.Name, strictjson.In(within.Name, errNoPlace))
			}
		}
	}
	return nil
}

var errNoPlace = errors.New("the Nexus format has no place for it")

// call is the request of a callback, without its body.
func (c nativeCallback) call(target string) (Call, error) {
	call := Call{URL: target, Method: http.MethodPost}
	var err error
	if c.method != nil {
		if call.Method, err = parseMethod(c.method); err != nil {
			return Call{}, err
		}
	}
	if c.headers != nil {
		call.Header, call.Host, err = parseHeaders(c.headers)
	}
	return call, err
}

// toCallOut is the opposite of parseCallOut.
func toCallOut(call Call) (message []byte, scheme string, err error) {
	u, err := url.Parse(call.URL)
	if err != nil {
		return nil, "", strictjson.In("url", errors.New("not a URL"))
	}
	switch {
	case call.Host != "" && !strings.EqualFold(call.Host, u.Host):
		return nil, "", strictjson.In("headers", strictjson.In("Host", errors.New("differs from the URL's: the Nexus format makes the URL of it")))
	case u.User != nil:
		return nil, "", strictjson.In("url", errors.New("the Nexus format has no place for user information"))
	}
	request := dotnet.Request{Method: call.Method, Target: u.RequestURI(), Host: u.Host, Header: call.Header, Body: call.Body}
	return dotnet.FormatRequest(request), strings.ToLower(u.Scheme), nil
}
