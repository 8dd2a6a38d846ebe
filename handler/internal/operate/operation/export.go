package operation

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/plain/bom"
	"asynccaller/handler/internal/plain/strictjson"
)

// maxRecord exceeds a text of 64 KiB, each byte taking up to six in JSON, with its description.
const maxRecord = 1 << 20

// WriteRecord writes a message as one line of printable JSON: an [account.Found], or a value with its members. Content
// that is not UTF-8 is base64 in the text, so nothing is lost.
func WriteRecord(out io.Writer, record any) error {
	line, err := strictjson.Line(record)
	if err == nil {
		_, err = out.Write(line)
	}
	return err
}

// exported is a line of an export. State is empty in one of a dead letter from an earlier version; the other members
// are those of scheduled calls, as in [call.Summary].
type exported struct {
	account.Found

	State         string    `json:"state"`
	CreatedAt     time.Time `json:"createdAt"`
	NextAttemptAt time.Time `json:"nextAttemptAt"`
	Deadline      time.Time `json:"deadline"`
	Answer        string    `json:"answer"`
}

// isScheduled reports whether the line is that of a call that waits for its next attempt.
func (e exported) isScheduled() bool { return e.State != "" && e.State != "poison" }

// readRecords reads the lines that WriteRecord wrote. Its error names the line.
func readRecords(in io.Reader, visit func(exported) error) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), maxRecord)
	n := 0
	for lines.Scan() {
		n++
		line, err := bom.Text(lines.Bytes()) // files that were joined have a byte order mark each
		if err == nil && len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var r struct {
			exported
			Text *string `json:"text"`
		}
		if err == nil {
			err = json.Unmarshal(line, &r)
		}
		switch {
		case err != nil:
			err = fmt.Errorf("not a line of an export: %w", err)
		case r.Text == nil:
			err = errors.New("text: missing: this is not a line of an export")
		default:
			r.Found.Text = *r.Text
			err = visit(r.exported)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("line %d: longer than %d bytes: this is not a line of an export", n+1, maxRecord)
	}
	return lines.Err()
}
