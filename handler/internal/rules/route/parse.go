package route

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/plain/nearest"
	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/plain/variable"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
)

// The bounds of the file and of its values.
const (
	maxFileBytes = 1 << 20
	maxRoutes    = 200
	maxDeadline  = 366 * 24 * time.Hour
)

// Parse reads routes.json. Check returns why the envelope of a route could not be delivered; its errors name members of
// envelopes. It is nil if the settings of the app are not known: a route that refers to them then has only its queue,
// and what its functions depend on.
// The error joins all problems; each names the queue and the member, and none repeats a header's value.
func Parse(content []byte, check func(*envelope.Envelope) error) (Routes, error) {
	if len(content) > maxFileBytes {
		return nil, fmt.Errorf("has %d bytes: at most %d are read", len(content), maxFileBytes)
	}
	members, err := strictjson.Object(content)
	if err != nil {
		return nil, err
	}
	if len(members) > maxRoutes {
		return nil, fmt.Errorf("has %d routes: at most %d are allowed", len(members), maxRoutes)
	}
	routes := Routes{}
	var problems []error
	for _, m := range members {
		r, err := parseRoute(m, check)
		if err != nil {
			problems = append(problems, fmt.Errorf("%.100q: %w", m.Name, err))
			continue
		}
		routes[r.Queue] = r
	}
	return routes, errors.Join(problems...)
}

// known are the members of a route.
var known = []string{
	"callback", "cloudevents", "contentType", "deadline", "headers", "http", "keepHeaders", "method", "priority",
	"queue", "retry", "url",
}

// ofFunctions are the members on which the functions of a route depend. They refer to no variables.
var ofFunctions = []string{"http", "queue"}

func parseRoute(m strictjson.Member, check func(*envelope.Envelope) error) (r Route, err error) {
	r = Route{Queue: m.Name, Method: http.MethodPost}
	err = checkQueue(m.Name)
	if err != nil {
		return r, err
	}
	members, err := m.Object()
	if err != nil {
		return r, err
	}
	isWhole := check != nil || !variable.IsUsed(m.Value)
	for _, m := range members {
		if !isWhole && !slices.Contains(ofFunctions, m.Name) {
			continue
		}
		if err := r.set(m); err != nil {
			return r, strictjson.In(m.Name, err)
		}
	}
	if !isWhole {
		return r, r.checkHTTP()
	}
	if r.URL == "" {
		return r, errors.New("url: is missing")
	}
	if err := r.checkHTTP(); err != nil {
		return r, err
	}
	r.Successors = envelope.QueueFor(r.priority)
	return r, r.check(check)
}

func checkQueue(name string) error {
	_, hasPoison := storage.PoisonName(name)
	switch {
	case variable.IsIn(name):
		return errors.New("the name of a queue cannot refer to a variable: the function of the route is named after it")
	case !storage.ValidName(name):
		return errors.New("not the name of a queue: give 3 to 63 lower-case letters, digits and single dashes")
	case !hasPoison:
		return fmt.Errorf("has no poison queue: it ends in %s, or has more than 56 characters", storage.PoisonSuffix)
	case slices.Contains(envelope.Queues(), name):
		return errors.New("is a queue of envelopes: name another queue")
	}
	return nil
}

func (r *Route) set(m strictjson.Member) (err error) {
	switch m.Name {
	case "url":
		r.URL, err = strictjson.String(m.Value)
	case "method":
		r.Method, err = strictjson.String(m.Value)
	case "contentType":
		r.ContentType, err = strictjson.String(m.Value)
		if err == nil && r.ContentType == "" {
			err = errors.New("is empty: leave it out for that of the content")
		}
	case "headers":
		r.headers, err = headers(m)
	case "retry":
		r.retry = m.Value
	case "callback":
		r.callback = m.Value
	case "deadline":
		r.Deadline, err = strictjson.Duration(m.Value)
		if err == nil && (r.Deadline < time.Second || r.Deadline > maxDeadline) {
			err = errors.New(`want a duration from "1s" to "366d"`)
		}
	case "priority":
		r.priority, err = strictjson.Int(m.Value, 1, envelope.Priorities)
	case "cloudevents":
		r.CloudEvents, err = boolean(m)
	case "http":
		r.HTTP, err = boolean(m)
	case "queue":
		var isRead bool
		isRead, err = boolean(m)
		r.HTTPOnly = !isRead
	case "keepHeaders":
		r.Kept, err = keptHeaders(m)
	default:
		err = fmt.Errorf("is not known%s", nearest.Hint(m.Name, known))
	}
	return err
}

func boolean(m strictjson.Member) (value bool, err error) {
	err = json.Unmarshal(m.Value, &value)
	if err != nil || strictjson.IsNull(m.Value) {
		err = errors.New("want true or false")
	}
	return value, err
}

func headers(m strictjson.Member) ([]strictjson.Member, error) {
	members, err := m.Object()
	for _, header := range members {
		switch {
		case strings.EqualFold(header.Name, "Content-Type"):
			return nil, strictjson.In(header.Name, errors.New("give contentType beside headers"))
		case strings.EqualFold(header.Name, "Idempotency-Key"):
			return nil, strictjson.In(header.Name, errors.New("is the request id: it must differ between messages"))
		}
	}
	return members, err
}

// check returns why a route's envelopes could not be delivered, as far as the settings are known. An envelope states
// the call of a route as its member call, which the error does not name.
func (r Route) check(deliverable func(*envelope.Envelope) error) error {
	sample := Arrival{MessageID: "sample", InsertedAt: time.Unix(0, 0)}
	content := r.Envelope(sample)
	e, err := envelope.Parse(content)
	if err == nil && deliverable != nil {
		err = deliverable(e)
	}
	for _, unknown := range envelope.UnknownMembers(content) {
		err = cmp.Or(err, errors.New(unknown.String()))
	}
	member, isMember := errors.AsType[*strictjson.MemberError](err)
	if !isMember {
		return err
	}
	path := strings.TrimPrefix(member.Path, "call.")
	path = strings.Replace(path, "headers.Content-Type", "contentType", 1)
	return &strictjson.MemberError{Path: path, Err: member.Err}
}
