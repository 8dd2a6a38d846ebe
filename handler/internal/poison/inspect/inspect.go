// Package inspect says what a message on a poison queue is and why it is there, chooses among such
// messages, and groups them by what they have in common. It is pure. Every byte of a message may come from
// an attacker, so what it says of one is printable and bounded, and never a body, a header's value, a query
// string or user info.
package inspect

import (
	"cmp"
	"strings"
	"time"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/queue"
)

// The reasons that are found out here, because nobody wrote one on the message. All others are those of the
// dead letter: see decision.Reason.
const (
	// Undecodable: the text is not base64, so the host could not hand it over and moved it.
	Undecodable = "undecodable"
	// Malformed: the content is no envelope, or one that can never be delivered. The handler writes the
	// same word on a dead letter whose only fault is its retry policy.
	Malformed = string(decision.Malformed)
	// HostGaveUp: a good envelope on which no failure is recorded. The host moved it after it had been
	// delivered in vain as often as host.json's maxDequeueCount says.
	HostGaveUp = "host_gave_up"
	// Unknown: a dead letter that gives no reason.
	Unknown = "unknown"
)

// How much of what a sender may have written is kept, in bytes.
const (
	maxReason = 64
	maxDetail = 300
	maxError  = 100
	maxTenant = 128
	maxHost   = 260 // the longest name in DNS, and a port
	maxMethod = 32
	maxPath   = 512
)

// Message is what is known of a message on a poison queue. It is what `--json` prints and what an export
// carries. Its texts are printable and bounded, and share no memory with the message that they were read
// from, so that many can be kept.
type Message struct {
	// Queue is the poison queue, ID the message's id there.
	Queue      string    `json:"queue"`
	ID         string    `json:"id"`
	InsertedAt time.Time `json:"insertedAt"`
	// ExpiresAt is when storage deletes the message; zero for never. What the host moved expires after
	// 7 days, what the handler wrote does not.
	ExpiresAt    time.Time `json:"expiresAt,omitzero"`
	DequeueCount int64     `json:"dequeueCount"`
	// Main is the queue that the message belongs back to: the one that the dead letter names, if a message
	// can stand there, else Queue without "-poison".
	Main string `json:"main"`
	// Reason is why it is here, in one word: one of the constants, or what the dead letter says. Detail
	// tells the same in words, in at most 300 bytes.
	Reason string `json:"reason"`
	Detail string `json:"detail,omitempty"`
	// Since is when it was given up, or InsertedAt where nothing credible is known of that.
	Since time.Time `json:"since"`
	// Format is empty when the content is no envelope. It is set when the text is one but not in base64.
	Format envelope.Format `json:"format,omitempty"`
	// RequestID is the sender's, empty when it gave none. Of a malformed message it is a guess.
	RequestID    string `json:"requestId,omitempty"`
	Organization string `json:"organization,omitempty"`
	Environment  string `json:"environment,omitempty"`
	// Attempts is the number of calls made; Status is the latest answer, 0 when there was none. Error is
	// what went wrong with the latest attempt, in a word or two, when that brought no answer.
	Attempts int    `json:"attempts"`
	Status   int    `json:"status,omitempty"`
	Error    string `json:"error,omitempty"`
	// Method, Host, Path and Route are the call's, empty when there is no envelope. Host is in lower case,
	// with a port if the URL has one. Path is escaped as in the URL and cut at 512 bytes; a URL without
	// one has "/". See [Route].
	Method string `json:"method,omitempty"`
	Host   string `json:"host,omitempty"`
	Path   string `json:"path,omitempty"`
	Route  string `json:"route,omitempty"`
	// Bytes is the size of the content, decoded, or of the text where that cannot be decoded.
	Bytes int `json:"bytes"`
}

// Rules is what must be known to tell whether a message could be delivered.
type Rules struct {
	Encoding queue.Encoding
	Decision decision.Rules
}

// Content is what a message's text holds: the decoded bytes or, where the text cannot be decoded, its own.
func (r Rules) Content(text string) []byte {
	content, err := r.Encoding.Decode(text)
	if err != nil {
		return []byte(text)
	}
	return content
}

// Read says what is known of a message that stands on the named poison queue. It never fails: whatever the
// message is, it says so. It takes the queue's name and what storage says of the message as they are.
func Read(r Rules, queueName string, m queue.Message) Message {
	main := strings.TrimSuffix(queueName, poisonSuffix)
	about := Message{
		Queue: queueName, ID: m.ID, Main: main, DequeueCount: m.DequeueCount,
		InsertedAt: m.InsertedAt.UTC(), Since: m.InsertedAt.UTC(),
	}
	if m.ExpiresAt.Year() < never {
		about.ExpiresAt = m.ExpiresAt.UTC()
	}
	content, undecodable := r.Encoding.Decode(m.Text)
	if undecodable != nil {
		content = []byte(m.Text)
	}
	about.Bytes = len(content)
	// When the message came here is the only clock there is.
	in := r.Decision.Open(content, m.ID, r.Encoding.MaxContentBytes(), m.InsertedAt)
	e := in.Received
	if e != nil {
		about.describe(e)
	} else {
		about.guess(in)
	}
	switch {
	case undecodable != nil:
		about.because(Undecodable, whyUndecodable(undecodable, e))
	case e == nil:
		about.because(Malformed, in.Malformed.Error())
	case e.DeadLetter != nil:
		about.believe(*e.DeadLetter)
	default:
		about.because(r.whyUnrecorded(in, m))
	}
	return about
}

const (
	poisonSuffix = "-poison"
	// never is the year in which a message expires that does not.
	never = 9999
)

// describe adds what the envelope tells of itself.
func (m *Message) describe(e *envelope.Envelope) {
	m.Format, m.RequestID = e.Format(), shown(e.RequestID, maxTenant)
	m.Organization, m.Environment = shown(e.Tenant.Organization, maxTenant), shown(e.Tenant.Environment, maxTenant)
	m.Attempts, m.Status = e.Attempts, e.LatestStatus()
	if n := len(e.Trail); n > 0 {
		m.Error = shown(e.Trail[n-1].Error, maxError)
	}
	m.Method = shown(e.Call.Method, maxMethod)
	u := e.Call.Target
	path := cmp.Or(u.EscapedPath(), "/")
	m.Host, m.Path, m.Route = shown(strings.ToLower(u.Host), maxHost), shown(path, maxPath), Route(path)
}

// guess adds what can be known of a message that is no envelope, so that its sender can be found.
func (m *Message) guess(in decision.Intake) {
	m.Organization, m.Environment = shown(in.Tenant.Organization, maxTenant), shown(in.Tenant.Environment, maxTenant)
	m.RequestID = in.RequestID
}

// believe adds what the dead letter says. Anybody can have written it, so what cannot be is left out.
func (m *Message) believe(d envelope.DeadLetter) {
	m.because(cmp.Or(d.Reason, Unknown), d.Detail)
	if _, ok := queue.PoisonName(d.Queue); ok {
		m.Main = strings.Clone(d.Queue)
	}
	const clocksDiffer = 24 * time.Hour
	if d.At.Unix() > 0 && !d.At.After(m.InsertedAt.Add(clocksDiffer)) {
		m.Since = d.At.UTC()
	}
	if m.Attempts == 0 {
		m.Attempts = max(d.Attempts, 0)
	}
}

func (m *Message) because(reason, detail string) {
	m.Reason, m.Detail = shown(reason, maxReason), shown(detail, maxDetail)
}
