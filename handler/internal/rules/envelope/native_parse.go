package envelope

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/rules/guard"
)

const (
	// nativeVersion and gzipVersion are the values of the marker. They mean the same, but that only gzipVersion allows
	// gzipBody: versions that would ignore the member refuse the envelope.
	nativeVersion = 1
	gzipVersion   = 2
	maxRequestID  = 128
	jsonMediaType = "application/json"
	// maxContextDepth leaves room for the levels that a callback adds: JSON readers accept 10,000.
	maxContextDepth = 1000
)

// native is our own format.
type native struct {
	// version is the value of the marker.
	version int
	// members is the envelope as it came.
	members []strictjson.Member
	// deadline and run are the deadline and the run as they came.
	deadline time.Time
	run      string
	// callback has the known members of the callback as they came.
	callback []strictjson.Member
}

func (n *native) name() Format { return FormatNative }

func parseNative(members []strictjson.Member) (*Envelope, error) {
	n := &native{members: members, version: nativeVersion}
	e := &Envelope{format: n}
	for _, m := range members {
		if strictjson.IsNull(m.Value) && m.Name != "context" {
			continue // null means absent
		}
		if err := n.set(e, m); err != nil {
			return nil, strictjson.In(m.Name, err)
		}
	}
	startsAgain := e.DeadLetter != nil // with a new deadline
	switch {
	case e.Call.URL == "":
		return nil, strictjson.In(string(partCall), errMissing)
	case e.Call.Body.isGzip && n.version < gzipVersion:
		return nil, strictjson.In(string(partCall), strictjson.In(gzipBody, errGzipVersion))
	case !startsAgain && !e.Deadline.IsZero() && !e.Deadline.After(e.NotBefore):
		return nil, strictjson.In("deadline", errors.New("is not after notBefore: no call could ever be made"))
	}
	n.deadline, n.run = e.Deadline, e.Run
	for i := range members {
		members[i].Release()
	}
	return e, nil
}

var errMissing = errors.New("missing")

// set reads a member into the envelope. It is for the members in nativeMembers.
func (n *native) set(e *Envelope, m strictjson.Member) (err error) {
	switch m.Name {
	case nativeMarker:
		n.version, err = strictjson.Int(m.Value, nativeVersion, gzipVersion)
		if err != nil {
			err = fmt.Errorf("want %d or %d", nativeVersion, gzipVersion)
		}
	case "requestId":
		e.RequestID, err = parseRequestID(m.Value)
	case string(partCall):
		e.Call, err = parseCall(m)
	case string(partCallback):
		err = n.setCallback(e, m)
	case "context":
		e.Context = m.Value
		if depth, _ := strictjson.Depth(m.Value); depth > maxContextDepth {
			err = fmt.Errorf("nested deeper than %d levels", maxContextDepth)
		}
	case "priority":
		e.Priority, err = strictjson.Int(m.Value, 1, Priorities)
	case "notBefore":
		e.NotBefore, err = strictjson.Time(m.Value)
	case "deadline":
		e.Deadline, err = strictjson.Time(m.Value)
	case "retry":
		e.Retry = m.Value
	case "giveUp":
		e.GiveUp, err = parseGiveUp(m.Value)
	case "run":
		e.Run = parseRun(m.Value)
	case traceName:
		e.Trace = parseTrace(m.Value)
	case "deadLetter":
		// An earlier handler or a person wrote this as an explanation. It must never prevent a call.
		e.DeadLetter = &DeadLetter{}
		_ = json.Unmarshal(m.Value, e.DeadLetter)
	case "attempts":
		e.Attempts, err = strictjson.Int(m.Value, 0, MaxAttempts)
	case "createdAt":
		e.CreatedAt, err = strictjson.Time(m.Value)
	case "latestAttemptAt":
		e.LatestAttemptAt, err = strictjson.Time(m.Value)
	case "nextAttemptAt":
		e.NextAttemptAt, err = strictjson.Time(m.Value)
	case reservedName:
		e.Ticket = parseTicket(m.Value)
	case "trail":
		e.Trail, err = camelCase.parseTrail(m.Value)
	}
	return err
}

func (n *native) setCallback(e *Envelope, object strictjson.Member) error {
	err := eachMember(object, func(m strictjson.Member) error {
		if !strictjson.IsNull(m.Value) && slices.Contains(callbackNames, m.Name) {
			m.Release()
			n.callback = append(n.callback, m)
		}
		return nil
	})
	if err != nil {
		return err
	}
	call, err := n.callbackCall()
	if err == nil && call.URL == "" {
		err = strictjson.In("url", errMissing)
	}
	e.Callback = &Callback{URL: call.URL}
	return err
}

// callbackCall returns the callback's call, without a body. The envelope does not keep it, because headers take a
// multiple of their text in memory.
func (n *native) callbackCall() (Call, error) {
	call := Call{Method: http.MethodPost}
	for _, m := range n.callback {
		if err := call.set(m); err != nil {
			return Call{}, strictjson.In(m.Name, err)
		}
	}
	return call, nil
}

// ValidRequestID reports whether a text is a valid request id: 1 to 128 visible ASCII characters.
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
		err = fmt.Errorf("want 1 to %d visible ASCII characters", maxRequestID)
	}
	return id, err
}

// reservedName is the member that has State.Ticket.
const reservedName = "reserved"

// parseTicket returns a ticket, and 0 for any other value: it must never prevent a call.
func parseTicket(value json.RawMessage) int64 {
	ticket, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil || ticket < 0 || ticket > MaxTicket {
		return 0
	}
	return ticket
}

// maxRun is the length of the longest token of a run.
const maxRun = 64

// parseRun returns the token of a run, and "" for any other value: a token must never prevent a call.
func parseRun(value json.RawMessage) string {
	token, err := strictjson.String(value)
	if err != nil || len(token) > maxRun || !ValidRequestID(token) {
		return ""
	}
	return token
}

func parseGiveUp(value json.RawMessage) (GiveUp, error) {
	text, err := strictjson.String(value)
	if err == nil && !slices.Contains([]GiveUp{GiveUpDeadLetter, GiveUpDrop, GiveUpFault}, GiveUp(text)) {
		err = errors.New(`want "dead-letter", "drop" or "fault"`)
	}
	return GiveUp(text), err
}

func parseCall(object strictjson.Member) (Call, error) {
	var call Call
	var body string
	err := eachMember(object, func(m strictjson.Member) error {
		if strictjson.IsNull(m.Value) && m.Name != "json" {
			return nil
		}
		if slices.Contains(bodyMembers, m.Name) {
			if body != "" {
				return fmt.Errorf("appears together with %s: a call has one body", body)
			}
			body = m.Name
		}
		return call.set(m)
	})
	if err == nil && call.URL == "" {
		err = strictjson.In("url", errMissing)
	}
	if err != nil {
		return Call{}, err
	}
	call.setDefaults(body)
	return call, nil
}

func (c *Call) set(m strictjson.Member) (err error) {
	switch m.Name {
	case "url":
		c.URL, err = strictjson.String(m.Value)
		if err == nil {
			c.Target, err = ParseURL(c.URL)
		}
	case "method":
		c.Method, err = strictjson.String(m.Value)
		if err == nil {
			c.Method, err = checkMethod(c.Method)
		}
	case "headers":
		err = c.setHeaders(m)
	case "body":
		c.Body.stored, err = strictjson.Bytes(m.Value)
	case "bodyBase64":
		c.Body.stored, err = parseBase64(m.Value)
	case "json":
		c.Body = BodyOf(m.Value)
	case gzipBody:
		c.Body, err = parseGzip(m.Value)
	case "timeout":
		c.Timeout, err = strictjson.Duration(m.Value)
		if err == nil && c.Timeout == 0 {
			err = errors.New("want a duration above zero")
		}
	}
	return err
}

// setDefaults sets the method and headers that the sender left out. They depend on the name of the body's member.
func (c *Call) setDefaults(body string) {
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
		c.Header.Set("Content-Type", jsonMediaType)
	}
}

// maxHostPort is the length of the longest DNS name, with its last dot, a colon and a port. Hosts are logged, so they
// must not be as long as a message.
const maxHostPort = len(".") + 253 + len(":65535")

// ParseURL reads the URL of a call. It maps the host to ASCII, and the path and query as [EscapeURL] does. Its error
// says what is wrong with the URL, but does not quote it.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(EscapeURL(text))
	switch {
	case err != nil:
		return nil, errors.New("not a URL")
	case strings.Contains(text, " "):
		return nil, errors.New("the URL holds a space: write it as %20")
	case !strings.EqualFold(u.Scheme, "http") && !strings.EqualFold(u.Scheme, "https"):
		return nil, errors.New("want an absolute http or https URL")
	case u.Hostname() == "":
		return nil, errors.New("the URL has no host")
	}
	host, inBrackets := u.Hostname(), strings.HasPrefix(u.Host, "[")
	ascii, err := guard.ASCII(host)
	if ascii != host && !inBrackets {
		u.Host = ascii + u.Host[len(host):]
	}
	hasColon := strings.Contains(host, ":") // as an IPv6 address, which is in brackets
	if err != nil || len(u.Host) > maxHostPort || hasColon != inBrackets {
		return nil, errors.New("the URL's host is not a valid name or address")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, errors.New("the URL's port is not from 1 to 65535")
		}
	}
	u.Host = strings.TrimSuffix(u.Host, ":") // an empty port means the default one
	return u, nil
}

// EscapeURL percent-encodes those bytes of a URL's path and query that neither can hold (RFC 3986, 3.3 and 3.4), such
// as those of å, and a percent sign that begins no escape. .NET does the same. All other bytes stay: the host, escapes,
// and the characters for which ParseURL refuses a URL.
func EscapeURL(text string) string {
	path := 0
	scheme, rest, found := strings.Cut(text, "//")
	hasHost := found && (scheme == "" || strings.HasSuffix(scheme, ":"))
	if hasHost {
		path = len(text)
		if n := strings.IndexAny(rest, "/?#"); n >= 0 {
			path = len(text) - len(rest) + n
		}
	}
	var escaped []byte
	kept := 0 // the bytes that are in escaped
	for i := path; i < len(text); i++ {
		c := text[i]
		isBare := c == '%' && !isEscape(text[i:])
		if isBare || c >= utf8.RuneSelf || strings.IndexByte("\"<>\\^`{|}", c) >= 0 {
			escaped = append(escaped, text[kept:i]...)
			escaped = fmt.Appendf(escaped, "%%%02X", c)
			kept = i + 1
		}
	}
	if kept == 0 {
		return text
	}
	return string(append(escaped, text[kept:]...))
}

// isEscape reports whether a text begins with a percent-encoded byte.
func isEscape(text string) bool {
	const length = len("%2F")
	if len(text) < length {
		return false
	}
	_, err := hex.DecodeString(text[1:length])
	return err == nil
}

// checkMethod returns a method in the letter case of net/http.
func checkMethod(method string) (string, error) {
	if !httpguts.ValidHeaderFieldName(method) || len(method) > 32 {
		return "", errors.New("not an HTTP method")
	}
	if strings.EqualFold(method, http.MethodConnect) {
		return "", errors.New("CONNECT opens a tunnel and is not a call")
	}
	switch upper := strings.ToUpper(method); upper {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodOptions, http.MethodTrace:
		return upper, nil
	}
	return method, nil
}

func (c *Call) setHeaders(headers strictjson.Member) error {
	c.Header = http.Header{}
	return eachMember(headers, func(m strictjson.Member) error {
		if strictjson.IsNull(m.Value) {
			return nil
		}
		if !httpguts.ValidHeaderFieldName(m.Name) {
			return errors.New("not a header name")
		}
		values, err := parseHeaderValues(m.Value)
		switch {
		case err != nil:
			return err
		case !strings.EqualFold(m.Name, "Host"):
			c.Spelling.Add(c.Header, m.Name, values...)
		case len(values) != 1 || c.Host != "" || !isHost(values[0]):
			return errors.New("want one host name, with or without a port")
		default:
			c.Host = values[0]
		}
		return nil
	})
}

// isHost reports whether a text is the host of a URL and nothing else, in ASCII, with or without a port. A Host header
// must leave no doubt, because other programs choose by it what they serve.
func isHost(text string) bool {
	u, err := ParseURL("http://" + text)
	return err == nil && u.Host == text
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
	return readEach(elements, parseHeaderValue)
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

var errNotBase64 = errors.New("not base64 (standard alphabet, with padding)")

func parseBase64(value json.RawMessage) ([]byte, error) {
	text, err := strictjson.Bytes(value)
	if err != nil {
		return nil, err
	}
	content, err := base64.StdEncoding.AppendDecode([]byte{}, text)
	if err != nil {
		return nil, errNotBase64
	}
	return content, nil
}
