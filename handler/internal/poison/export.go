package poison

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"asynccaller/handler/internal/poison/inspect"
)

// Record is an exported message: what is known of it, and its text, byte for byte as it stands on the queue.
// Content that is not UTF-8 stands there in base64, so nothing is lost.
type Record struct {
	inspect.Message
	Text string `json:"text"`
}

// maxRecord is more than a text of 64 KiB, each byte up to six in JSON, and all that is said of it.
const maxRecord = 1 << 20

// WriteRecord writes a message as one line of JSON.
func WriteRecord(out io.Writer, f Found) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(Record{Message: f.Message, Text: f.Text})
}

// ReadRecords reads what WriteRecord wrote. Its error names the line.
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
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("line %d: not a line of an export: %w", n, err)
		}
		if r.Text == nil {
			return fmt.Errorf("line %d: text: missing: this is no line of an export", n)
		}
		r.Record.Text = *r.Text
		if err := see(r.Record); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("line %d: longer than %d bytes: this is no line of an export", n+1, maxRecord)
	}
	return lines.Err()
}

// csvHeader names the columns of [CSVWriter].
var csvHeader = []string{
	"queue", "id", "since", "reason", "status", "attempts", "method", "host", "path", "request id", "expires", "detail", "text",
}

// CSVWriter writes messages as CSV for a spreadsheet. PlanImport reads only JSON lines.
type CSVWriter struct{ out *csv.Writer }

// NewCSVWriter writes the header row.
func NewCSVWriter(out io.Writer) (*CSVWriter, error) {
	w := &CSVWriter{csv.NewWriter(out)}
	return w, w.out.Write(csvHeader)
}

// Write writes one message.
func (w *CSVWriter) Write(f Found) error {
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
	for i := range row {
		row[i] = harmless(row[i])
	}
	return w.out.Write(row)
}

// Flush writes any buffered rows to the underlying writer.
func (w *CSVWriter) Flush() error {
	w.out.Flush()
	return w.out.Error()
}

// harmless keeps a spreadsheet from taking a text for a formula
// (https://owasp.org/www-community/attacks/CSV_Injection).
func harmless(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}
