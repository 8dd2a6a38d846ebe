package envelope

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"asynccaller/handler/retry"
	"asynccaller/handler/strictjson"
)

const (
	// marker is the member that makes a JSON object an envelope, and its version.
	marker          = "asyncCaller"
	version         = "1"
	maxRequestID    = 128
	maxTrailEntries = 100
	maxAttempts     = 1_000_000_000
)

// ErrNotEnvelope means that a JSON object lacks the member asyncCaller.
var ErrNotEnvelope = errors.New(`asyncCaller: missing: this is no envelope (every envelope has "asyncCaller":1)`)

// Parse reads an envelope. Its errors name the member that is wrong, or the line and column where the
// text stops being JSON; they never quote a header's value, a body or a URL. The envelope shares the
// memory of content.
func Parse(content []byte) (*Envelope, error) {
	members, err := strictjson.Object(content)
	if err != nil {
		return nil, err
	}
	e := &Envelope{members: members, size: len(content)}
	seen := map[string]bool{}
	for _, m := range members {
		seen[m.Name] = true
		if strictjson.IsNull(m.Value) && m.Name != "context" {
			continue // null means absent
		}
		if err := e.set(m); err != nil {
			return nil, strictjson.In(m.Name, err)
		}
	}
	switch {
	case !seen[marker]:
		return nil, ErrNotEnvelope
	case e.Call.URL == "":
		return nil, strictjson.In("call", errors.New("missing"))
	case !e.Deadline.IsZero() && !e.Deadline.After(e.NotBefore):
		return nil, strictjson.In("deadline", errors.New("is not after notBefore: no call could ever be made"))
	}
	return e, nil
}

func (e *Envelope) set(m strictjson.Member) (err error) {
	switch m.Name {
	case marker:
		if string(m.Value) != version {
			err = errors.New("want 1, the only version there is")
		}
	case "requestId":
		e.RequestID, err = parseRequestID(m.Value)
	case "call":
		e.Call, err = parseCall(m.Value)
	case "callback":
		e.Callback, err = parseCallback(m.Value)
	case "context":
		e.Context = m.Value
	case "priority":
		e.Priority, err = strictjson.Int(m.Value, 1, 10)
	case "notBefore":
		e.NotBefore, err = strictjson.Time(m.Value)
	case "deadline":
		e.Deadline, err = strictjson.Time(m.Value)
	case "retry":
		var spec retry.Spec
		spec, err = retry.ParseSpec(m.Value)
		e.Retry = &spec
	case "giveUp":
		e.GiveUp, err = parseGiveUp(m.Value)
	case "deadLetter":
		// What an earlier handler or a person wrote here only explains; it must never keep a call
		// from being made.
		e.DeadLetter = &DeadLetter{}
		_ = json.Unmarshal(m.Value, e.DeadLetter)
	default:
		err = e.State.set(m)
	}
	return err
}

func (s *State) set(m strictjson.Member) (err error) {
	switch m.Name {
	case "attempts":
		s.Attempts, err = strictjson.Int(m.Value, 0, maxAttempts)
	case "createdAt":
		s.CreatedAt, err = strictjson.Time(m.Value)
	case "latestAttemptAt":
		s.LatestAttemptAt, err = strictjson.Time(m.Value)
	case "nextAttemptAt":
		s.NextAttemptAt, err = strictjson.Time(m.Value)
	case "trail":
		s.Trail, err = parseTrail(m.Value)
	}
	return err
}

// ValidRequestID reports whether a text can name a call: 1 to 128 visible ASCII characters.
func ValidRequestID(id string) bool {
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return false
		}
	}
	return id != "" && len(id) <= maxRequestID
}

func parseRequestID(value json.RawMessage) (string, error) {
	id, err := strictjson.String(value)
	if err == nil && !ValidRequestID(id) {
		err = errors.New("want 1 to 128 visible ASCII characters")
	}
	return id, err
}

func parseGiveUp(value json.RawMessage) (GiveUp, error) {
	text, err := strictjson.String(value)
	if err != nil {
		return "", err
	}
	giveUp, ok := ParseGiveUp(text)
	if !ok {
		return "", errors.New(`want "dead-letter", "drop" or "fault"`)
	}
	return giveUp, nil
}

func parseCall(value json.RawMessage) (Call, error) {
	members, err := strictjson.Members(value)
	if err != nil {
		return Call{}, err
	}
	var call Call
	var body string
	for _, m := range members {
		if strictjson.IsNull(m.Value) && m.Name != "json" {
			continue
		}
		switch m.Name {
		case "body", "bodyBase64", "json":
			if body != "" {
				return Call{}, strictjson.In(m.Name, fmt.Errorf("stands beside %s: a call has one body", body))
			}
			body = m.Name
		}
		if err := call.set(m); err != nil {
			return Call{}, strictjson.In(m.Name, err)
		}
	}
	if call.URL == "" {
		return Call{}, strictjson.In("url", errors.New("missing"))
	}
	call.fillIn(body)
	return call, nil
}

func (c *Call) set(m strictjson.Member) (err error) {
	switch m.Name {
	case "url":
		c.URL, err = parseURL(m.Value)
	case "method":
		c.Method, err = parseMethod(m.Value)
	case "headers":
		c.Header, c.Host, err = parseHeaders(m.Value)
	case "body":
		var text string
		text, err = strictjson.String(m.Value)
		c.Body = []byte(text)
	case "bodyBase64":
		c.Body, err = parseBase64(m.Value)
	case "json":
		c.Body = m.Value
	case "timeout":
		if c.Timeout, err = strictjson.Duration(m.Value); err == nil && c.Timeout == 0 {
			err = errors.New("want a duration above zero")
		}
	}
	return err
}

// fillIn sets what follows from the kind of body.
func (c *Call) fillIn(body string) {
	if c.Method == "" {
		c.Method = http.MethodGet
		if body != "" {
			c.Method = http.MethodPost
		}
	}
	if c.Header == nil {
		c.Header = http.Header{}
	}
	if body == "json" && c.Header.Get("Content-Type") == "" {
		c.Header.Set("Content-Type", "application/json")
	}
}

func parseCallback(value json.RawMessage) (*Callback, error) {
	members, err := strictjson.Members(value)
	if err != nil {
		return nil, err
	}
	callback := &Callback{}
	for _, m := range members {
		if strictjson.IsNull(m.Value) {
			continue
		}
		switch m.Name {
		case "url":
			callback.url = m.Value
			callback.URL, err = parseURL(m.Value)
		case "method":
			callback.method = m.Value
			_, err = parseMethod(m.Value)
		case "headers":
			callback.headers = m.Value
			_, _, err = parseHeaders(m.Value)
		}
		if err != nil {
			return nil, strictjson.In(m.Name, err)
		}
	}
	if callback.URL == "" {
		return nil, strictjson.In("url", errors.New("missing"))
	}
	return callback, nil
}

func parseURL(value json.RawMessage) (string, error) {
	text, err := strictjson.String(value)
	if err != nil {
		return "", err
	}
	return text, CheckURL(text)
}

// CheckURL reports what is wrong with a URL to be called, without quoting it.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("not a URL")
	case !strings.EqualFold(u.Scheme, "http") && !strings.EqualFold(u.Scheme, "https"):
		return errors.New("want an absolute http or https URL")
	case u.Hostname() == "":
		return errors.New("the URL has no host")
	}
	if _, err := httpguts.PunycodeHostPort(u.Host); err != nil {
		return errors.New("the URL's host is not a valid name")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return errors.New("the URL's port is not from 1 to 65535")
		}
	}
	return nil
}

func parseMethod(value json.RawMessage) (string, error) {
	method, err := strictjson.String(value)
	if err != nil {
		return "", err
	}
	if !httpguts.ValidHeaderFieldName(method) || len(method) > 32 {
		return "", errors.New("not an HTTP method")
	}
	if strings.EqualFold(method, http.MethodConnect) {
		return "", errors.New("CONNECT opens a tunnel, it is not a call")
	}
	switch upper := strings.ToUpper(method); upper {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodOptions, http.MethodTrace:
		return upper, nil
	}
	return method, nil
}

func parseHeaders(value json.RawMessage) (header http.Header, host string, err error) {
	members, err := strictjson.Members(value)
	if err != nil {
		return nil, "", err
	}
	header = make(http.Header, len(members))
	for _, m := range members {
		if !httpguts.ValidHeaderFieldName(m.Name) {
			return nil, "", fmt.Errorf("%.60q is not a header name", m.Name)
		}
		values, err := parseHeaderValues(m.Value)
		if err != nil {
			return nil, "", strictjson.In(m.Name, err)
		}
		name := http.CanonicalHeaderKey(m.Name)
		if name != "Host" {
			header[name] = append(header[name], values...)
			continue
		}
		if len(values) != 1 || host != "" || !httpguts.ValidHostHeader(values[0]) || values[0] == "" {
			return nil, "", strictjson.In(m.Name, errors.New("want one host name, with or without a port"))
		}
		host = values[0]
	}
	return header, host, nil
}

func parseHeaderValues(value json.RawMessage) ([]string, error) {
	if value[0] != '[' {
		text, err := parseHeaderValue(value)
		return []string{text}, err
	}
	elements, err := strictjson.Elements(value)
	if err != nil {
		return nil, err
	}
	values := make([]string, len(elements))
	for i, element := range elements {
		if values[i], err = parseHeaderValue(element); err != nil {
			return nil, strictjson.In(strictjson.Index(i), err)
		}
	}
	return values, nil
}

func parseHeaderValue(value json.RawMessage) (string, error) {
	if value[0] != '"' {
		return "", errors.New("want a string or an array of strings")
	}
	text, err := strictjson.String(value)
	if err == nil && !httpguts.ValidHeaderFieldValue(text) {
		err = errors.New("holds a line break or another control character")
	}
	return text, err
}

func parseBase64(value json.RawMessage) ([]byte, error) {
	text, err := strictjson.String(value)
	if err != nil {
		return nil, err
	}
	content, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, errors.New("not base64 (standard alphabet, with padding)")
	}
	return content, nil
}

func parseTrail(value json.RawMessage) ([]Attempt, error) {
	elements, err := strictjson.Elements(value)
	if err != nil {
		return nil, err
	}
	if len(elements) > maxTrailEntries {
		return nil, fmt.Errorf("holds %d attempts, more than the %d that we ever keep", len(elements), maxTrailEntries)
	}
	trail := make([]Attempt, len(elements))
	for i, element := range elements {
		if trail[i], err = parseAttempt(element); err != nil {
			return nil, strictjson.In(strictjson.Index(i), err)
		}
	}
	return trail, nil
}

func parseAttempt(value json.RawMessage) (Attempt, error) {
	members, err := strictjson.Members(value)
	if err != nil {
		return Attempt{}, err
	}
	var attempt Attempt
	for _, m := range members {
		switch m.Name {
		case "at":
			attempt.At, err = strictjson.Time(m.Value)
		case "status":
			attempt.Status, err = strictjson.Int(m.Value, 0, 999)
		case "error":
			attempt.Error, err = strictjson.String(m.Value)
			attempt.Error = clip(attempt.Error, maxTrailError)
		case "tookMs":
			var ms int
			ms, err = strictjson.Int(m.Value, 0, int(24*time.Hour/time.Millisecond))
			attempt.Took = time.Duration(ms) * time.Millisecond
		}
		if err != nil {
			return Attempt{}, strictjson.In(m.Name, err)
		}
	}
	return attempt, nil
}
