package reconcile

import (
	"bufio"
	"cmp"
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
// lines with an id of an earlier line. It skips blank lines, and keeps no more in memory than a line and the ids: it
// reads CSV by lines as well, because quotes need not end. The error names the line that is wrong.
func ReadIDs(file io.Reader, column string) (ids []string, repeated int, err error) {
	lines, known := bufio.NewScanner(bom.NewReader(file)), map[string]bool{}
	lines.Buffer(nil, maxLineBytes)
	number, cell := 0, -1 // the cell of the column in a line of CSV
	for err == nil && lines.Scan() {
		number++
		id := strings.TrimSpace(lines.Text())
		switch {
		case id == "":
			continue
		case column == "" && strings.HasPrefix(id, `{"`):
			err = errors.New("this is JSON: name the member that has the id with --column")
		case column == "":
		case cell >= 0:
			id, err = cellOf(id, cell)
		case strings.HasPrefix(id, "{"):
			id, err = memberOf(id, column)
		default:
			cell, err = columnOf(id, column)
			continue
		}
		switch {
		case err != nil:
		case !envelope.ValidRequestID(id):
			err = fmt.Errorf("%q is no request id: want 1 to 128 visible ASCII characters", text.Line(id, maxShown))
		case known[id]:
			repeated++
		case len(ids) == MaxIDs:
			err = fmt.Errorf("more than %s different ids: split the file", format.Number(MaxIDs))
		default:
			id = strings.Clone(id) // the line can be much longer
			known[id] = true
			ids = append(ids, id)
		}
	}
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("line %d: %w", number, err)
	case errors.Is(lines.Err(), bufio.ErrTooLong):
		return nil, 0, fmt.Errorf("line %d is longer than %s bytes", number+1, format.Number(maxLineBytes))
	case lines.Err() != nil:
		return nil, 0, fmt.Errorf("after line %d: %w", number, lines.Err())
	case len(ids) == 0:
		return nil, 0, errors.New("no request ids")
	}
	return ids, repeated, nil
}

// memberOf returns a text of a JSON object.
func memberOf(object, name string) (string, error) {
	members, err := strictjson.Object([]byte(object))
	for _, m := range members {
		if m.Name == name {
			return strictjson.String(m.Value)
		}
	}
	return "", cmp.Or(err, fmt.Errorf("no member %s", text.Line(name, maxShown)))
}

// columnOf returns the number of a column in the line with the names.
func columnOf(line, name string) (int, error) {
	names, err := csv.NewReader(strings.NewReader(line)).Read()
	n := slices.Index(names, name)
	if err == nil && n < 0 {
		err = fmt.Errorf("no column %s in %s", text.Line(name, maxShown), text.Line(line, maxShown))
	}
	return n, err
}

func cellOf(line string, n int) (string, error) {
	cells, err := csv.NewReader(strings.NewReader(line)).Read()
	switch {
	case err != nil:
		return "", errors.Unwrap(err) // without the number of the line, which is always 1
	case n >= len(cells):
		return "", errors.New("the line is too short")
	}
	return strings.TrimSpace(cells[n]), nil
}
