// Package console shows a storage account on pages for a browser on the same machine: what waits, why targets fail, one
// call, and the runs of operators. It changes nothing: it reads tables and the properties of queues, and peeks at
// messages, so that no dequeue count rises. Beside what it shows are the commands that change it.
//
// Every text of a message, a row or an answer may come from an attacker, and so may a request: other programs of the
// machine, and any page in the browser, can reach a loopback address.
package console

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/operate/operation"
)

// IdleTime is how long the console serves without a request. A page that nobody looks at sends none.
const IdleTime = time.Hour

// ErrIdle means that the console has ended because there was no request for [IdleTime].
var ErrIdle = errors.New("the console was idle")

// stopTimeout is how long pages that are being read may take when the console ends.
const stopTimeout = 2 * time.Second

// Console shows the account of the operations, of which it carries out none.
type Console struct {
	operations *operation.Operations
	// reading is held by the page that reads the record and the numbers, of which the latter allow one at a time.
	reading   chan struct{}
	templates templates
	flags     string
	// run is in all pages of this console, and in no request for one.
	run string
}

// New returns a console. Flags are those that its commands need to be about the same account; empty if they need none.
func New(operations *operation.Operations, flags string) *Console {
	return &Console{
		operations: operations, reading: make(chan struct{}, 1), templates: newTemplates(), flags: flags,
		run: NewSecret(),
	}
}

// NewSecret returns a new first segment of the paths. Who knows it can read what the operator can.
func NewSecret() string { return strings.ToLower(rand.Text()) }

// URL returns the address of the first page. Its origin is new: a program that had the port before may have left a
// service worker in the browser, which would get the pages of 127.0.0.1 or localhost.
func URL(listener net.Listener, secret string) string {
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return "http://" + NewSecret() + belowLocalhost + port + "/" + secret + "/"
}

// belowLocalhost is between a name that leads to this machine, and a port.
const belowLocalhost = ".localhost:"

// Listen listens at a port of 127.0.0.1, or at a free one if it is "0", and at the same port of ::1, if there is IPv6:
// a browser may try that first, and another program must not get the secret there.
func Listen(ctx context.Context, port string) ([]net.Listener, error) {
	var config net.ListenConfig
	first, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return nil, err
	}
	probe, err := config.Listen(ctx, "tcp", "[::1]:0")
	if err != nil {
		return []net.Listener{first}, nil //nolint:nilerr // there is no IPv6
	}
	_ = probe.Close()
	_, port, _ = net.SplitHostPort(first.Addr().String())
	second, err := config.Listen(ctx, "tcp", net.JoinHostPort("::1", port))
	if err != nil {
		_ = first.Close()
	}
	return []net.Listener{first, second}, err
}

// Serve serves the pages below the secret until ctx ends, or until there was no request for [IdleTime]: then the error
// is [ErrIdle]. The listeners are those of [Listen].
func (c *Console) Serve(ctx context.Context, listener net.Listener, secret string, more ...net.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(IdleTime, func() { cancel(ErrIdle) })
	defer idle.Stop()
	server := &http.Server{
		Handler:           c.handler(listener.Addr().String(), secret, func() { idle.Reset(IdleTime) }),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second,
		WriteTimeout:      waitTimeout + 10*time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		// It answers "OPTIONS *" to any host.
		DisableGeneralOptionsHandler: true,
	}
	stopped := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(stopped)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		_ = server.Shutdown(ctx) // otherwise Close ends what is left
		_ = server.Close()
	})
	for _, other := range more {
		go func() { _ = server.Serve(other) }() // it ends with the first one
	}
	err := server.Serve(listener)
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the console: %w", err)
	}
	<-stopped
	if errors.Is(context.Cause(ctx), ErrIdle) {
		return ErrIdle
	}
	return nil
}

// handler serves the pages to requests that come from them, or from the address bar. It calls used for each of these.
func (c *Console) handler(address, secret string, used func()) http.Handler {
	_, port, _ := net.SplitHostPort(address)
	hosts := []string{address, net.JoinHostPort("localhost", port)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setSecurityHeaders(w.Header())
		// A name that leads to the loopback address is that of somebody else, see DNS rebinding.
		name := strings.ToLower(r.Host)
		if !slices.Contains(hosts, name) && !strings.HasSuffix(name, belowLocalhost+port) {
			http.Error(w, "the console answers only at the address that it has printed", http.StatusMisdirectedRequest)
			return
		}
		path, isKnown := cutSecret(r, secret)
		switch {
		case !isKnown:
			http.Error(w, "not found: open the whole address that the console has printed", http.StatusNotFound)
			return
		case isForeign(r):
			http.Error(w, "another site asks: open the address of the console yourself", http.StatusForbidden)
			return
		case r.Method != http.MethodGet:
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, "the console only shows", http.StatusMethodNotAllowed)
			return
		case r.URL.Path == "/"+secret:
			w.Header().Set("Location", r.URL.Path+"/")
			w.WriteHeader(http.StatusTemporaryRedirect)
			return
		}
		used()
		c.serve(w, r, path)
	})
}

// cutSecret returns the path without its first segment. It reports false unless that is the secret.
func cutSecret(r *http.Request, secret string) (path string, isKnown bool) {
	first, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	isSecret := subtle.ConstantTimeCompare([]byte(first), []byte(secret)) == 1
	isPlain := r.URL.RawPath == "" // nothing is escaped
	return path, isSecret && isPlain
}

// isForeign reports whether a browser says that another origin asks. Another port of the same address is one.
func isForeign(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	site := r.Header.Get("Sec-Fetch-Site")
	isOwn := site == "" || site == "same-origin" || site == "none"
	return !isOwn || origin != "" && !strings.EqualFold(origin, "http://"+r.Host)
}

func setSecurityHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "+
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
}
