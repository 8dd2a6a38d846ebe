package ingress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/deliver/logs"
	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/route"
)

// Posts take the memory of calls, so they are bounded: in number, and most of all those that are large.
const (
	maxPosts      = 64
	maxLargePosts = 4
	// smallPost is the invocation of an ordinary post; a larger one is large. In memory, they take at most as much as
	// smallPostBytes and largePostBytes: the invocation, its body and, for one at a time, the envelope.
	smallPost      = 32 << 10
	smallPostBytes = 400 << 10
	largePostBytes = 12 << 20
	// largePostWait is how long a large post waits for its turn.
	largePostWait = 4 * time.Second
	// maxDrained is more than the host ever sends for a post that is too large: it takes 100 MB of a client, of which
	// JSON makes at most seven times as much, in Data and once more in Metadata.
	maxDrained = 2 << 30
	// retryAfter is how many seconds a sender should wait that is refused for now.
	retryAfter = 5
)

// Posts are the HTTP functions of routes, and what their posts need.
type Posts struct {
	Functions []functionapp.Post
	Routes    route.Routes
	Poster    Poster
	Room      Room
	// IsHolding says that a setting is wrong, so that no post is accepted.
	IsHolding bool
	Refused   *RefusedPosts
}

// Poster makes the content of a post a message, as [delivery.Deliverer] does.
type Poster interface {
	Post(ctx context.Context, to route.Route, a route.Arrival) (delivery.Posted, error)
}

// Room is the memory that posts share with calls.
type Room interface {
	Take(bytes int) (release func(), ok bool)
}

// postServer serves the posts for all routes.
type postServer struct {
	Posts
	// all has a value for each post that is served, and large for each of those that are large.
	all, large chan struct{}
	// reading is held while a post is read, so that many at once leave a processor to the queue functions.
	reading sync.Mutex
	log     zerolog.Logger
}

func newPostServer(p Posts, log zerolog.Logger) *postServer {
	all, large := make(chan struct{}, maxPosts), make(chan struct{}, maxLargePosts)
	return &postServer{Posts: p, all: all, large: large, log: log}
}

// handler returns the handler of a function. It answers the host with 200 and the answer for the sender: any other
// status is an error of the function for the host.
func (s *postServer) handler(f functionapp.Post) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p := post{postServer: s, function: f, id: invocationID(r), began: time.Now()}
		serve := func(ctx context.Context, _ io.Reader) (answer, error) {
			out, err := p.serve(ctx, r.Body)
			// Otherwise the host, which still sends, would see a broken connection. It sends nothing endless.
			_, _ = io.CopyN(io.Discard, r.Body, maxDrained)
			return answer{code: http.StatusOK, Outputs: map[string]*output{f.Output: out}}, err
		}
		log := s.log.With().Str(logs.InvocationID, p.id).Str(logs.Function, f.Name).Logger()
		invocation{w, r, p.id, log, nil, "the host answers the sender with 500"}.serve(r.Context(), serve)
	}
}

// post is one post.
type post struct {
	*postServer
	function functionapp.Post
	id       string
	// key is the name of the key that the host has checked; empty until it is known.
	key   string
	began time.Time
}

// serve reads the host's POST and returns the answer for the sender. An error means that the host does not send a body
// like this.
func (p *post) serve(ctx context.Context, body io.Reader) (*output, error) {
	if p.IsHolding {
		return p.refuse(later(http.StatusServiceUnavailable, "a setting of the app is wrong"), nil), nil
	}
	select {
	case p.all <- struct{}{}:
		defer func() { <-p.all }()
	default:
		return p.refuse(later(http.StatusTooManyRequests, "too many posts at a time"), nil), nil
	}
	release, hasRoom := p.Room.Take(smallPostBytes)
	if !hasRoom {
		return p.refuse(noRoom(), nil), nil
	}
	defer release()
	var invocation bytes.Buffer
	_, err := invocation.ReadFrom(io.LimitReader(body, smallPost+1))
	if err == nil && invocation.Len() > smallPost {
		leave, refused := p.enterLarge(ctx)
		if refused != nil {
			return p.refuse(*refused, nil), nil
		}
		defer leave()
		_, err = invocation.ReadFrom(io.LimitReader(body, maxInvocationBytes-smallPost))
	}
	if err != nil {
		return nil, err
	}
	if invocation.Len() > maxInvocationBytes {
		return p.refuse(refusal{Refusal: route.Refusal{
			Status: http.StatusRequestEntityTooLarge,
			Detail: "the post is too large: in the form in which it arrives here, it has more than " +
				strconv.Itoa(maxInvocationBytes) + " bytes",
		}}, nil), nil
	}
	arrival, refused, err := p.read(invocation.Bytes())
	switch {
	case err != nil:
		return nil, err
	case refused != nil:
		return p.refuse(refusal{Refusal: *refused}, nil), nil
	}
	return p.accept(ctx, arrival), nil
}

// read returns what arrives with a post, or why it is refused. One post is read at a time.
func (p *post) read(text []byte) (route.Arrival, *route.Refusal, error) {
	p.reading.Lock()
	defer p.reading.Unlock()
	received, err := readPost(text, p.function.Binding)
	if err != nil {
		return route.Arrival{}, nil, err
	}
	p.key = received.key
	if received.problem != nil {
		return route.Arrival{}, received.problem, nil
	}
	arrival, refused := p.Routes[p.function.Queue].Accept(received.Post, uuid.NewString(), time.Now())
	return arrival, refused, nil
}

// enterLarge waits until a large post may be read.
func (p *post) enterLarge(ctx context.Context) (leave func(), refused *refusal) {
	ctx, cancel := context.WithTimeout(ctx, largePostWait)
	defer cancel()
	select {
	case p.large <- struct{}{}:
	case <-ctx.Done():
		refused := later(http.StatusTooManyRequests, "too many large posts at a time")
		return nil, &refused
	}
	release, hasRoom := p.Room.Take(largePostBytes)
	if !hasRoom {
		<-p.large
		refused := noRoom()
		return nil, &refused
	}
	return func() {
		release()
		<-p.large
	}, nil
}

func noRoom() refusal {
	return later(http.StatusTooManyRequests, "too many calls in progress: there is no memory")
}

// refusal is the refusal of a post, for now if that is set.
type refusal struct {
	route.Refusal
	isTemporary bool
}

func later(status int, detail string) refusal {
	return refusal{route.Refusal{Status: status, Detail: detail}, true}
}

// accept makes a post a message.
func (p *post) accept(ctx context.Context, arrival route.Arrival) *output {
	posted, err := p.Poster.Post(ctx, p.Routes[p.function.Queue], arrival)
	if err != nil {
		return p.refuse(refusalOf(err), err)
	}
	event := p.log.Info().Str(logs.InvocationID, p.id).Str(logs.Function, p.function.Name).
		Str(logs.Queue, posted.Queue).Str(logs.MessageID, posted.MessageID).
		Str(logs.RequestID, posted.Identity.RequestID).Str(logs.TargetHost, posted.Identity.TargetHost).
		Str(logs.TraceID, posted.Identity.Trace.ID)
	logs.Text(event, logs.Key, p.key)
	event.Int64(logs.Took, logs.Millis(time.Since(p.began))).Msg("post accepted")
	return newOutput(http.StatusAccepted, jsonMediaType, map[string]any{
		"requestId": posted.Identity.RequestID, "queue": posted.Queue, "messageId": posted.MessageID,
	})
}

// refusalOf returns the refusal of a post that did not become a message.
func refusalOf(err error) refusal {
	if tooLarge, is := errors.AsType[*delivery.TooLargeError](err); is {
		return refusal{Refusal: route.Refusal{Status: http.StatusRequestEntityTooLarge, Detail: tooLarge.Error()}}
	}
	if malformed, is := errors.AsType[*delivery.MalformedError](err); is {
		return refusal{Refusal: route.Refusal{Status: http.StatusUnprocessableEntity, Detail: malformed.Error()}}
	}
	return later(http.StatusServiceUnavailable,
		"storage has not acknowledged the message: post again; if it was written nevertheless, there are two calls")
}

// refuse logs why a post is refused, and returns the answer. The cause is nil if the detail says all.
func (p *post) refuse(r refusal, cause error) *output {
	if p.Refused.add(p.function.Name) {
		event := p.log.Warn().Str(logs.InvocationID, p.id).Str(logs.Function, p.function.Name).
			Int(logs.Status, r.Status).Str(logs.Detail, r.Detail)
		logs.Text(event, logs.Key, p.key)
		if r.isTemporary && cause != nil {
			event.Err(cause)
		}
		event.Msg("post refused")
	}
	out := newOutput(r.Status, "application/problem+json", map[string]any{
		"status": r.Status, "title": http.StatusText(r.Status), "detail": text.Printable(r.Detail),
	})
	if r.isTemporary {
		out.Headers["Retry-After"] = strconv.Itoa(retryAfter)
	}
	return out
}

// output is the answer of an HTTP function to its client.
type output struct {
	StatusCode int               `json:"statusCode"`
	Headers    map[string]string `json:"headers"`
	Body       string            `json:"body"`
}

func newOutput(status int, mediaType string, body map[string]any) *output {
	content, _ := json.Marshal(body) // texts and numbers
	return &output{
		StatusCode: status, Headers: map[string]string{"Content-Type": mediaType}, Body: string(content),
	}
}

// received is a post as the host has passed it.
type received struct {
	route.Post
	// key is the name of the key that the host has checked.
	key string
	// problem says why it is refused, whatever its content is.
	problem *route.Refusal
}

// readPost reads the host's POST for an HTTP function. It reads nothing of Metadata, which the sender writes.
func readPost(text []byte, binding string) (r received, err error) {
	invocation, err := strictjson.Object(text)
	if err != nil {
		return r, err
	}
	data, err := membersOf(invocation, "Data")
	if err != nil {
		return r, err
	}
	request, err := membersOf(data, binding)
	if err == nil && request == nil {
		err = errors.New("no request")
	}
	if err != nil {
		return r, strictjson.In("Data."+binding, err)
	}
	r.Header, err = readHeaders(find(request, "Headers").Value)
	if err != nil {
		return r, strictjson.In("Data."+binding+".Headers", err)
	}
	if value := find(request, "Body").Value; value != nil && !strictjson.IsNull(value) {
		r.Body, err = strictjson.Bytes(value)
		if err != nil {
			return r, strictjson.In("Data."+binding+".Body", err)
		}
	}
	method, _ := strictjson.String(orNull(find(request, "Method").Value))
	var isKnown bool
	r.key, isKnown = keyOf(find(request, "Identities").Value)
	switch {
	case !isKnown:
		r.problem = &route.Refusal{Status: http.StatusUnauthorized, Detail: "give a key of the function"}
	case !strings.EqualFold(method, http.MethodPost):
		r.problem = &route.Refusal{Status: http.StatusMethodNotAllowed, Detail: "want POST"}
	}
	return r, nil
}

func orNull(value json.RawMessage) json.RawMessage {
	if value == nil {
		return json.RawMessage("null")
	}
	return value
}

// unpacked returns a JSON value, or the one in it if it is a text: Microsoft's examples have objects as texts.
func unpacked(value json.RawMessage) json.RawMessage {
	if value != nil && value[0] == '"' {
		inner, err := strictjson.Bytes(value)
		if err == nil && json.Valid(inner) {
			return bytes.TrimSpace(inner)
		}
	}
	return orNull(value)
}

// readHeaders reads the headers of a client, each with an array of values.
func readHeaders(value json.RawMessage) (http.Header, error) {
	members, err := strictjson.Object(unpacked(value))
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	for _, m := range members {
		values := []json.RawMessage{m.Value}
		if m.Value[0] == '[' {
			values, err = strictjson.Elements(m.Value)
			if err != nil {
				return nil, err
			}
		}
		for _, value := range values {
			text, err := strictjson.String(value)
			if err != nil {
				return nil, errors.New("a value is no text")
			}
			header.Add(m.Name, text)
		}
	}
	return header, nil
}

// The identity with which the host says what it has checked, and the types of its claims.
const (
	levelIdentity = "WebJobsAuthLevel"
	claimLevel    = "http://schemas.microsoft.com/2017/07/functions/claims/authlevel"
	claimKey      = "http://schemas.microsoft.com/2017/07/functions/claims/keyid"
	maxKeyName    = 128
)

// keyOf returns the name of the key that the host has checked, and whether it has checked one that is good for a
// function. A client can add identities before that of the host (x-ms-client-principal), so there must be only one of
// its type.
func keyOf(value json.RawMessage) (name string, isKnown bool) {
	var identities []struct {
		AuthenticationType string
		Claims             []struct{ Type, Value string }
	}
	if json.Unmarshal(unpacked(value), &identities) != nil {
		return "", false
	}
	var levels []string
	checked := 0
	for _, identity := range identities {
		if !strings.EqualFold(identity.AuthenticationType, levelIdentity) {
			continue
		}
		checked++
		for _, claim := range identity.Claims {
			switch claim.Type {
			case claimLevel:
				levels = append(levels, claim.Value)
			case claimKey:
				name = text.Clip(claim.Value, maxKeyName)
			}
		}
	}
	if checked != 1 || len(levels) != 1 {
		return "", false
	}
	switch levels[0] {
	case "Function", "System", "Admin":
		return name, true
	}
	return "", false
}
