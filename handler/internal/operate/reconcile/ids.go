package reconcile

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"asynccaller/handler/internal/plain/bom"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/envelope"
)

const (
	// MaxIDs is the largest number of different ids of a file. With what is found of them they take some 100 MiB.
	MaxIDs = 100_000
	// maxLineBytes is the length of the longest line, and maxShown limits a text of a file in an error.
	maxLineBytes = 1 << 20
	maxShown     = 80
)

// ReadIDs reads the request ids of a file, each once and in its order: one on each line or, with the name of a column,
// those of a column of CSV, whose first line has the names, or of a member of JSON lines. Repeated is the number of
// lines with an id of an earlier line. It skips blank lines, and keeps no more in memory than a line and the ids. The
// error names the line that is wrong.
func ReadIDs(file io.Reader, column string) (ids []string, repeated int, err error) {
	lines, known, table := bufio.NewScanner(bom.NewReader(file)), map[string]bool{}, csvColumn{name: column}
	lines.Buffer(nil, maxLineBytes)
	number := 0
	for err == nil && lines.Scan() {
		number++
		line := strings.TrimSpace(lines.Text())
		id, isHead, isJSON := line, false, strings.HasPrefix(line, "{")
		switch {
		case line == "":
			continue
		case isJSON && column != "":
			id, err = memberOf([]byte(line), column)
		case column != "":
			id, isHead, err = table.read(line)
		case strings.HasPrefix(line, `{"`):
			err = errors.New("this is JSON: name the member that has the id with --column")
		}
		switch {
		case err != nil || isHead:
		case !envelope.ValidRequestID(id):
			err = fmt.Errorf("%q is no request id: want 1 to 128 visible ASCII characters", text.Line(id, maxShown))
		case known[id]:
			repeated++
		case len(ids) == MaxIDs:
			err = fmt.Errorf("more than %s different ids: split the file", format.Number(MaxIDs))
		default:
			known[id] = true
			ids = append(ids, id)
		}
	}
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("line %d: %w", number, err)
	case lines.Err() != nil:
		return nil, 0, fmt.Errorf("after line %d: %w", number, lines.Err())
	case len(ids) == 0:
		return nil, 0, errors.New("no request ids")
	}
	return ids, repeated, nil
}

// memberOf returns a text, or a number, of a JSON object.
func memberOf(object []byte, name string) (string, error) {
	members, err := strictjson.Object(object)
	n := slices.IndexFunc(members, func(m strictjson.Member) bool { return m.Name == name })
	switch {
	case err != nil:
		return "", err
	case n < 0:
		return "", fmt.Errorf("no member %s", text.Line(name, maxShown))
	case strings.Trim(string(members[n].Value), "0123456789") == "":
		return string(members[n].Value), nil
	}
	return strictjson.String(members[n].Value)
}

// csvColumn reads a column of CSV. It reads line by line, so that quotes that do not end take no memory.
type csvColumn struct {
	name   string
	number int
	// comma is the separator; 0 before the line with the names.
	comma rune
}

func (c *csvColumn) read(line string) (cell string, isHead bool, err error) {
	isHead = c.comma == 0
	switch {
	case isHead && strings.Contains(line, ";") && !strings.Contains(line, ","): // as spreadsheets of some countries
		c.comma = ';'
	case isHead:
		c.comma = ','
	}
	record := csv.NewReader(strings.NewReader(line))
	record.Comma = c.comma
	cells, err := record.Read()
	if err != nil {
		return "", isHead, errors.Unwrap(err) // without the number of the line, which is always 1
	}
	if isHead {
		c.number = slices.Index(cells, c.name)
	}
	if c.number < 0 || c.number >= len(cells) {
		return "", isHead, fmt.Errorf("no column %s in %s", text.Line(c.name, maxShown), text.Line(line, maxShown))
	}
	return strings.TrimSpace(cells[c.number]), isHead, nil
}
