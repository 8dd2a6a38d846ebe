package world

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"asynccaller/handler/internal/storage"
)

// network has the targets: one server with all hosts, reached by pipes.
type network struct {
	world       *World
	connections chan net.Conn
	closed      chan struct{}
	server      http.Server
	serving     sync.WaitGroup
}

func newNetwork(w *World) *network {
	n := &network{world: w, connections: make(chan net.Conn), closed: make(chan struct{})}
	n.server = http.Server{ //nolint:gosec // its clients are this world's
		Handler: n,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, peerKey{}, c.(*peer)) //nolint:forcetypeassert // connect makes no others
		},
	}
	n.serving.Go(func() { _ = n.server.Serve(n) })
	return n
}

func (n *network) close() {
	close(n.closed)
	_ = n.server.Close()
	n.serving.Wait()
}

// peer is the target's end of a connection.
type peer struct {
	net.Conn
	process *process
	host    string
}

type peerKey struct{}

// Accept implements [net.Listener].
func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.connections:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (*network) Close() error { return nil }

// Addr implements [net.Listener].
func (*network) Addr() net.Addr { return ownAddress }

// connect returns what connects a process to targets.
func (n *network) connect(p *process) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		name, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		if p.isGone() || !storage.Sleep(ctx, 5*time.Millisecond) {
			return nil, errors.New("no connection")
		}
		if name == denied {
			n.world.broken("docs/settings.md: a connection to %s, which is denied", name)
		}
		n.world.tries(p, name)
		if n.world.modeOf(name) == refuses {
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}
		client, server := net.Pipe()
		p.mu.Lock()
		isDead := p.isDead
		if !isDead {
			p.connections = append(p.connections, client)
		}
		p.mu.Unlock()
		if isDead {
			_, _ = client.Close(), server.Close()
			p.isGone()
			return nil, errKilled
		}
		select {
		case n.connections <- &peer{server, p, name}:
			return client, nil
		case <-n.closed:
			return nil, net.ErrClosed
		}
	}
}

// modeOf returns what a target does now.
func (w *World) modeOf(name string) mode {
	now := w.now()
	for _, t := range w.troubles {
		if t.host == name && now >= t.from && now < t.to {
			return t.mode
		}
	}
	return answers
}

// reply is what a target does with one call.
type reply struct {
	method     string
	mode       mode
	status     int
	retryAfter time.Duration
	after      time.Duration
	isHop      bool
	// isLast says that the target has no other answer to the message, and says how it says whether to repeat the call.
	isLast bool
	says   says
	// isCounted says that limits count the call.
	isCounted bool
	// isProbe says that the caller must know that the target is down.
	isProbe bool
}

// ServeHTTP is all targets.
func (n *network) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w := n.world
	peer, _ := r.Context().Value(peerKey{}).(*peer)
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return // its sender was killed
	}
	token := tokenIn([]byte(r.URL.Path))
	if r.URL.Path == "/do/route" {
		token = tokenIn(body)
	}
	answer := w.beginCall(peer, token, r, string(body))
	inTime := storage.Sleep(r.Context(), answer.after)
	status := answer.status
	if !inTime && answer.after > 0 {
		w.cut(peer, token)
	}
	if !inTime || answer.mode == hangs || answer.mode == resets || answer.mode == refuses || answer.mode == isGarbled {
		status = 0
	}
	w.endCall(peer, token, answer, status)
	switch answer.mode {
	case answers, isDown, isLimited, redirects, moves:
		if answer.status/100 == 3 {
			rw.Header().Set("Location", "http://b.example"+r.URL.RequestURI()+"&hop=1")
		}
		if answer.retryAfter > 0 {
			rw.Header().Set("Retry-After", strconv.Itoa(int(answer.retryAfter.Seconds())))
		}
		if inTime {
			body := answer.signal(rw.Header(), "answer of "+peer.host)
			rw.WriteHeader(answer.status)
			_, _ = io.WriteString(rw, body) //nolint:gosec // G705: no browser reads it
		}
	case breaks:
		rw.Header().Set("Content-Length", "1000")
		rw.WriteHeader(answer.status)
		_, _ = io.WriteString(rw, "half of an answer")
		_ = http.NewResponseController(rw).Flush()
		panic(http.ErrAbortHandler)
	case hangs, resets, refuses:
		panic(http.ErrAbortHandler)
	case isGarbled:
		connection, _, err := rw.(http.Hijacker).Hijack() //nolint:forcetypeassert // the server's can
		if err == nil {
			_, _ = io.WriteString(connection, "this is not HTTP\r\n\r\n")
			_ = connection.Close()
		}
	}
}

// signal adds to the header of an answer whether the call may be repeated, and returns its body.
func (a reply) signal(header http.Header, body string) string {
	switch a.says {
	case byHeader:
		header.Set("X-Async-Caller-Retry", map[bool]string{true: "no", false: "yes"}[a.isLast])
	case byProblem:
		header.Set("Content-Type", "application/problem+json")
		return fmt.Sprintf(`{"title":%q,"retryable":%v}`, body, !a.isLast)
	case byNexus:
		header.Set("Content-Type", "application/json")
		return fmt.Sprintf(`{"Type":"Xlent.Lever","TechnicalMessage":%q,"IsRetryMeaningful":%v}`, body, !a.isLast)
	case byStatus:
	}
	return body
}

// beginCall judges the beginning of a call, and returns what the target does with it.
func (w *World) beginCall(p *peer, token string, r *http.Request, body string) reply {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	attempt, _ := strconv.Atoi(r.Header.Get("X-Async-Caller-Attempt"))
	isReply := strings.HasSuffix(token, replySuffix)
	m := w.byToken[strings.TrimSuffix(token, replySuffix)]
	a := reply{mode: answers, method: r.Method, isHop: strings.HasSuffix(r.URL.RawQuery, "hop=1")}
	if m == nil {
		w.brokenLocked("%s: a call to %s that nobody has sent", token, r.URL.Path)
		return a
	}
	if r.Header.Get("X-Profile") != profileOf(p.host) {
		w.brokenLocked("docs/targets.md: %s: the header X-Profile at %s is %q", token, p.host,
			r.Header.Get("X-Profile"))
	}
	if r.Header.Get("Webhook-Signature") != signatureOf(p.host, r, body) {
		w.brokenLocked("docs/targets.md: %s: the signature at %s is %q", token, p.host,
			r.Header.Get("Webhook-Signature"))
	}
	if p.host == secured && !a.isHop && !w.isNewWebhook(token, r.Header) {
		w.brokenLocked("docs/targets.md: %s: an attempt has another id of a webhook, or an old time: %q, %q", token,
			r.Header.Get("Webhook-Id"), r.Header.Get("Webhook-Timestamp"))
	}
	if a.isHop && (r.Method != m.method || body != m.body) {
		w.brokenLocked("docs/retry.md: %s: behind a redirect: %s with %d bytes, not %s with %d", token, r.Method,
			len(body), m.method, len(m.body))
	}
	if a.isHop && r.Header.Get("Authorization") != "" {
		w.brokenLocked("docs/envelope.md: %s: credentials behind a redirect to %s", token, p.host)
	}
	l := w.ledger(token)
	w.triedAt[instanceAndHost{p.process.name, p.host}] = now
	if !a.isHop {
		w.judgeCall(m, token, attempt, p, r, body)
		l.interrupted = 0
		w.note(token, fact{kind: called, by: p.process.name, attempt: attempt})
	}
	a.mode = w.modeOf(p.host)
	isCut := a.mode == resets || a.mode == refuses || a.mode == isGarbled
	a.isCounted = !a.isHop && (!isCut || r.Method != http.MethodGet) // net/http repeats that in the same turn
	if a.isCounted {
		w.calls[p.host]++
		w.begun[p.host] = append(w.begun[p.host], now)
		w.judgeLimits(p.host)
		a.isProbe = w.judgeProbe(m, instanceAndHost{p.process.name, p.host})
	}
	isRedirect := a.mode == redirects || a.mode == moves
	if isRedirect && (isReply || p.host == "b.example" || m.queue == routedQueue) {
		a.mode = isDown
	}
	a.after = m.took
	if a.isHop || isReply {
		a.after = min(a.after, time.Second)
	}
	switch a.mode {
	case redirects:
		a.status = http.StatusTemporaryRedirect
		return a
	case moves:
		a.status = http.StatusFound
		return a
	case isDown:
		a.status = http.StatusServiceUnavailable
		return a
	case isLimited:
		a.status, a.retryAfter = http.StatusTooManyRequests, 20*time.Second
		return a
	case hangs:
		a.after = 10 * time.Minute
		return a
	case resets, refuses, isGarbled:
		if r.Method == http.MethodGet {
			l.unsure++ // net/http repeats it if the connection was used before
		}
		return a
	case answers, breaks:
	}
	fails, final := m.fails, m.final
	if isReply {
		fails, final = m.replyFails, http.StatusOK
	}
	l.served++
	a.status, a.isLast = final, l.served > fails
	isFailed := !a.isLast || final/100 != 2
	if !isReply && a.mode == answers && isFailed {
		a.says = m.says
	}
	switch {
	case a.says != byStatus && a.isLast:
		a.status = http.StatusServiceUnavailable
	case a.says != byStatus:
		a.status = http.StatusUnprocessableEntity
	case !a.isLast:
		a.status = [...]int{503, 429, 500, 408, 404}[l.served%5]
	}
	if !a.isLast {
		if a.mode == answers {
			a.retryAfter = m.retryAfter
		}
	}
	return a
}

// cut notes that a process has cut off a call before it took too long: it stops.
func (w *World) cut(p *peer, token string) {
	p.process.mu.Lock()
	isDead := p.process.isDead
	p.process.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.ledger(token)
	for _, f := range l.facts {
		if f.kind == called && f.by == p.process.name {
			l.interrupted = f.attempt
			if isDead || w.now()-f.at > w.settings.callTimeout-time.Second {
				l.interrupted = 0
			}
		}
		if f.kind == wasPut || f.kind == wasSet { // it is settled already
			l.interrupted = 0
		}
	}
	isStopping := slices.ContainsFunc(w.kills, func(k ending) bool {
		return k.how == "stopped" && (k.who == p.process.name || k.who == p.process.holder)
	})
	if isStopping {
		l.stops++ // it may have been received after the signal
	}
}

// endCall notes the end of a call.
func (w *World) endCall(p *peer, token string, a reply, status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.ledger(token)
	w.triedAt[instanceAndHost{p.process.name, p.host}] = w.now()
	if a.isCounted {
		w.calls[p.host]--
		w.endProbe(instanceAndHost{p.process.name, p.host}, a.isProbe, status)
	}
	isFollowed := a.mode == redirects || a.method != http.MethodPost
	if status/100 == 3 && isFollowed {
		return // it goes on elsewhere
	}
	attempt, began := 0, w.now()
	for _, f := range l.facts {
		if f.kind == called {
			attempt = f.attempt
			if f.by == p.process.name {
				began = f.at
			}
		}
	}
	if lasted := w.now() - began; lasted > w.settings.callTimeout+time.Second {
		w.brokenLocked("docs/settings.md: %s: a call lasted %v, and may last %v", token, lasted, w.settings.callTimeout)
	}
	if status == 0 {
		a.retryAfter = 0
	}
	w.note(token, fact{
		kind: answered, by: p.process.name, attempt: attempt, status: status, asked: a.retryAfter,
		isCut: a.mode == breaks, isLast: a.isLast && status > 0 && a.mode == answers,
	})
	m := w.byToken[strings.TrimSuffix(token, replySuffix)]
	isDone := status/100 == 2 && (strings.HasSuffix(token, replySuffix) || m != nil && !m.hasReply)
	if isDone {
		for _, q := range w.items {
			if q.token == token && q.by == p.process.holder {
				q.isSettled = true
			}
		}
	}
}

// judgeCall compares a call with what its sender wrote.
func (w *World) judgeCall(m *message, token string, attempt int, p *peer, r *http.Request, body string) {
	now := w.now()
	if strings.HasSuffix(token, replySuffix) {
		w.judgeReply(m, token, r, body)
		return
	}
	l := w.ledger(token)
	if l.isEdited && (l.unsure > 0 || l.isCopied) {
		return
	}
	isRepeated := slices.ContainsFunc(l.facts, func(f fact) bool { // by net/http, whose connection was closed
		return f.kind == called && f.by == p.process.name && f.attempt == attempt && now-f.at < w.settings.callTimeout
	})
	switch {
	case p.host != p.process.calledFor(m.host), r.Method != m.method, r.URL.RequestURI() != m.path, body != m.body:
		w.brokenLocked("docs/envelope.md: %s: another call than was sent: %s %s%s with %d bytes", token, r.Method,
			p.host, r.URL.Path, len(body))
	case r.Host != p.host:
		w.brokenLocked("docs/envelope.md: %s: the header Host at %s is %q", token, p.host, r.Host)
	case r.Header.Get("X-Secret") != m.header.Get("X-Secret"),
		r.Header.Get("Authorization") != m.header.Get("Authorization"):
		w.brokenLocked("docs/envelope.md: %s: a header of the call is missing", token)
	case r.Header.Get("X-Edited") != m.header.Get("X-Edited"):
		w.brokenLocked("docs/calls.md: %s: the header of an edit is %q", token, r.Header.Get("X-Edited"))
	case m.deadline > 0 && now >= m.deadline+w.drift()+time.Second && l.lives == 0 && !isRepeated:
		w.brokenLocked("docs/retry.md: %s: called at %v, after its deadline %v", token, now, m.deadline)
	case m.notBefore > 0 && now < m.notBefore-w.drift() && l.lives == 0:
		w.brokenLocked("docs/envelope.md: %s: called at %v, before %v", token, now, m.notBefore)
	case m.mostAttempts > 0 && attempt > m.mostAttempts:
		w.brokenLocked("docs/retry.md: %s: attempt %d of %d", token, attempt, m.mostAttempts)
	case m.isMalformed, m.host == denied:
		w.brokenLocked("docs/envelope.md: %s: called, and must not be", token)
	case !m.isNexus && m.queue != routedQueue && r.Header.Get("Idempotency-Key") != m.id:
		w.brokenLocked("docs/envelope.md: %s: the key is %q", token, r.Header.Get("Idempotency-Key"))
	case w.isKeptAlready(token):
		w.brokenLocked("docs/history.md: %s: called at %v, though the history has its delivery at %v", token, now,
			w.kept[token])
	}
	if p.host == pausing {
		for _, pause := range w.pauses {
			isKnown := w.readAt[p.process.name] > pause.from // it is in force also without the table
			isNoticed := now > pause.from+20*time.Second && (isKnown || !w.isBlind(p.process.name))
			if isNoticed && now < pause.to {
				w.brokenLocked("docs/targets.md: %s: called at %v while its target is paused since %v", token, now,
					pause.from)
			}
		}
	}
}

// profileOf returns the header of the profile of a host.
func profileOf(host string) string {
	switch host {
	case secured:
		return profileSecret
	case moving:
		return profileSecret + "-old"
	}
	return ""
}

// signingKey is the secret with which calls for the host secured are signed.
const signingKey = secretMark + "-signs-what-is-sent"

// signatureOf returns the signature of a request to a host, as Standard Webhooks says.
func signatureOf(host string, r *http.Request, body string) string {
	if host != secured {
		return ""
	}
	sum := hmac.New(sha256.New, []byte(signingKey))
	_, _ = fmt.Fprintf(sum, "%s.%s.%s", r.Header.Get("Webhook-Id"), r.Header.Get("Webhook-Timestamp"), body)
	return "v1," + base64.StdEncoding.EncodeToString(sum.Sum(nil))
}

// isNewWebhook reports whether the time of a webhook is now, and its id that of each attempt.
func (w *World) isNewWebhook(token string, h http.Header) bool {
	l, id := w.ledger(token), h.Get("Webhook-Id")
	isSame := l.webhook == "" || l.webhook == id
	l.webhook = id
	at, err := strconv.ParseInt(h.Get("Webhook-Timestamp"), 10, 64)
	return err == nil && isSame && id != "" && time.Since(time.Unix(at, 0)) < 3*time.Second
}

// calledFor returns the host that a process calls for a host.
func (p *process) calledFor(host string) string {
	if host == moving && p.isMoved {
		return secured
	}
	return host
}

// isKeptAlready reports whether the history has had a call as delivered for some seconds, and can be asked.
func (w *World) isKeptAlready(token string) bool {
	at, isKept := w.kept[token]
	const notAsked = 8 * time.Second // after a request without an answer
	isAway := slices.ContainsFunc(w.outages, func(o outage) bool {
		return o.tables && w.now() > o.from && w.now() < o.to+notAsked
	}) || w.tableFaultAt > w.now()-notAsked
	return isKept && w.settings.history && w.now() > at+5*time.Second && !isAway && w.ledger(token).lives == 0
}

// judgeReply compares a callback with the outcome of its call.
func (w *World) judgeReply(m *message, token string, r *http.Request, body string) {
	var report struct {
		ID         string `json:"Id"`
		StatusCode int
		Context    struct{ Token string }
	}
	err := json.Unmarshal([]byte(body), &report)
	l := w.ledger(m.token)
	want := []int{504} // without any answer
	for _, f := range l.facts {
		switch {
		case f.kind != answered || f.status == 0:
		case l.unsure+l.lives+l.stops > 0 || f.isCut:
			want = append(want, f.status)
		default:
			want = []int{f.status}
		}
	}
	isKnown := slices.Contains(want, report.StatusCode)
	switch {
	case err == nil && report.Context.Token != m.token:
		w.brokenLocked("docs/envelope.md: %s: the callback has the context of %q", token, report.Context.Token)
	case err != nil || report.ID != m.id:
		w.brokenLocked("docs/envelope.md: %s: the callback is for %q, %v", token, report.ID, err)
	case !isKnown && m.host != denied:
		w.brokenLocked("docs/envelope.md: %s: the callback says %d, and the target answered %v", token,
			report.StatusCode, want)
	case r.Header.Get("X-Secret") != secretMark+"-r-"+m.token:
		w.brokenLocked("docs/envelope.md: %s: a header of the callback is missing", token)
	}
}

// judgeConcurrency judges the calls to a target in a moment: a call that was given up just now is not in flight any
// more, and the target does not know it yet.
func (w *World) judgeConcurrency(name string) {
	<-time.After(20 * time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	const permit = 50 * time.Second // renewed in time, it is good for a minute
	areExpired := slices.ContainsFunc(w.outages, func(o outage) bool {
		return o.tables && o.to-o.from > permit && w.now() > o.from+permit && w.now() < o.to+w.settings.callTimeout
	})
	if w.calls[name] > narrowConcurrency && !w.isLimitChanged && !areExpired {
		w.brokenLocked("docs/targets.md: %d calls to %s in flight", w.calls[name], name)
	}
}

// judgeLimits compares the calls to a target with its limits.
func (w *World) judgeLimits(name string) {
	if !w.settings.tables {
		return // each instance counts alone
	}
	w.judgeLowered(name)
	switch name {
	case narrow:
		if w.calls[name] > narrowConcurrency {
			w.pending.Go(func() { w.judgeConcurrency(name) })
		}
	case metered:
		recent := 0
		for _, at := range w.begun[name] {
			if at > w.now()-10*time.Second {
				recent++
			}
		}
		most := 1.1 * (meteredRate/6.0 + meteredBurst)
		if float64(recent) > most && !w.isLimitChanged {
			w.brokenLocked("docs/targets.md: %d calls to %s in 10 s", recent, name)
		}
	}
}
