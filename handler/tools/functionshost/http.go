package main

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/plain/bom"
)

const (
	// httpPrefix is the host's default for the prefix of routes, before the one of `async-caller routes sync`.
	httpPrefix = "/api/in/"
	// bodyLimitVariable is the setting with the size of the largest body, in bytes, and defaultBodyLimit its default.
	bodyLimitVariable = "FUNCTIONS_REQUEST_BODY_SIZE_LIMIT"
	defaultBodyLimit  = 104857600

	claims = "http://schemas.microsoft.com/2017/07/functions/claims/"
)

// httpFunctions serves the HTTP functions of routes (docs/host.md, "HTTP functions").
type httpFunctions struct {
	functions []functionapp.Post
	// key is the function key of all of them. Without one, every client is an admin, as under `func start`.
	key       string
	bodyLimit int64
	answer    func(context.Context, invocation) (result, bool)
}

func (h *host) newHTTPFunctions(i *invoker) httpFunctions {
	f := httpFunctions{
		functions: h.options.App.Posts, key: h.options.Key, bodyLimit: defaultBodyLimit, answer: i.answer,
	}
	for _, variable := range h.options.Env {
		value, isLimit := strings.CutPrefix(variable, bodyLimitVariable+"=")
		limit, err := strconv.ParseInt(value, 10, 64)
		if isLimit && err == nil {
			f.bodyLimit = limit
		}
	}
	return f
}

// serveHTTP serves the HTTP functions of the app, if it has any, until running ends. Then it answers what it has.
func (h *host) serveHTTP(running, inFlight context.Context, i *invoker) (wait func(), err error) {
	if len(h.options.App.Posts) == 0 {
		return func() {}, nil
	}
	bound, err := new(net.ListenConfig).Listen(running, "tcp4", h.options.HTTPAddress)
	if err != nil {
		return nil, fmt.Errorf("serve HTTP functions: %w", err)
	}
	server := http.Server{
		Handler: h.newHTTPFunctions(i), ReadHeaderTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return inFlight },
	}
	for _, f := range h.options.App.Posts {
		h.options.Log.Info().Str("function", f.Name).Msg("HTTP function: http://" + bound.Addr().String() +
			httpPrefix + f.Queue)
	}
	done := make(chan struct{})
	context.AfterFunc(running, func() {
		_ = server.Shutdown(inFlight)
		close(done)
	})
	go func() { _ = server.Serve(bound) }() // until Shutdown
	return func() { <-done }, nil
}

// ServeHTTP answers a client.
func (h httpFunctions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	function, found := h.find(r)
	if !found {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	level, allowed := h.authorize(function, r)
	if !allowed {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.bodyLimit))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	if err != nil {
		return // the client has left
	}
	answered, ok := h.answer(r.Context(), httpInvocation(function, r, body, level))
	if !ok {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	write(w, answered.Outputs[function.Output])
}

// find returns the function of a request, in any case, with or without a final slash. Another method has no function.
func (h httpFunctions) find(r *http.Request) (functionapp.Post, bool) {
	path := strings.TrimSuffix(r.URL.Path, "/")
	for _, f := range h.functions {
		if strings.EqualFold(path, httpPrefix+f.Queue) && r.Method == http.MethodPost {
			return f, true
		}
	}
	return functionapp.Post{}, false
}

// authorize returns what the host says about the key of a request.
func (h httpFunctions) authorize(f functionapp.Post, r *http.Request) (level string, allowed bool) {
	key := r.Header.Get("X-Functions-Key")
	if key == "" {
		key = r.URL.Query().Get("code")
	}
	switch {
	case h.key == "":
		return "Admin", true
	case subtle.ConstantTimeCompare([]byte(key), []byte(h.key)) == 1:
		return "Function", true
	}
	return "Anonymous", strings.EqualFold(f.AuthLevel, "anonymous")
}

// httpInvocation encodes an invocation of an HTTP function.
func httpInvocation(f functionapp.Post, r *http.Request, body []byte, level string) invocation {
	headers := map[string][]string(r.Header.Clone())
	headers["Host"] = []string{r.Host}
	if len(r.TransferEncoding) > 0 {
		headers["Transfer-Encoding"] = r.TransferEncoding
	}
	query := map[string]string{}
	for name, values := range r.URL.Query() {
		query[name] = strings.Join(values, ",")
	}
	request := object{
		"Url": "http://" + r.Host + r.URL.RequestURI(), "Method": r.Method, "Query": query, "Headers": headers,
		"Params": object{}, "Identities": identities(r, level),
	}
	metadata := object{"Query": quote(string(encode(query))), "Headers": quote(string(encode(headers)))}
	if _, hasLength := r.Header["Content-Length"]; hasLength {
		request["Body"] = bodyText(r.Header.Get("Content-Type"), body)
		var members map[string]json.RawMessage
		if json.Unmarshal(body, &members) == nil {
			for name, value := range members {
				metadata[name] = quote(string(value))
			}
		}
	}
	metadata["sys"] = sysMetadata(f.Name, time.Now(), uuid.NewString())
	return invocation{
		function: f.Name, reason: "This function was programmatically called via the host APIs.",
		body: encode(object{"Data": object{f.Binding: request}, "Metadata": metadata}),
	}
}

// identities returns that of the header with which App Service says who a user is, which a client can send as well, and
// that of the key.
func identities(r *http.Request, level string) (all []object) {
	var user struct {
		Type   string                      `json:"auth_typ"`
		Claims []struct{ Typ, Val string } `json:"claims"`
	}
	header, err := base64.StdEncoding.DecodeString(r.Header.Get("X-Ms-Client-Principal"))
	if err == nil && json.Unmarshal(header, &user) == nil {
		var said []object
		for _, c := range user.Claims {
			said = append(said, object{"Type": c.Typ, "Value": c.Val})
		}
		all = append(all, object{"AuthenticationType": user.Type, "Claims": said})
	}
	checked := []object{{"Type": claims + "authlevel", "Value": level}}
	if level != "Anonymous" {
		checked = append(checked, object{"Type": claims + "keyid", "Value": "default"})
	}
	return append(all, object{"AuthenticationType": "WebJobsAuthLevel", "Claims": checked})
}

// bodyText returns a body as the host passes it: base64 of octets and parts, and any other as text, which loses what is
// not UTF-8.
func bodyText(contentType string, body []byte) string {
	mediaType, _, _ := mime.ParseMediaType(contentType)
	if mediaType == "application/octet-stream" || strings.HasPrefix(mediaType, "multipart/") {
		return base64.StdEncoding.EncodeToString(body)
	}
	text, err := bom.Text(body)
	if err != nil {
		text = body
	}
	return string(bytes.ToValidUTF8(text, []byte("\ufffd")))
}

// write answers a client with the output of a function.
func write(w http.ResponseWriter, output json.RawMessage) {
	var answer struct {
		StatusCode int
		Headers    map[string]string
		Body       string
	}
	if json.Unmarshal(output, &answer) != nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	for name, value := range answer.Headers {
		if strings.EqualFold(name, "Content-Type") {
			value += "; charset=utf-8"
		}
		w.Header().Set(name, value)
	}
	w.WriteHeader(answer.StatusCode)
	_, _ = io.WriteString(w, answer.Body)
}
