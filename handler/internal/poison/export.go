package poison

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"asynccaller/handler/internal/poison/inspect"
)

// Record is an exported message: its description and its text, byte for byte as on the queue. Content that is not
// UTF-8 is base64 there, so nothing is lost.
type Record struct {
	inspect.Message
	Text string `json:"text"`
}

// maxRecord exceeds a text of 64 KiB, each byte taking up to six in JSON, with its description.
const maxRecord = 1 << 20

// WriteRecord writes a message as one line of JSON.
func WriteRecord(out io.Writer, f Found) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(Record{Message: f.Message, Text: f.Text})
}

// ReadRecords reads the lines that WriteRecord wrote. Its error names the line.
func ReadRecords(in io.Reader, see func(Record) error) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), maxRecord)
	n := 0
	for lines.Scan() {
		n++
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		var r struct {
			Record
			Text *string `json:"text"`
		}
		err := json.Unmarshal(lines.Bytes(), &r)
		switch {
		case err != nil:
			err = fmt.Errorf("not a line of an export: %w", err)
		case r.Text == nil:
			err = errors.New("text: missing: this is not a line of an export")
		default:
			r.Record.Text = *r.Text
			err = see(r.Record)
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

// CSVHeader names the columns of [CSVRow].
var CSVHeader = []string{
	"queue", "id", "since", "reason", "status", "attempts", "method", "host", "path", "request id", "expires", "detail", "text",
}

// CSVRow returns a message as a row for a spreadsheet. PlanImport reads only JSON lines.
func CSVRow(f Found) []string {
	status, expires := "", ""
	if f.Status != 0 {
		status = strconv.Itoa(f.Status)
	}
	if !f.ExpiresAt.IsZero() {
		expires = f.ExpiresAt.Format(time.RFC3339)
	}
	row := []string{
		f.Queue, f.ID, f.Since.Format(time.RFC3339), f.Reason, status, strconv.Itoa(f.Attempts), f.Method, f.Host, f.Path,
		f.RequestID, expires, f.Detail, f.Text,
	}
	for i, cell := range row {
		// Keep spreadsheets from evaluating a formula (https://owasp.org/www-community/attacks/CSV_Injection).
		if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
			row[i] = "'" + cell
		}
	}
	return row
}
