package world

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/ingress"
	"asynccaller/handler/internal/app/listener"
	programinstance "asynccaller/handler/internal/program/instance"
	"asynccaller/handler/internal/program/serve"
	"asynccaller/handler/internal/storage"
)

// hosting is a Functions host with its handler.
type hosting struct {
	*process
	app *functionapp.App

	mu      sync.Mutex
	handler http.Handler // nil while there is none
	running *process
	// stopping tells it to stop.
	stopping context.CancelFunc
}

// runHost runs a Functions host and its handlers.
func (w *World) runHost(id string, e end, ahead time.Duration) (away time.Duration) {
	h := &hosting{process: w.newProcess(host, "host "+id, ahead)}
	c, err := serve.ReadConfig(w.environ())
	if err != nil || c.App.SettingsErr != nil {
		w.broken("settings: %v %v", err, c.App.SettingsErr)
		<-w.over
		return 0
	}
	h.app = c.App.Functions
	w.tell(h.name, "started")
	w.mu.Lock()
	w.hostings[h.name] = h
	w.mu.Unlock()
	ctx, leave := context.WithCancel(context.Background())
	inFlight, cut := context.WithCancel(context.Background())
	g := &grave{func() { leave(); cut() }, make(chan struct{})}
	var listeners sync.WaitGroup
	functions, timers := h.app.Running(c.App.Environ)
	for _, f := range functions {
		l := listener.New(listener.Options{
			Function: f, Queues: h.app.Host.Queues, Store: h.queues(), Lease: 10 * time.Minute, RenewsLease: true,
			PoisonTTL: 7 * 24 * time.Hour, Counts: &listener.Counts{}, Log: zerolog.Nop(),
			Invoke: func(ctx context.Context, m storage.Message, content []byte) listener.Result {
				return h.invoke(ctx, f.Name, messageBody(f, m, content))
			},
		})
		listeners.Go(func() { l.Run(ctx, inFlight) })
	}
	for _, t := range timers {
		clock, err := listener.NewClock(t, func(ctx context.Context, _, _ time.Time) listener.Result {
			if !w.isFirst(h.name) {
				return listener.Succeeded
			}
			return h.invoke(ctx, t.Name, encoded(map[string]any{"Data": map[string]any{t.Binding: nil}}))
		}, zerolog.Nop())
		if err != nil {
			w.broken("timer: %v", err)
		}
		listeners.Go(func() { clock.Run(ctx, inFlight) })
	}
	handlers := make(chan struct{})
	stopHandler := make(chan struct{})
	ofHandlers := e
	go func() {
		defer close(handlers)
		h.runHandlers(id, stopHandler, ofHandlers)
	}()
	go func() {
		defer close(g.done)
		<-ctx.Done()
		listeners.Wait()
	}()
	defer func() {
		close(stopHandler)
		<-handlers
		w.leaveHost(h.name)
	}()
	if e.how == handlerKilled { // the handlers' own loop does it
		e.at = 1 << 62
	}
	return w.awaitHost(h, g, leave, cut, e)
}

// awaitHost waits for the end of a host. A stop lets calls of ten seconds end.
func (w *World) awaitHost(h *hosting, g *grave, leave, cut context.CancelFunc, e end) (away time.Duration) {
	defer g.leave(w, h.process)
	select {
	case <-w.over:
	case <-h.dead:
		h.killHandler()
		return 5 * time.Second
	case <-time.After(e.at - w.now()):
		if e.how == killed {
			h.kill("by the schedule")
			h.killHandler()
			return e.away
		}
		w.tell(h.name, "stopped by the schedule")
	}
	leave()
	select {
	case <-g.done:
		return e.away
	case <-h.dead:
		h.killHandler()
		return e.away
	case <-time.After(10 * time.Second):
	}
	w.ended(h.name, h.holder, "stopped")
	h.stopHandler()
	defer time.AfterFunc(70*time.Second, func() {
		w.ended(h.name, h.holder, "cut short")
		cut()
	}).Stop()
	select {
	case <-g.done:
	case <-h.dead:
		h.killHandler()
	}
	return e.away
}

// isFirst reports whether a host runs the timer functions: one of the app does.
func (w *World) isFirst(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hosts = slices.DeleteFunc(w.hosts, func(h string) bool {
		return slices.ContainsFunc(w.kills, func(k ending) bool { return k.who == h })
	})
	if !slices.Contains(w.hosts, name) {
		w.hosts = append(w.hosts, name)
	}
	return w.hosts[0] == name
}

func (w *World) leaveHost(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hosts = slices.DeleteFunc(w.hosts, func(h string) bool { return h == name })
	delete(w.hostings, name)
}

// runHandlers runs a handler, and the next one when it was killed, until stop is closed.
func (h *hosting) runHandlers(id string, stop <-chan struct{}, e end) {
	w := h.world
	for generation := 1; ; generation++ {
		p := w.newProcess(instance, fmt.Sprintf("handler %s.%d", id, generation), h.ahead)
		p.holder = h.name
		c, err := serve.ReadConfig(w.environ())
		if err != nil {
			w.broken("settings: %v", err)
			<-stop
			return
		}
		p.connect(&c.Config)
		ctx, cancel := context.WithCancel(context.Background())
		g := &grave{cancel, make(chan struct{})}
		w.tell(p.name, "started")
		go func() {
			defer close(g.done)
			h.serve(ctx, p, c.Config, cancel)
		}()
		at := time.Duration(1 << 62)
		if e.how == handlerKilled {
			at, e.how = e.at, stopped
		}
		isOver := false
		select {
		case <-stop:
			isOver = true
		case <-time.After(at - w.now()):
			p.kill("by the schedule")
		case <-p.dead:
		}
		h.mu.Lock()
		h.handler, h.running = nil, nil
		h.mu.Unlock()
		cancel()
		if isOver {
			select {
			case <-g.done:
			case <-p.dead:
			}
		}
		g.leave(w, p)
		if isOver {
			return
		}
		select {
		case <-stop:
			return
		case <-time.After(2 * time.Second): // the host starts the next one
		}
	}
}

// serve is a handler: what package serve does, without a port.
func (h *hosting) serve(ctx context.Context, p *process, c programinstance.Config, stop context.CancelFunc) {
	log, lines := programinstance.OpenLog(c, p)
	defer lines.Close()
	i := programinstance.Open(ctx, c, log)
	defer i.Close() //nolint:contextcheck // after the last delivery
	handler := ingress.Handler(c.App.Functions.Functions, i.Tasks, i.Posts(), i.Deliverer, log)
	var serving sync.WaitGroup
	h.mu.Lock()
	if ctx.Err() == nil {
		h.running, h.stopping = p, stop
		h.handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			serving.Add(1)
			defer serving.Done()
			handler.ServeHTTP(rw, r)
		})
	}
	h.mu.Unlock()
	i.Run(ctx)
	<-ctx.Done()
	serving.Wait()
}

func (h *hosting) killHandler() {
	h.mu.Lock()
	p := h.running
	h.mu.Unlock()
	if p != nil {
		p.kill("with its host")
	}
}

// stopHandler tells the handler to stop, as SIGTERM does.
func (h *hosting) stopHandler() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopping != nil {
		h.stopping()
	}
}

// ownAddress is the handler's.
var ownAddress = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}

// invoke posts an invocation to the handler. It fails if the handler is killed meanwhile.
func (h *hosting) invoke(ctx context.Context, function string, body []byte) listener.Result {
	var handler http.Handler
	var p *process
	for handler == nil {
		if h.isGone() || ctx.Err() != nil {
			return listener.Failed
		}
		h.mu.Lock()
		handler, p = h.handler, h.running
		h.mu.Unlock()
		if handler == nil {
			storage.Sleep(ctx, time.Second)
		}
	}
	answer := request(ctx, handler, p, function, body)
	if answer == nil {
		return listener.Failed
	}
	if answer.Code/100 != 2 {
		h.world.tell(h.name, "%s: the handler answered %d", function, answer.Code)
		return listener.Failed
	}
	return listener.Succeeded
}

// request posts an invocation to a handler, and returns its answer. It returns nil if the process of the handler is
// killed meanwhile.
func request(
	ctx context.Context, handler http.Handler, p *process, function string, body []byte,
) *httptest.ResponseRecorder {
	ctx = context.WithValue(ctx, http.LocalAddrContextKey, net.Addr(ownAddress))
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/"+function, bytes.NewReader(body))
	r.Host = ownAddress.String()
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Azure-Functions-InvocationId", uuid.NewString())
	answer := httptest.NewRecorder()
	done := make(chan struct{})
	go func() {
		defer close(done)
		handler.ServeHTTP(answer, r)
	}()
	select {
	case <-done:
		return answer
	case <-p.dead:
	case <-ctx.Done():
	}
	return nil
}

// messageBody is the invocation of a queue function.
func messageBody(f functionapp.Function, m storage.Message, content []byte) []byte {
	const form = "2006-01-02T15:04:05+00:00"
	quoted := func(s string) string { text, _ := json.Marshal(s); return string(text) } //nolint:errchkjson // a text
	return encoded(map[string]any{
		"Data": map[string]any{f.Binding: base64.StdEncoding.EncodeToString(content)},
		"Metadata": map[string]any{
			"DequeueCount": strconv.FormatInt(m.DequeueCount, 10), "Id": quoted(m.ID),
			"PopReceipt":     quoted(m.PopReceipt),
			"ExpirationTime": m.ExpiresAt.UTC().Format(form), "InsertionTime": m.InsertedAt.UTC().Format(form),
			"NextVisibleTime": m.NextVisibleAt.UTC().Format(form),
			"sys": map[string]string{
				"MethodName": f.Name,
				"UtcNow":     time.Now().UTC().Format(time.RFC3339Nano),
			},
		},
	})
}
