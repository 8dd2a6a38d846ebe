package emulator

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	"asynccaller/handler/internal/storage/memory"
)

// maxChanges is the service's limit on the changes of a transaction.
const maxChanges = 100

// The boundaries of answers, in which nothing of a request is. The client for Node.js looks for the prefixes.
const batchBoundary, changeBoundary = "batchresponse_1", "changesetresponse_1"

var errTransaction = invalid("The transaction is not one of the service.")

// transact makes all changes of a transaction, or none. An answer of 202 has the results.
func (t *tables) transact(r *request) (reply, error) {
	name, changes, failed, err := readTransaction(r)
	var versions []string
	if err == nil {
		t.mu.RLock()
		defer t.mu.RUnlock()
		versions, failed, err = t.change(r, name, changes)
	}
	var results bytes.Buffer
	if err != nil {
		f, ok := errors.AsType[*failure](err)
		if !ok || f == errTransaction {
			return reply{}, err
		}
		body, mediaType := t.describe(&failure{f.status, f.code, fmt.Sprintf("%d:%s", failed, f.message)})
		header := fmt.Sprintf("X-Ms-Error-Code: %s\r\nContent-Type: %s\r\n", f.code, mediaType)
		writeResult(&results, f.status, header, body)
	}
	for _, version := range versions {
		header := ""
		if version != "" {
			header = "ETag: " + etag(version) + "\r\n"
		}
		writeResult(&results, http.StatusNoContent, header, nil)
	}
	body := "--" + batchBoundary + "\r\nContent-Type: multipart/mixed; boundary=" + changeBoundary + "\r\n\r\n" +
		results.String() + "--" + changeBoundary + "--\r\n--" + batchBoundary + "--\r\n"
	return reply{http.StatusAccepted, "multipart/mixed; boundary=" + batchBoundary, []byte(body)}, nil
}

func writeResult(w *bytes.Buffer, status int, header string, body []byte) {
	fmt.Fprintf(w, "--"+changeBoundary+"\r\nContent-Type: application/http\r\n"+
		"Content-Transfer-Encoding: binary\r\n\r\nHTTP/1.1 %d %s\r\nDataServiceVersion: 3.0;\r\n%s\r\n%s\r\n",
		status, http.StatusText(status), header, body)
}

// readTransaction returns the changes of a transaction, which are of one partition of one table. If one is refused, it
// returns its number.
func readTransaction(r *request) (table string, changes []memory.Change, failed int, err error) {
	parts, err := changeSet(r)
	if err != nil {
		return "", nil, 0, err
	}
	seen := map[string]bool{}
	for {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) && len(changes) > 0 {
			return table, changes, 0, nil
		}
		if err != nil {
			return "", nil, 0, errTransaction
		}
		inner, err := readPart(r, part)
		if err != nil {
			return "", nil, 0, err
		}
		name, change, err := changeOf(inner)
		switch {
		case err != nil:
		case len(changes) == maxChanges:
			err = invalid("The transaction has more than 100 operations.")
		case len(changes) > 0 && (!strings.EqualFold(name, table) || change.Partition != changes[0].Partition):
			err = &failure{
				http.StatusBadRequest, "CommandsInBatchActOnDifferentPartitions",
				"All commands in a batch must operate on same entity group.",
			}
		case seen[change.ID]:
			err = &failure{
				http.StatusBadRequest, "InvalidDuplicateRow",
				"A command with RowKey is already present in the batch. An entity can appear only once in a batch.",
			}
		}
		if err != nil {
			return "", nil, len(changes), err
		}
		seen[change.ID] = true
		table, changes = name, append(changes, change)
	}
}

// changeSet returns the parts of the only change set of a transaction.
func changeSet(r *request) (*multipart.Reader, error) {
	boundary := boundaryOf(r.Header.Get("Content-Type"))
	if boundary == "" {
		return nil, errTransaction
	}
	part, err := multipart.NewReader(bytes.NewReader(r.content), boundary).NextRawPart()
	if err != nil {
		return nil, errTransaction
	}
	boundary = boundaryOf(part.Header.Get("Content-Type"))
	if boundary == "" {
		return nil, errTransaction
	}
	return multipart.NewReader(part, boundary), nil
}

func boundaryOf(contentType string) string {
	mediaType, parameters, err := mime.ParseMediaType(contentType)
	if err != nil || mediaType != "multipart/mixed" {
		return ""
	}
	return parameters["boundary"]
}

// readPart returns one request of a transaction, which needs no signature.
func readPart(r *request, part io.Reader) (*request, error) {
	reader := textproto.NewReader(bufio.NewReader(part))
	line, err := reader.ReadLine()
	words := strings.Split(line, " ")
	if err != nil || len(words) != 3 {
		return nil, errTransaction
	}
	header, err := reader.ReadMIMEHeader()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, errTransaction
	}
	target, err := url.Parse(words[1])
	if err != nil {
		return nil, errTransaction
	}
	path, isOwn := strings.CutPrefix(target.Path, "/"+Account+"/")
	content, err := io.ReadAll(reader.R)
	if err != nil || !isOwn {
		return nil, errTransaction
	}
	return &request{
		Request: &http.Request{Method: words[0], Header: http.Header(header)},
		path:    path, query: target.Query(), grant: r.grant, content: content, base: r.base,
	}, nil
}
