package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
)

// maxAnswerBytes bounds what is read of an answer. The real host takes up to 2 GiB; an answer of this
// size is a fault of the handler's.
const maxAnswerBytes = 16 << 20

// maxAnswerDepth is how deep the real host's formatter goes.
const maxAnswerDepth = 256

// verdict is what an answer means for the invocation.
type verdict int

const (
	failure verdict = iota
	success
	// hang: the host takes the answer for none and waits on, until the function times out.
	hang
)

// judgement is a verdict with what comes with it.
type judgement struct {
	verdict verdict
	logs    []string // of a success
	err     error    // of a failure; never holds anything of the body
}

// judge tells what an answer means: section B of the Functions host contract. Like the table there, it
// does not care about anything but status, media type and the shape of the body.
func judge(status int, contentType string, body []byte) judgement {
	if status < 200 || status > 299 {
		return failed(fmt.Errorf("handler answered %d %s", status, http.StatusText(status)))
	}
	if len(body) == 0 {
		return judgement{verdict: hang}
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil || mediaType != "application/json" && mediaType != "text/json" {
		return failed(fmt.Errorf("handler answered %d with media type %q: the host reads application/json only", status, contentType))
	}
	// The byte order mark is the reader's, not the parser's.
	body = bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\ufeff")))
	if len(body) == 0 || string(body) == "null" {
		return judgement{verdict: hang}
	}
	// The real host overlooks what follows the object; a handler should not count on it.
	if !json.Valid(body) || depth(body) > maxAnswerDepth {
		return failed(errors.New("handler answered with malformed JSON"))
	}
	if body[0] != '{' {
		return failed(errors.New("handler answered with JSON that is no object"))
	}
	logs, err := answerLogs(body)
	if err != nil {
		return failed(err)
	}
	return judgement{verdict: success, logs: logs}
}

func failed(err error) judgement { return judgement{verdict: failure, err: err} }

// answerLogs checks the members that the host reads, whose names may be written in any case, and
// returns the log lines.
func answerLogs(body []byte) ([]string, error) {
	var result struct {
		Outputs     map[string]json.RawMessage
		ReturnValue json.RawMessage
		Logs        []any
	}
	if err := json.Unmarshal(body, &result); err != nil {
		return nil, errors.New("handler answered with Outputs that is no object or Logs that is no array")
	}
	logs := make([]string, 0, len(result.Logs))
	for _, line := range result.Logs {
		switch line := line.(type) {
		case nil:
		case string:
			logs = append(logs, line)
		case bool, float64:
			logs = append(logs, fmt.Sprint(line))
		default:
			return nil, errors.New("handler answered with Logs that holds more than strings")
		}
	}
	return logs, nil
}
