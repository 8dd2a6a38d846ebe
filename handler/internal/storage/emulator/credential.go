package emulator

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxAge is how old or new a signed request may be, as in the service.
const maxAge = 15 * time.Minute

// grant is what a credential permits.
type grant struct {
	// isOwner means everything: the request has a signature by the account's key.
	isOwner bool
	// The parts of an account SAS.
	isAccount           bool
	services, resources string
	// resource is the queue or table of a service SAS, in lower case.
	resource    string
	permissions string
}

// need is what an operation needs of a SAS.
type need struct {
	service kind
	// resourceType is s, c or o: the service, a queue or table, or a message or entity.
	resourceType string
	// oneOf are the permissions of which one will do.
	oneOf string
	// resource is the queue or table.
	resource string
}

func denied(code, message string) *failure { return &failure{http.StatusForbidden, code, message} }

var errAuthentication = denied("AuthenticationFailed", "Server failed to authenticate the request. "+
	"Make sure the value of the Authorization header is formed correctly including the signature.")

// check returns an error if the credential does not permit an operation.
func (g grant) check(n need) error {
	// Of a queue, a service SAS gives the number of messages as well.
	isServices := n.resourceType == "o" || n.service == queueService && n.resourceType == "c" && n.oneOf == "r"
	switch {
	case g.isOwner:
		return nil
	case g.isAccount && !strings.Contains(g.services, string(n.service)[:1]):
		return denied("AuthorizationServiceMismatch", "The SAS is not for this service (ss).")
	case g.isAccount && !strings.Contains(g.resources, n.resourceType):
		return denied("AuthorizationResourceTypeMismatch", "The SAS is not for this type of resource (srt).")
	case !g.isAccount && (!isServices || g.resource != strings.ToLower(n.resource)):
		return denied("AuthorizationFailure", "The SAS is not for this resource.")
	case !strings.ContainsAny(g.permissions, n.oneOf):
		return denied("AuthorizationPermissionMismatch", "The SAS lacks a permission (sp).")
	}
	return nil
}

// authenticate checks the signature of a request.
func (s *service) authenticate(r *http.Request, query url.Values) (grant, error) {
	authorization := r.Header.Get("Authorization")
	if authorization == "" && query.Has("sig") {
		return s.sharedAccess(r, query)
	}
	scheme, value, _ := strings.Cut(authorization, " ")
	account, signature, _ := strings.Cut(value, ":")
	signed := ""
	switch {
	case account != Account:
	case s.kind == queueService && scheme == "SharedKey":
		signed = queueText(r, query)
	case s.kind == tableService && scheme == "SharedKeyLite":
		signed = tableText(r, query)
	case s.kind == tableService && scheme == "SharedKey":
		h := r.Header
		signed = r.Method + "\n" + h.Get("Content-Md5") + "\n" + h.Get("Content-Type") + "\n" + tableText(r, query)
	}
	at, err := http.ParseTime(date(r))
	isCurrent := err == nil && time.Since(at).Abs() <= maxAge
	if !s.isSigned(signed, signature) || !isCurrent {
		return grant{}, errAuthentication
	}
	return grant{isOwner: true}, nil
}

// isSigned reports whether a text has a signature by the account's key. No signature is one of the empty text.
func (s *service) isSigned(text, signature string) bool {
	sum := hmac.New(sha256.New, s.key)
	sum.Write([]byte(text))
	given, err := base64.StdEncoding.DecodeString(signature)
	return hmac.Equal(sum.Sum(nil), given) && err == nil && text != ""
}

const dateHeader = "X-Ms-Date"

func date(r *http.Request) string {
	if at := r.Header.Get(dateHeader); at != "" {
		return at
	}
	return r.Header.Get("Date")
}

// resource returns the canonicalized resource without parameters: the account, and the path as it is in the request.
func resource(r *http.Request) string {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	return "/" + Account + path
}

// tableText returns the text that a request to tables signs
// (https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key).
func tableText(r *http.Request, query url.Values) string {
	text := date(r) + "\n" + resource(r)
	if query.Has("comp") {
		text += "?comp=" + query.Get("comp")
	}
	return text
}

// queueText returns the text that a request to queues signs.
func queueText(r *http.Request, query url.Values) string {
	h := r.Header
	length := ""
	if r.ContentLength > 0 {
		length = strconv.FormatInt(r.ContentLength, 10)
	}
	day := ""
	if h.Get(dateHeader) == "" { // otherwise it is among the headers
		day = h.Get("Date")
	}
	lines := []string{
		r.Method, h.Get("Content-Encoding"), h.Get("Content-Language"), length, h.Get("Content-Md5"),
		h.Get("Content-Type"), day, h.Get("If-Modified-Since"), h.Get("If-Match"), h.Get("If-None-Match"),
		h.Get("If-Unmodified-Since"), h.Get("Range"),
	}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "x-ms-") {
			lines = append(lines, lower+":"+strings.Join(h[name], ","))
		}
	}
	lines = append(lines, resource(r))
	for _, name := range slices.Sorted(maps.Keys(query)) {
		lines = append(lines, strings.ToLower(name)+":"+strings.Join(slices.Sorted(slices.Values(query[name])), ","))
	}
	return strings.Join(lines, "\n")
}

// encryptionScope is the first version of the API whose account SAS signs an encryption scope (ses).
const encryptionScope = "2020-12-06"

// sharedAccess checks an account SAS or a service SAS. One with a stored policy or a range of keys is refused.
func (s *service) sharedAccess(r *http.Request, query url.Values) (grant, error) {
	g := grant{isAccount: query.Has("ss"), permissions: query.Get("sp")}
	parts := func(names ...string) (values []string) {
		for _, name := range names {
			values = append(values, query.Get(name))
		}
		return values
	}
	var lines []string
	if g.isAccount {
		g.services, g.resources = query.Get("ss"), query.Get("srt")
		lines = append([]string{Account}, parts("sp", "ss", "srt", "st", "se", "sip", "spr", "sv")...)
		if query.Get("sv") >= encryptionScope {
			lines = append(lines, query.Get("ses"))
		}
		lines = append(lines, "")
	} else {
		path, _ := strings.CutPrefix(r.URL.Path, "/"+Account+"/")
		g.resource, _, _ = strings.Cut(path, "/")
		if s.kind == tableService {
			g.resource = strings.ToLower(query.Get("tn"))
		}
		name := "/" + string(s.kind) + "/" + Account + "/" + g.resource
		lines = append(parts("sp", "st", "se"), name)
		lines = append(lines, parts("si", "sip", "spr", "sv")...)
		if s.kind == tableService {
			lines = append(lines, parts("spk", "srk", "epk", "erk")...)
		}
	}
	limits := strings.Join(parts("si", "spk", "srk", "epk", "erk"), "")
	if !s.isSigned(strings.Join(lines, "\n"), query.Get("sig")) || limits != "" {
		return grant{}, errAuthentication
	}
	return g, checkSAS(query)
}

// checkSAS checks the conditions of a SAS.
func checkSAS(query url.Values) error {
	now := time.Now()
	expiry, isExpiry := sasTime(query.Get("se"))
	start, isStart := sasTime(query.Get("st"))
	switch {
	case !isExpiry || !now.Before(expiry), query.Has("st") && (!isStart || now.Before(start)):
		return errAuthentication
	case query.Has("spr") && !slices.Contains(strings.Split(query.Get("spr"), ","), "http"):
		return denied("AuthorizationProtocolMismatch", "The SAS permits only https (spr).")
	case query.Has("sip") && query.Get("sip") != loopback:
		return denied("AuthorizationSourceIPMismatch", "The SAS does not permit this address (sip).")
	}
	return nil
}

func sasTime(text string) (time.Time, bool) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00", time.DateOnly} {
		at, err := time.Parse(layout, text)
		if err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}
