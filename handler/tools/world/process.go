package world

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	programinstance "asynccaller/handler/internal/program/instance"
	"asynccaller/handler/internal/program/work"
)

// process is a process that uses the account. One that was killed does nothing more: its requests to storage never
// return, its connections are closed, and nobody reads its log.
type process struct {
	world *World
	name  string
	class class
	// holder is the process that has received the messages that it handles.
	holder string
	// ahead is how far its clock is ahead of the time of the world.
	ahead time.Duration
	// startedAt is when it started.
	startedAt time.Duration
	// isMoved says that the host moving has moved in the settings with which the process started.
	isMoved bool
	dead    chan struct{}

	mu          sync.Mutex
	isDead      bool
	connections []net.Conn
}

func (w *World) newProcess(c class, name string, ahead time.Duration) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return &process{
		world: w, name: name, class: c, holder: name, ahead: ahead, startedAt: w.now(), isMoved: w.isMoved,
		dead: make(chan struct{}),
	}
}

// isGone reports whether the process was killed. Then it returns only at the end of the world.
func (p *process) isGone() bool {
	select {
	case <-p.dead:
		<-p.world.buried
		return true
	default:
		return false
	}
}

// kill kills the process.
func (p *process) kill(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isDead {
		return
	}
	p.isDead = true
	close(p.dead)
	for _, c := range p.connections {
		_ = c.Close()
	}
	p.world.tell(p.name, "killed %s", why)
	p.world.ended(p.name, p.holder, "killed")
}

// ended notes that the deliveries of a process ended: those of its messages can be repeated.
func (w *World) ended(who, holder, how string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kills = append(w.kills, ending{w.now(), who, how})
	for _, m := range w.items {
		isHeld := (m.by == holder || m.by == who) && w.now() < m.until
		isChanged := slices.ContainsFunc(w.ledger(m.token).facts, func(f fact) bool {
			const justNow = 10 * time.Second // its log says nothing of it: a request can be slow
			isChange := slices.Contains([]factKind{wasPut, wasSet, wasGone}, f.kind)
			return isChange && (f.by == holder || f.by == who) && w.now()-f.at < justNow
		})
		if isHeld || isChanged {
			if how == "stopped" {
				w.ledger(m.token).stops++
			} else {
				w.ledger(m.token).unsure++
			}
		}
	}
}

// Write takes lines of the log.
func (p *process) Write(text []byte) (int, error) {
	p.mu.Lock()
	isDead := p.isDead
	p.mu.Unlock()
	if isDead {
		return len(text), nil
	}
	for l := range bytes.SplitSeq(bytes.TrimRight(text, "\n"), []byte("\n")) {
		p.world.logged(p, string(l))
	}
	return len(text), nil
}

// link and tables are the account as the process sees it.
func (p *process) queues() link { return link{p, p.world.store} }
func (p *process) rows() tables { return tables{p, p.world.tables} }

// targets returns targets.json.
func (w *World) targets() string {
	of := `{"headers":{"X-Profile":"$OLD_PROFILE"}}`
	if w.isMoved {
		of = `{"to":"http://` + secured + `"}`
	}
	return fmt.Sprintf(`{%q:{"concurrency":%d},%q:{"rate":{"limit":"%d/m","burst":%d}},
		%q:{"headers":{"X-Profile":"$PROFILE"},"sign":["$SIGN"]},
		%q:{"breaker":{"minDelay":"1s","maxDelay":"10s"}},%q:%s}`,
		narrow, narrowConcurrency, metered, meteredRate, meteredBurst, secured, probed, moving+":80", of)
}

// deploy deploys another targets.json from time to time. Processes that run keep theirs.
func (w *World) deploy() {
	for _, at := range w.deploys {
		if !w.until(at) {
			return
		}
		w.mu.Lock()
		w.isMoved = !w.isMoved
		err := os.WriteFile(filepath.Join(w.folder, "app", "targets.json"), []byte(w.targets()), 0o600)
		w.mu.Unlock()
		if err != nil {
			w.broken("deploy: %v", err)
		}
		w.tell("operator", "deployed: %s is moved: %v", moving, w.isMoved)
	}
}

// writeApp writes the app folder.
func (w *World) writeApp() error {
	s := w.settings
	app := filepath.Join(w.folder, "app")
	hostJSON := fmt.Sprintf(`{"version":"2.0","functionTimeout":"00:05:00",
		"customHandler":{"description":{"defaultExecutablePath":"async-caller","arguments":["serve"]}},
		"extensionBundle":{"id":"Microsoft.Azure.Functions.ExtensionBundle","version":"[4.*, 5.0.0)"},
		"extensions":{"queues":{"batchSize":%d,"newBatchThreshold":%d,"maxDequeueCount":5,
			"visibilityTimeout":"00:00:30","maxPollingInterval":"00:00:%02d","messageEncoding":"base64"}}}`,
		s.batch, s.threshold, int(s.polling.Seconds()))
	queue := func(name string) string {
		return `{"bindings":[{"type":"queueTrigger","direction":"in","name":"message","queueName":"` + name +
			`","connection":"AzureWebJobsStorage","dataType":"binary"}]}`
	}
	timer := func(schedule string) string {
		return `{"bindings":[{"type":"timerTrigger","direction":"in","name":"timer","schedule":"` + schedule + `"}]}`
	}
	for name, content := range map[string]string{
		"host.json":                        hostJSON,
		"AC-standard/function.json":        queue(mainQueue),
		"AC-priority01/function.json":      queue(priorityQueue),
		"AC-route-orders-in/function.json": queue(routedQueue),
		postFunction + "/function.json": `{"bindings":[
			{"type":"httpTrigger","direction":"in","name":"req","authLevel":"function","methods":["post"],
				"route":"in/` + routedQueue + `"},
			{"type":"http","direction":"out","name":"res"}]}`,
		"AC-monitor/function.json":       timer("0 * * * * *"),
		"AC-poison-keeper/function.json": timer("30 */2 * * * *"),
		"retry.json":                     `{"fast":{"schedule":["4s","45s","2m"]}}`,
		"routes.json": `{"orders-in":{"url":"http://a.example/do/route",
			"contentType":"text/plain","http":true}}`,
		"targets.json": w.targets(),
	} {
		path := filepath.Join(app, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// environ is the environment of the app's processes.
func (w *World) environ() []string {
	s := w.settings
	environ := []string{
		"AzureWebJobsStorage=UseDevelopmentStorage=true", "GOMEMLIMIT=off", "ASYNC_CALLER_APP=shop",
		"FUNCTIONS_CUSTOMHANDLER_PORT=1", "FUNCTIONS_APP_ROOT_PATH=" + filepath.Join(w.folder, "app"),
		"PROFILE=" + profileSecret, "SIGN=whsec_" + base64.StdEncoding.EncodeToString([]byte(signingKey)),
		"OLD_PROFILE=" + profileSecret + "-old", "ASYNC_CALLER_RETRY=fast",
		"ASYNC_CALLER_TARGETS_DENY=" + denied,
		"ASYNC_CALLER_CALL_TIMEOUT=" + s.callTimeout.String(), "ASYNC_CALLER_EXPIRATION=" + s.expiration.String(),
	}
	if s.update {
		environ = append(environ, "ASYNC_CALLER_RESCHEDULE=update")
	}
	if s.history {
		environ = append(environ, "ASYNC_CALLER_HISTORY=check")
	}
	if !s.tables {
		environ = append(environ, "ASYNC_CALLER_TABLES=off")
	}
	return environ
}

// connect gives an instance the world's storage and network.
func (p *process) connect(c *programinstance.Config) {
	c.Store, c.Tables, c.Connect, c.Version = p.queues(), p.rows(), p.world.network.connect(p), "world"
	c.Now = func() time.Time { return time.Now().Add(p.ahead) }
}

// live runs the nth instance, and those that follow it, until the world is over.
func (w *World) live(n int, plan instancePlan) {
	w.until(plan.start)
	ends := plan.ends
	for generation := 1; ; generation++ {
		next := end{at: 1 << 62}
		if len(ends) > 0 {
			next, ends = ends[0], ends[1:]
		}
		run := w.runHost
		if plan.isWorker {
			run = w.runWorker
		}
		away := run(fmt.Sprintf("%d.%d", n, generation), next, plan.ahead)
		if !w.until(w.now() + cmp.Or(away, time.Second)) {
			return
		}
	}
}

// grave is what a process that was killed left running.
type grave struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// runWorker runs a worker until its end, that of the world, or a kill, and returns how long it is away then.
func (w *World) runWorker(id string, e end, ahead time.Duration) (away time.Duration) {
	p := w.newProcess(instance, "worker "+id, ahead)
	c, err := work.ReadConfig(filepath.Join(w.folder, "app"), w.environ(), nil)
	if err != nil || c.App.SettingsErr != nil {
		w.broken("settings: %v %v", err, c.App.SettingsErr)
		<-w.over
		return 0
	}
	p.connect(&c.Config)
	ctx, cancel := context.WithCancel(context.Background())
	g := &grave{cancel, make(chan struct{})}
	w.tell(p.name, "started")
	go func() {
		defer close(g.done)
		err := work.Run(ctx, c, p)
		if err != nil {
			w.tell(p.name, "ended: %v", err)
			w.ended(p.name, p.holder, "cut short")
		}
	}()
	return w.await(p, g, e)
}

// await waits for the end of an instance.
func (w *World) await(p *process, g *grave, e end) (away time.Duration) {
	defer g.leave(w, p)
	select {
	case <-w.over:
		w.tell(p.name, "stopped at the end")
	case <-p.dead:
		return 5 * time.Second
	case <-time.After(e.at - w.now()):
		if e.how != stopped {
			p.kill("by the schedule")
			return e.away
		}
		w.tell(p.name, "stopped by the schedule")
		w.ended(p.name, p.holder, "stopped")
	}
	g.cancel()
	select {
	case <-g.done:
	case <-p.dead:
	}
	return e.away
}

// leave lets the world end what a killed process left running.
func (g *grave) leave(w *World, p *process) {
	select {
	case <-g.done:
	case <-p.dead:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.graves = append(w.graves, g)
	}
}

// bury ends what killed processes left running.
func (w *World) bury() {
	for _, g := range w.graves {
		g.cancel()
		<-g.done
	}
}

// logged takes a line of the log of a process.
func (w *World) logged(p *process, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, line{w.now(), p.name, text})
	if strings.Contains(text, secretMark) {
		w.brokenLocked("a line of the log has a secret: %s", text)
	}
	if strings.Contains(text, `"message":"alive"`) {
		w.aliveAt = w.now()
	}
	if strings.Contains(text, "panic: ") {
		w.brokenLocked("panic: %s", text)
	}
	if strings.Contains(text, `"message":"not settled`) {
		w.judgeUnsettled(text)
	}
	if strings.Contains(text, `"message":"settled"`) {
		w.judgeRefusal(p.name, text)
	}
}

// judgeUnsettled judges a message that was not settled, so that its call is repeated: settling goes on for a minute.
func (w *World) judgeUnsettled(text string) {
	var about struct {
		ID string `json:"message_id"`
	}
	_ = json.Unmarshal([]byte(text), &about)
	token := w.tokenOfLocked(about.ID)
	if m := w.byToken[token]; m != nil && m.giveUp == "fault" {
		return
	}
	for _, o := range w.outages {
		if !o.tables && o.to-o.from > time.Minute && w.now() > o.from && w.now() < o.to+2*time.Minute {
			w.ledger(token).unsure++
			return
		}
	}
	for _, f := range w.faults {
		if f.hasStruck && (f.what == late || f.what == lost || f.what == foreign || f.what == repeated) &&
			f.verb == update {
			w.ledger(token).unsure++ // its receipt is used
			return
		}
	}
	w.brokenLocked("docs/reliability.md: %s was not settled: %s", token, text)
}
