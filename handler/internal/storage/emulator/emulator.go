// Package emulator serves the queues and tables of package memory on 127.0.0.1, in the wire format of Azure Storage. It
// is a stand-in for development: nothing it holds survives its end. It has what the commands of Async Caller use: of
// queues, create, list, count, and all operations on messages but Clear Messages; of tables, all operations on tables
// and entities, and transactions. It answers any other operation with 501.
package emulator

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	// Account is the account's name, and the first segment of every URL's path.
	Account = "demo"
	// Name is the header Server of every answer.
	Name = "Async-Caller-Emulator (development only, keeps nothing)"

	// apiVersion is the version of the API that answers have, whatever the client's is.
	apiVersion = "2021-12-02"
	keyBytes   = 64
	loopback   = "127.0.0.1"
)

// The limits of a request. A body is read only after its signature has been checked.
const (
	headerTimeout  = 10 * time.Second
	requestTimeout = time.Minute
	maxHeaderBytes = 64 << 10
	// maxBodyBytes is the service's limit on a transaction.
	maxBodyBytes = 4 << 20
)

// Options are the ports of the services; 0 is a free one.
type Options struct{ QueuePort, TablePort int }

// Server is a running account. It is safe for concurrent use.
type Server struct {
	// ConnectionString reaches the account. It has a key of its own.
	ConnectionString string
	// QueueEndpoint and TableEndpoint are the URLs of the services, without a slash at the end.
	QueueEndpoint, TableEndpoint string

	servers []*http.Server
	serving sync.WaitGroup
}

// Start starts an account, and creates its key. The caller closes it.
func Start(ctx context.Context, o Options) (*Server, error) {
	key := make([]byte, keyBytes)
	_, _ = rand.Read(key) // never fails
	s := &Server{}
	var err error
	s.QueueEndpoint, err = s.serve(ctx, o.QueuePort, &service{key: key, kind: queueService, api: newQueues()})
	if err == nil {
		s.TableEndpoint, err = s.serve(ctx, o.TablePort, &service{key: key, kind: tableService, api: newTables()})
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	s.ConnectionString = "DefaultEndpointsProtocol=http;AccountName=" + Account +
		";AccountKey=" + base64.StdEncoding.EncodeToString(key) +
		";QueueEndpoint=" + s.QueueEndpoint + ";TableEndpoint=" + s.TableEndpoint + ";"
	return s, nil
}

func (s *Server) serve(ctx context.Context, port int, service *service) (endpoint string, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", fmt.Sprintf("%s:%d", loopback, port))
	if err != nil {
		return "", err
	}
	service.address = listener.Addr().String()
	server := &http.Server{
		Handler: service, MaxHeaderBytes: maxHeaderBytes,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout,
	}
	s.servers = append(s.servers, server)
	s.serving.Go(func() { _ = server.Serve(listener) }) // returns when the listener is closed
	return "http://" + service.address + "/" + Account, nil
}

// Close ends all connections, and waits until the servers have stopped.
func (s *Server) Close() {
	for _, server := range s.servers {
		_ = server.Close() // only the listener can fail, which may be closed already
	}
	s.serving.Wait()
}

// kind is the word for a service in the signatures of SAS.
type kind string

const (
	queueService kind = "queue"
	tableService kind = "table"
)

// service answers the requests to one service of the account.
type service struct {
	key     []byte
	kind    kind
	address string
	api     api
}

// api is what differs between the services.
type api interface {
	// do carries out an operation. The path is that below the account.
	do(r *request) (reply, error)
	// describe returns the body of an error, and its media type.
	describe(f *failure) (body []byte, mediaType string)
}

// request is a request that has a valid signature.
type request struct {
	*http.Request

	path    string
	query   url.Values
	grant   grant
	content []byte
	header  http.Header // of the answer
	base    string      // the URL of the service
}

// reply is an answer that is not an error.
type reply struct {
	status    int
	mediaType string
	body      []byte
}

// failure is an answer that is an error, with the code and the text of the service.
type failure struct {
	status        int
	code, message string
}

func (f *failure) Error() string { return f.code + ": " + f.message }

func invalid(message string) *failure {
	return &failure{http.StatusBadRequest, "InvalidInput", message}
}

var errUnsupported = &failure{http.StatusNotImplemented, "NotImplemented", "The emulator does not have this operation."}

// ServeHTTP refuses what a browser could have sent before anything else: any page could otherwise write calls.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Server", Name)
	header.Set("X-Ms-Version", apiVersion)
	header.Set("X-Ms-Request-Id", rand.Text())
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	_, hasOrigin := r.Header["Origin"]
	_, isBrowser := r.Header["Sec-Fetch-Site"]
	if hasOrigin || isBrowser || r.Host != s.address {
		header.Set("Connection", "close")
		s.fail(w, &failure{
			http.StatusForbidden, "AuthorizationFailure", "The emulator refuses browsers and foreign host names.",
		})
		return
	}
	if id := r.Header.Get("X-Ms-Client-Request-Id"); id != "" {
		header.Set("X-Ms-Client-Request-Id", id) // clients compare it
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
	answer, err := s.answer(r, header)
	if err != nil {
		f, ok := errors.AsType[*failure](err)
		if !ok { // the body broke off
			f = invalid("The request is incomplete.")
		}
		s.fail(w, f)
		return
	}
	if answer.mediaType != "" {
		header.Set("Content-Type", answer.mediaType)
	}
	w.WriteHeader(answer.status)
	_, _ = w.Write(answer.body) // the client may have left
}

func (s *service) answer(r *http.Request, header http.Header) (reply, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	path, isOwn := strings.CutPrefix(r.URL.Path, "/"+Account)
	if err != nil || !isOwn || path != "" && path[0] != '/' || !strings.HasPrefix(r.RequestURI, "/") {
		return reply{}, &failure{http.StatusBadRequest, "InvalidUri", "The URL is not one of the account."}
	}
	granted, err := s.authenticate(r, query)
	if err != nil {
		return reply{}, err
	}
	content, err := io.ReadAll(r.Body)
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		err = &failure{http.StatusRequestEntityTooLarge, "RequestBodyTooLarge", "The request body is too large."}
	}
	if err != nil {
		return reply{}, err
	}
	return s.api.do(&request{
		Request: r, path: strings.Trim(path, "/"), query: query, grant: granted, content: content, header: header,
		base: "http://" + s.address + "/" + Account,
	})
}

func (s *service) fail(w http.ResponseWriter, f *failure) {
	body, mediaType := s.api.describe(f)
	w.Header().Set("X-Ms-Error-Code", f.code)
	w.Header().Set("Content-Type", mediaType)
	w.WriteHeader(f.status)
	_, _ = w.Write(body) //nolint:gosec // no HTML: JSON or XML, with nosniff; the client may have left
}
