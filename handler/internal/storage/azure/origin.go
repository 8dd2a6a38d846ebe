package azure

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"asynccaller/handler/internal/storage"
)

// service is a service of a storage account, as the header Server of its answers names it.
type service string

const (
	queueService service = "Queue"
	tableService service = "Table"
	blobService  service = "Blob"
)

// origin passes on the answers of one service. Any other server's answer is a [storage.ErrForeign].
type origin struct {
	next    policy.Transporter
	service service
}

// maxAnswer limits the body of an answer, in bytes. Azurite returns up to 1000 rows with contents of 64 KiB in base64.
const maxAnswer = 128 << 20

// Do implements [policy.Transporter].
func (o origin) Do(req *http.Request) (*http.Response, error) {
	response, err := o.next.Do(req)
	if err != nil {
		return nil, err
	}
	response.Body = http.MaxBytesReader(nil, response.Body, maxAnswer)
	body, err := runtime.Payload(response) // keeps it for the SDK
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case tooLarge, err == nil && !o.service.gave(req, response, body):
		return nil, fmt.Errorf("%s: the answer is not %s Storage's: %w",
			statusText(response.StatusCode, ""), o.service, storage.ErrForeign)
	case err != nil:
		return nil, err
	}
	return response, nil
}

// serverName matches the header Server of the services of Azure Storage and of Azurite.
var serverName = regexp.MustCompile(`^(?:Windows-Azure|Azurite)-([A-Za-z]+)/`)

// blobCode matches the error codes that only the blob service has.
var blobCode = regexp.MustCompile(`^(?:Container|Blob)[A-Z]`)

// gave reports whether the service gave the answer to a request. A proxy can remove the header Server, and other
// services set the same headers: a result must also have the form that the operation returns.
func (s service) gave(req *http.Request, answer *http.Response, body []byte) bool {
	server := serverName.FindStringSubmatch(answer.Header.Get("Server"))
	if server != nil && server[1] != string(s) {
		return false
	}
	code := answer.Header.Get("x-ms-error-code")
	hasID := answer.Header.Get("x-ms-request-id") != ""
	isSuccess := answer.StatusCode/100 == 2
	isStorages := hasID && answer.Header.Get(versionHeader) != "" // other services of Azure have an ID, too
	switch {
	case s == queueService && isSuccess:
		return isQueueResult(req, answer.Header, isStorages, body)
	case s == tableService && isSuccess:
		return isTableResult(req, answer.Header, isStorages, body)
	case s == tableService && answer.StatusCode == http.StatusNotFound && !bytes.HasPrefix(body, []byte("{")):
		return false // the commands would take it for a table without rows
	case s != blobService && blobCode.MatchString(code):
		return false
	}
	return hasID || code != "" || server != nil // Azurite's answers to a malformed request have only the server
}

// isQueueResult reports whether a success is what Queue Storage returns. An operation without a result has at least the
// headers of a storage account.
func isQueueResult(req *http.Request, header http.Header, isStorages bool, body []byte) bool {
	var document struct {
		Queues  *struct{}
		Message struct {
			ID         string `xml:"MessageId"`
			PopReceipt string
		} `xml:"QueueMessage"`
	}
	body = bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\ufeff")))
	query := req.URL.Query()
	switch {
	case req.Method == http.MethodPost:
		isMessage := isWhole(body, messageList) && xml.Unmarshal(body, &document) == nil
		return isMessage && document.Message.ID != "" && document.Message.PopReceipt != ""
	case req.Method == http.MethodPut && query.Has("popreceipt"):
		return header.Get("x-ms-popreceipt") != ""
	case req.Method != http.MethodGet:
		return isStorages
	case query.Get("comp") == "metadata":
		_, err := strconv.Atoi(header.Get("x-ms-approximate-messages-count"))
		return err == nil
	case query.Get("comp") == "list":
		isList := isWhole(body, "EnumerationResults") && xml.Unmarshal(body, &document) == nil
		return isList && document.Queues != nil
	}
	return isWhole(body, messageList)
}

// messageList is the root element of a list of messages.
const messageList = "QueueMessagesList"

// isWhole reports whether an XML document has a root element, and its end. What is between them is the SDK's to judge,
// which decodes it: for many or large messages, that takes long.
func isWhole(document []byte, root string) bool {
	decoder := xml.NewDecoder(bytes.NewReader(document))
	for {
		token, err := decoder.RawToken()
		if err != nil {
			return false
		}
		if start, isStart := token.(xml.StartElement); isStart {
			isEmpty := decoder.InputOffset() == int64(len(document)) && bytes.HasSuffix(document, []byte("/>"))
			return start.Name.Local == root && (isEmpty || bytes.HasSuffix(document, []byte("</"+root+">")))
		}
	}
}

// isTableResult is isQueueResult for Table Storage.
func isTableResult(req *http.Request, header http.Header, isStorages bool, body []byte) bool {
	switch {
	case strings.HasSuffix(req.URL.Path, "/$batch"):
		boundary, _, _ := bytes.Cut(body, []byte("\r\n"))
		isComplete := bytes.HasSuffix(bytes.TrimSpace(body), append(bytes.Clone(boundary), "--"...))
		return len(boundary) > 2 && isComplete && bytes.Contains(body, []byte("\nHTTP/1.1 "))
	case req.Method == http.MethodGet:
		var document struct {
			Metadata     string      `json:"odata.metadata"`
			Rows         *[]struct{} `json:"value"`
			PartitionKey *string
		}
		err := json.Unmarshal(body, &document)
		return err == nil && document.Metadata != "" && (document.Rows != nil || document.PartitionKey != nil)
	case req.Method == http.MethodDelete, strings.HasSuffix(req.URL.Path, "/Tables"):
		return isStorages
	}
	return isStorages && strings.HasPrefix(header.Get("ETag"), `W/"`) // a blob has another form
}

// Reach asks a queue endpoint for an answer without a credential, with a version of the API, and returns the headers of
// the answer. Every answer of Queue Storage will do.
func Reach(ctx context.Context, endpoint, version string) (http.Header, error) {
	client := newHTTPClient(NewTransport(endpoint))
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.URL.RawQuery = "comp=list" // without an operation, the answer can lack all but the header Server
	request.Header.Set(versionHeader, version)
	response, err := origin{client, queueService}.Do(request)
	if err != nil {
		return nil, err
	}
	return response.Header, response.Body.Close()
}
