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
	"unicode"
	"unicode/utf8"

	"asynccaller/handler/internal/strictjson"
)

// maxRecord exceeds a text of 64 KiB, each byte taking up to six in JSON, with its description.
const maxRecord = 1 << 20

// WriteRecord writes a message as one line of printable JSON. Content that is not UTF-8 is base64 in the text, so
// nothing is lost.
func WriteRecord(out io.Writer, f Found) error {
	line, err := strictjson.Line(f)
	if err == nil {
		_, err = out.Write(line)
	}
	return err
}

// ReadRecords reads the lines that WriteRecord wrote. Its error names the line.
func ReadRecords(in io.Reader, see func(Found) error) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), maxRecord)
	n := 0
	for lines.Scan() {
		n++
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		var r struct {
			Found
			Text *string `json:"text"`
		}
		err := json.Unmarshal(lines.Bytes(), &r)
		switch {
		case err != nil:
			err = fmt.Errorf("not a line of an export: %w", err)
		case r.Text == nil:
			err = errors.New("text: missing: this is not a line of an export")
		default:
			r.Found.Text = *r.Text
			err = see(r.Found)
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
	for i, text := range row {
		row[i] = cell(text)
	}
	return row
}

// formulas are the characters that begin a formula in a spreadsheet
// (https://owasp.org/www-community/attacks/CSV_Injection), in every width.
const formulas = "=+-@＝＋－＠﹦﹢﹣﹫−"

// cell returns a text that a spreadsheet does not evaluate and a terminal does not obey. It escapes unprintable
// characters, line breaks included, and puts an apostrophe before a formula. In some languages a semicolon ends a cell.
func cell(text string) string {
	var printable strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			printable.WriteRune(r)
			continue
		}
		escape := strconv.QuoteRune(r)
		printable.WriteString(escape[1 : len(escape)-1])
	}
	parts := strings.Split(printable.String(), ";")
	for i, part := range parts {
		if first, _ := utf8.DecodeRuneInString(strings.TrimLeft(part, ` '"`)); strings.ContainsRune(formulas, first) {
			parts[i] = "'" + part
		}
	}
	return strings.Join(parts, ";")
}
