package world

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// The queues of the app.
const (
	mainQueue     = "async-caller"
	priorityQueue = "async-caller-1"
	routedQueue   = "orders-in"
	poisonSuffix  = "-poison"
)

// secretMark is in every text of a message that nobody but its target may see.
const secretMark = "s3cr3t"

// profileSecret is the secret of the profile of the host secured.
const profileSecret = secretMark + "-of-the-profile"

// message is a message of a sender, and what its target is to do.
type message struct {
	token string
	at    time.Duration
	queue string
	// isPosted says that the content is posted to a host, if there is one, and not written to the queue.
	isPosted bool
	// content is what the sender writes to the queue.
	content []byte
	isNexus bool
	// isMalformed says that no call can be made of it, and isUndecodable that not even the host can read it.
	isMalformed, isUndecodable bool
	// id is its request id: a hostile sender takes that of another message. Extra are members that a sender invents.
	id    string
	extra map[string]any

	host     string
	method   string
	path     string // with the query
	header   http.Header
	body     string
	hasReply bool // a callback
	// fails is how many calls fail with a temporary status before the last one, and final its status.
	fails, final int
	// says is how its target says whether a failed call may be repeated; it then answers with a status that alone would
	// mean the opposite.
	says says
	// replyFails is how many callbacks fail.
	replyFails int
	// deadline and notBefore are zero if there are none.
	deadline, notBefore time.Duration
	lifetime            time.Duration
	// giveUp says what giving up means: empty, drop or fault. UnusedGiveUp is that of a message with a callback, which
	// is sent instead.
	giveUp, unusedGiveUp string
	took                 time.Duration
	// delays are those of its policy: the last one repeats.
	delays []time.Duration
	// isExponential says that its policy is exponential, and not a list.
	isExponential bool
	// mostAttempts are those that its policy allows; 0 sets no limit.
	mostAttempts int
	// retryAfter is what its failures ask for.
	retryAfter time.Duration
}

// says is a way to say whether a failed call may be repeated.
type says string

const (
	byStatus  says = ""
	byHeader  says = "header"
	byProblem says = "problem"
	byNexus   says = "Nexus"
)

// anyToken is in the path of each call and callback, and in each content of a route.
var anyToken = regexp.MustCompile(`tok-\d{3}`)

const tokenBytes = len("tok-000")

// tokenIn returns the token of a content: that of a callback has the suffix of one.
func tokenIn(content []byte) string {
	for _, place := range []string{"do/tok-", "cb/tok-", "tok-"} {
		at := bytes.Index(content, []byte(place))
		if at < 0 {
			continue
		}
		at += len(place) - len("tok-")
		token := string(content[at:min(len(content), at+tokenBytes)])
		if place == "cb/tok-" {
			token += replySuffix
		}
		return token
	}
	return ""
}

// replySuffix ends the token of a callback.
const replySuffix = "/callback"

// decoded returns the content of a text on a queue.
func decoded(text string) []byte {
	content, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return []byte(text)
	}
	return content
}

// message returns the nth message, to one of the hosts.
func (g *generator) message(n int, hosts []string, calm time.Duration) *message {
	m := &message{
		token: fmt.Sprintf("tok-%03d", n), at: g.between(0, calm-time.Minute), queue: pick(g, mainQueue, mainQueue,
			mainQueue, priorityQueue),
		host:  pick(g, hosts...),
		fails: pick(g, 0, 0, 1, 1, 2, 3, 5), final: pick(g, 200, 200, 200, 202, 400, 410),
		hasReply: g.chance(0.4), replyFails: pick(g, 0, 0, 1, 2),
		took:       pick(g, 0, 10*time.Millisecond, 300*time.Millisecond, 2*time.Second, 8*time.Second),
		retryAfter: pick(g, 0, 0, 0, 7*time.Second, 40*time.Second),
		delays: pick(g, []time.Duration{time.Second}, []time.Duration{5 * time.Second, 40 * time.Second},
			[]time.Duration{35 * time.Second}, []time.Duration{
				time.Second, 10 * time.Second, time.Minute,
				2 * time.Minute,
			}),
	}
	if g.chance(0.25) {
		m.at = g.between(0, 3*time.Second) // a burst
	}
	if g.chance(0.02) {
		m.host = denied
	}
	if g.chance(0.1) {
		m.fails = 1 << 20 // it never succeeds
	}
	if m.fails > 1000 || g.chance(0.2) {
		m.lifetime = g.between(2*time.Minute, 8*time.Minute).Truncate(time.Second)
	}
	if g.chance(0.1) {
		m.notBefore = m.at + g.between(10*time.Second, 5*time.Minute).Truncate(time.Second)
	}
	if !m.hasReply && g.chance(0.1) {
		m.giveUp = pick(g, "drop", "fault")
	}
	if m.host == pausing && g.chance(0.5) {
		m.fails, m.lifetime = 1<<20, g.between(time.Minute, 4*time.Minute).Truncate(time.Second)
	}
	if m.host == narrow && g.chance(0.3) {
		m.took = g.between(65*time.Second, longest)
	}
	if g.chance(0.15) {
		m.mostAttempts = 2 + g.IntN(3)
	}
	if g.chance(0.25) {
		m.says = pick(g, byHeader, byProblem, byNexus)
	}
	m.id = m.token
	m.method = pick(g, http.MethodPost, http.MethodPost, http.MethodPut, http.MethodGet)
	m.path = "/do/" + m.token + "?key=" + secretMark + "-q-" + m.token
	m.header = http.Header{
		"X-Secret": {secretMark + "-h-" + m.token}, "Authorization": {"Bearer " + secretMark + "-a-" + m.token},
	}
	if m.method != http.MethodGet {
		m.header.Set("Content-Type", "text/plain")
		m.body = secretMark + "-b-" + m.token + strings.Repeat(" æ", pick(g, 0, 0, 0, 10, 10, 10, 10, 10, 100, 100,
			1000, 6000))
	}
	switch {
	case g.chance(0.15):
		m.isNexus = true
	case g.chance(0.08):
		m.queue, m.isPosted = routedQueue, n%2 == 0
		m.hasReply, m.giveUp, m.notBefore, m.lifetime = false, "", 0, 0
	case g.chance(0.08):
		m.isMalformed = true
		m.isUndecodable = g.chance(0.3)
	case g.chance(0.1):
		m.beHostile(g, n)
	}
	return m
}

// fastDelays are those of the policy of the app.
var fastDelays = []time.Duration{4 * time.Second, 45 * time.Second, 2 * time.Minute}

// longest is longer than each call that is answered.
const longest = 100 * time.Second

// beHostile gives a message what a sender may invent.
func (m *message) beHostile(g *generator, n int) {
	switch g.IntN(4) {
	case 0:
		m.id = fmt.Sprintf("tok-%03d", max(n-1, 0)) // that of another message
	case 1:
		m.extra = map[string]any{"reserved": pick(g, int64(0), -1e15, 1e15, 1<<47)}
	case 2:
		m.extra = map[string]any{"run": "invented", "trail": []any{map[string]any{"status": -1}}}
	case 3:
		m.extra = map[string]any{"trace": map[string]any{"traceparent": "00-" + secretMark}}
	}
}

// write makes the content that a sender sends now.
func (m *message) write(now time.Time, begin time.Time) {
	if m.lifetime > 0 {
		m.deadline = now.Sub(begin) + m.lifetime
	}
	switch {
	case m.queue == routedQueue:
		m.host, m.method, m.path = "a.example", http.MethodPost, "/do/route"
		m.header = http.Header{"Content-Type": {"text/plain"}}
		m.body = m.token + " " + secretMark + `-b {"asyncCaller":1,"call":{"url":"http://b.example/"}}`
		m.content, m.delays, m.mostAttempts = []byte(m.body), fastDelays, 0
	case m.isMalformed:
		m.content = fmt.Appendf(nil, `{"asyncCaller":1,"requestId":"%s","call":{"url":"ftp://a.example/do/%[1]s"}}`,
			m.token)
	case m.isNexus:
		m.content = m.nexus(now, begin)
	default:
		m.content = m.native(begin)
	}
}

func (m *message) native(begin time.Time) []byte {
	call := map[string]any{
		"url": "http://" + m.host + m.path, "method": m.method, "headers": flat(m.header),
	}
	if m.body != "" {
		call["body"] = m.body
	}
	e := map[string]any{"asyncCaller": 1, "requestId": m.id, "call": call, "x-unknown": secretMark}
	if m.hasReply {
		e["callback"] = map[string]any{
			"url":     "http://b.example/cb/" + m.token + "?key=" + secretMark + "-r-" + m.token,
			"headers": map[string]string{"X-Secret": secretMark + "-r-" + m.token},
		}
		e["context"] = map[string]any{"token": m.token, "secret": secretMark}
	}
	if m.deadline > 0 {
		e["deadline"] = begin.Add(m.deadline).Format(time.RFC3339Nano)
	}
	if m.notBefore > 0 {
		e["notBefore"] = begin.Add(m.notBefore).Format(time.RFC3339Nano)
	}
	if giveUp := m.giveUp + m.unusedGiveUp; giveUp != "" {
		e["giveUp"] = giveUp
	}
	maps.Copy(e, m.extra)
	var delays []string
	for _, d := range m.delays {
		delays = append(delays, d.String())
	}
	policy := map[string]any{"schedule": delays}
	if m.isExponential {
		policy = map[string]any{
			"baseDelay": delays[0], "factor": exponentialFactor, "maxDelay": delays[len(delays)-1],
		}
	}
	if m.mostAttempts > 0 {
		policy["maxAttempts"] = m.mostAttempts
	}
	e["retry"] = policy
	return encoded(e)
}

// nexus returns the message in the format of the C# system.
func (m *message) nexus(now, begin time.Time) []byte {
	const never = "0001-01-01T00:00:00+00:00"
	const form = "2006-01-02T15:04:05.0000000-07:00"
	deadline := now.Add(12 * time.Minute)
	if m.deadline > 0 {
		deadline = begin.Add(m.deadline)
	}
	m.deadline = deadline.Sub(begin)
	m.notBefore, m.giveUp = 0, ""
	m.delays, m.mostAttempts = fastDelays, 0
	httpMessage := func(method, host, path, body string, h http.Header) []byte {
		var text bytes.Buffer
		fmt.Fprintf(&text, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, path, host)
		_ = h.Write(&text)
		text.WriteString("\r\n" + body)
		return text.Bytes()
	}
	raw := map[string]any{
		"Id": m.token, "Title": m.method + " " + m.token, "Context": nil, "Priority": nil,
		"CallOut":          httpMessage(m.method, m.host, m.path, m.body, m.header),
		"CallOutUriScheme": "http", "CallBack": nil, "CallBackUriScheme": nil,
	}
	if m.hasReply {
		raw["Context"] = []byte(`{"token":"` + m.token + `"}`)
		raw["CallBack"] = httpMessage(http.MethodPost, "b.example", "/cb/"+m.token+"?key="+secretMark+"-r-"+m.token, "",
			http.Header{"X-Secret": {secretMark + "-r-" + m.token}})
		raw["CallBackUriScheme"] = "http"
	}
	return encoded(map[string]any{
		"Organization": "acme", "Environment": "prod", "OriginalRequestId": m.token, "Attempts": 0,
		"CreatedAt": now.Format(form), "LatestAttemptAt": never, "DeadlineAt": deadline.Format(form),
		"NextAttemptAt": now.Add(-time.Second).Format(form), "LatestResponse": nil, "RawRequest": raw,
	})
}

func flat(h http.Header) map[string]string {
	all := map[string]string{}
	for name, values := range h {
		all[name] = values[0]
	}
	return all
}

func encoded(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // the values are texts and numbers
	}
	return text
}
