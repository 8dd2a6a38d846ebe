package send

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"
	"unicode/utf8"
)

// Draft describes a native envelope. Its members are those of docs/envelope.md; zero values are left out.
// [Sender.Prepare] validates them.
type Draft struct {
	RequestID string          `json:"requestId,omitempty"`
	Call      Call            `json:"call"`
	Callback  Callback        `json:"callback,omitzero"`
	Context   json.RawMessage `json:"context,omitempty"`
	Priority  int             `json:"priority,omitempty"`
	NotBefore time.Time       `json:"notBefore,omitzero"`
	Deadline  time.Time       `json:"deadline,omitzero"`
	Retry     json.RawMessage `json:"retry,omitempty"`
	GiveUp    string          `json:"giveUp,omitempty"`
}

// Call is the request to the target. At most one of the bodies is set.
type Call struct {
	URL        string          `json:"url"`
	Method     string          `json:"method,omitempty"`
	Headers    http.Header     `json:"headers,omitempty"`
	Body       *string         `json:"body,omitempty"`
	BodyBase64 []byte          `json:"bodyBase64,omitempty"`
	JSON       json.RawMessage `json:"json,omitempty"`
	Timeout    string          `json:"timeout,omitempty"`
}

// Callback is the call that reports the outcome.
type Callback struct {
	URL string `json:"url"`
}

// SetBody sets the body, as text if it is UTF-8.
func (c *Call) SetBody(content []byte) {
	if !utf8.Valid(content) {
		c.BodyBase64 = content
		return
	}
	text := string(content)
	c.Body = &text
}

// Encode returns the envelope as JSON.
func (d Draft) Encode() ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(struct {
		Version int `json:"asyncCaller"`
		Draft
	}{1, d})
	return b.Bytes(), err
}
