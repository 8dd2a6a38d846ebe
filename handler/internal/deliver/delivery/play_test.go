package delivery_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/gates/credential"
	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/guard"
	"asynccaller/handler/internal/rules/retry"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// play is a case that is played.
type play struct {
	t *testing.T
	*bench
	mu  sync.Mutex
	out strings.Builder
	// messages are what the sender puts on the queue.
	messages [][]byte
	queue    string
	// outcomes are those of the calls, in their order; the last one repeats.
	outcomes []decision.Outcome
	header   http.Header
	took     time.Duration
	// deliveries is how many the host makes; 0 for one of each message, negative until no message is left.
	deliveries int
	// isGone says that the queue is deleted while the message is delivered, isDead that the host has ended.
	isGone, isDead, repeats bool
	tables                  memory.Tables
	app, sight              memory.Table
	waits                   time.Duration
	closeTables             func()
}

func newPlay(t *testing.T) *play {
	t.Helper()
	p := &play{t: t, queue: mainQueue, header: http.Header{}, took: 40 * time.Millisecond}
	p.bench = setup(t, &target{answer: p.answer})
	p.logTo, p.late = p, 0
	p.Record = record.NewWriter(noted{&memory.Table{}, p, p.sayRow, 0}, 1<<20, p.Log)
	outcomes := record.NewOutcomeWriter(noted{&memory.Table{}, p, p.sayOutcome, time.Second}, 1<<20, p.Log)
	p.Outcomes = outcomes
	p.Sight = sight.New(&p.sight, "app", "instance", p.Log)
	running, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { p.Sight.Run(running); close(ended) }()
	p.closeTables = sync.OnceFunc(func() {
		stop()
		<-ended
		p.Sight.Close(time.Second)
		p.Record.Close(time.Minute)
		outcomes.Close(time.Minute)
		p.Outcomes.Close(time.Minute)
		p.History.Close(time.Minute)
	})
	t.Cleanup(p.closeTables)
	return p
}

// directives are what a case says is given. Without any, a native envelope arrives and its call is answered 200.
var directives = map[string]func(p *play, arguments string){
	// A message: a native envelope with further members; a Nexus message with them; any content, in which {{text}} is
	// base64 of the text, and which may be a quoted Go string; or one of its length.
	"envelope": func(p *play, members string) {
		p.put(`{"asyncCaller":1,"requestId":"r1","createdAt":"2000-01-01T00:00:00Z",` + shortened[1] + members + `}`)
	},
	"nexus":   func(p *play, members string) { p.put(expand(nexusMessage + members + `}`)) },
	"content": func(p *play, content string) { p.put(expand(content)) },
	// An envelope that leaves no room for the state of its delivery.
	"oversize": func(p *play, members string) {
		const form = `{"asyncCaller":1,"requestId":"r1","call":{"url":"https://t.example/","body":"%s"}%s}`
		p.put(fmt.Sprintf(form, strings.Repeat("x", 49052-len(members)), members))
	},
	// So many bytes that no compression makes fewer, and a JSON text in which it does.
	"bytes": func(p *play, n string) {
		content := make([]byte, p.number(n))
		_, _ = rand.NewChaCha8([32]byte{}).Read(content)
		p.put(string(content))
	},
	"json": func(p *play, n string) { p.put("[" + strings.Repeat("1,", (p.number(n)-3)/2) + "1]") },

	// How it arrives: on a queue, on the queue of a route with these members, or in text mode.
	"queue": func(p *play, queue string) { p.queue = queue },
	"route": func(p *play, members string) { p.queue = routedQueue; p.withRoute(p.t, members) },
	"text":  func(p *play, _ string) { p.isText = true },
	// The function of a route without one in routes.json.
	"routeMissing": func(p *play, _ string) { p.queue = routedQueue },
	"lease":        func(p *play, change string) { p.changeLease = leaseChange(p, change) },
	// How often the host delivers: a number, or "all" until no message is left.
	"deliveries": func(p *play, n string) {
		p.deliveries = -1
		if n != "all" {
			p.deliveries = p.number(n)
		}
	},

	// The host's delete fails, so that it delivers the message again.
	"repeat": func(p *play, _ string) { p.repeats = true },

	// What the target answers: [N*]STATUS [body], FAILURE[/STATUS] [detail], or that it hangs or panics. A header and
	// how long a call takes, usually 40 ms, are those of the answers after them.
	"target": func(p *play, outcome string) { p.addOutcome(outcome) },
	"header": func(p *play, line string) {
		name, value, _ := strings.Cut(line, ": ")
		p.header.Set(name, value)
	},
	"took": func(p *play, took string) { p.took = p.duration(took) },

	// What storage does at each try of a put, an update or the creation of a queue: see [store.try].
	"put":    func(p *play, faults string) { p.store.faults["put"] = strings.Fields(faults) },
	"update": func(p *play, faults string) { p.store.faults["update"] = strings.Fields(faults) },
	"create": func(p *play, faults string) { p.store.faults["create"] = strings.Fields(faults) },
	"gone":   func(p *play, _ string) { p.isGone = true },
	"outcomesAway": func(p *play, _ string) {
		var away memory.Table
		away.Fail(errDown)
		p.Outcomes = record.NewOutcomeWriter(&away, 1<<20, p.Log)
	},
	"tables": func(p *play, fault string) {
		p.History = history.New(&awayTables{err: map[string]error{
			"stopped": errors.New("connection refused"), "denied": storage.ErrDenied,
		}[fault]}, retention, p.Log)
	},

	// When the handler stops, its host has ended, or the host no longer waits for the answer.
	"stop":   func(p *play, after string) { time.AfterFunc(p.duration(after), p.stop) },
	"hangUp": func(p *play, after string) { p.hangsUp = p.duration(after) },
	"hostGone": func(p *play, after string) {
		time.AfterFunc(p.duration(after), func() { p.isDead = true; p.hostGone() })
	},

	// Settings.
	"reschedule": func(p *play, mode string) { p.mode = settle.RescheduleMode(mode) },
	"encoding":   func(p *play, encoding string) { p.encoding = storage.Encoding(encoding) },
	"deadline":   func(p *play, most string) { p.Rules.MaxDeadline = p.duration(most) },
	"giveUp":     func(p *play, how string) { p.Rules.GiveUp = envelope.GiveUp(how) },
	"hold":       func(p *play, forgeable string) { p.Hold = time.Minute; p.Forgeable = forgeable == "forgeable" },
	"history": func(p *play, keep string) {
		p.KeepHistory = targets.History(keep)
		if p.History == nil {
			p.History = history.New(&p.tables, retention, p.Log)
		}
	},
	"deny": func(p *play, list string) {
		deny, err := guard.ParseDeny(list)
		p.must(err)
		p.Guard.Deny = deny
	},
	"profiles": func(p *play, file string) {
		profiles, err := targets.Parse([]byte(file), nil, nil)
		p.must(err)
		p.Rules.Profiles = profiles
	},
	"limits": func(p *play, arguments string) {
		fields := strings.Fields(arguments)
		p.Rules.Limits = retry.Limits{MinDelay: p.duration(fields[0]), MaxAttempts: p.number(fields[1])}
	},
	// What an operator has set: a member of a target, its value or when it ends.
	"live": func(p *play, arguments string) {
		fields := strings.Fields(arguments + " -")
		s := setting.Setting{Member: fields[0], Host: fields[1], Value: fields[2], Since: midnight}
		if s.Member == setting.Pause {
			s.Value = ""
			if fields[2] != "-" {
				s.Until = midnight.Add(p.duration(fields[2]))
			}
		}
		p.must(setting.Write(p.t.Context(), &p.app, s))
		p.Settings = setting.NewWatcher(&p.app, p.Log)
		p.Settings.Read(p.t.Context(), time.Second)
	},
	// The token server refuses until then.
	"noToken": func(p *play, until string) {
		end := midnight.Add(p.duration(until))
		refusal := &credential.ProblemError{Text: "invalid_client, status 401", ByOperator: true}
		p.Credentials = credential.New(credential.Config{
			Fetch: func(context.Context, targets.Credential) (credential.Token, error) {
				if time.Now().Before(end) {
					return credential.Token{}, refusal
				}
				return credential.Token{Value: canary, End: time.Now().Add(time.Hour)}, nil
			},
			Now: time.Now, Random: func() float64 { return 0.5 }, Log: p.Log,
		})
	},
	// Time passes before the host receives the message.
	"wait": func(p *play, d string) { p.waits = p.duration(d) },
}

// nexusMessage begins a Nexus message.
const nexusMessage = `{"Organization":"acme","Environment":"prd","OriginalRequestId":"o1",` +
	`"CreatedAt":"2000-01-01T00:00:00+00:00","RawRequest":{"Id":"n1","CallOutUriScheme":"https","CallOut":` +
	`"{{POST /orders?code=C4nary HTTP/1.1\r\nHost: target.example:8443\r\nX-Correlation-ID: c-7\r\n\r\nx}}"}`

const retention = 90 * 24 * time.Hour

// leaseChange returns what the host says wrongly about a message: nothing, not its receipt, id or expiry, an old
// receipt, another message's id, a later delivery, or that it was inserted or expires at a time.
func leaseChange(p *play, change string) func(*storage.Message) {
	what, value, _ := strings.Cut(change, " ")
	switch what {
	case "none":
		return func(m *storage.Message) { *m = storage.Message{} }
	case "stale":
		return func(m *storage.Message) { m.PopReceipt = "of another receive" }
	case "noReceipt":
		return func(m *storage.Message) { m.PopReceipt = "" }
	case "noID":
		return func(m *storage.Message) { m.ID = "" }
	case "noExpiry":
		return func(m *storage.Message) { m.ExpiresAt = time.Time{} }
	case "other":
		return func(m *storage.Message) { m.ID = messageID }
	case "count":
		return func(m *storage.Message) { m.DequeueCount = int64(p.number(value)) }
	case "expires":
		return func(m *storage.Message) { m.ExpiresAt = midnight.Add(p.duration(value)) }
	case "inserted":
		return func(m *storage.Message) { m.InsertedAt = midnight.Add(p.duration(value)) }
	}
	p.t.Fatalf("no lease %q", change)
	return nil
}

// inText matches what may be base64 in a JSON text.
var inText = regexp.MustCompile(`"[A-Za-z0-9+/]{20,}={0,2}"`)

var inBraces = regexp.MustCompile(`\{\{(.*?)}}`)

// expand returns a content as it is sent.
func expand(content string) string {
	unquoted, err := strconv.Unquote(content)
	if err == nil {
		content = unquoted
	}
	return inBraces.ReplaceAllStringFunc(content, func(found string) string {
		text := strings.NewReplacer(`\r`, "\r", `\n`, "\n").Replace(found[2 : len(found)-2])
		return base64.StdEncoding.EncodeToString([]byte(text))
	})
}

func (p *play) put(content string) { p.messages = append(p.messages, []byte(content)) }

// addOutcome adds an outcome of calls.
func (p *play) addOutcome(outcome string) {
	what, rest, _ := strings.Cut(outcome, " ")
	times := 1
	if n, behind, isMany := strings.Cut(what, "*"); isMany {
		times, what = p.number(n), behind
	}
	o := decision.Outcome{Took: p.took, Header: p.header.Clone()}
	status, err := strconv.Atoi(what)
	if err == nil {
		o.Status, o.Body = status, []byte(rest)
		o.Header.Set("Content-Type", "text/plain")
		if strings.HasPrefix(rest, "{") {
			o.Header.Set("Content-Type", "application/json")
		}
	} else {
		failure, status, _ := strings.Cut(what, "/") // an answer that broke off has a status
		o.Failure, o.Detail = decision.Failure(failure), rest
		if status != "" {
			o.Status = p.number(status)
		}
	}
	p.outcomes = append(p.outcomes, slices.Repeat([]decision.Outcome{o}, times)...)
}

// answer is what the target answers.
func (p *play) answer(ctx context.Context, e *envelope.Envelope) decision.Outcome {
	call := e.Call.Method + " " + e.Call.URL
	if e.Call.Body.Len() > 0 {
		call += " with " + p.describe(e.Call.Body.Bytes())
	}
	keys := p.Rules.Profiles.For(e.Call.Target).SigningKeysOf(&e.Call)
	if len(keys) > 0 {
		call += " signed with " + keys.Names()
	}
	call = strings.NewReplacer(callURL, "TARGET", callBody, "BODY", callbackURL, "SENDER").Replace(call)
	p.say("called %s, attempt %d of %s", call, e.Attempts+1, e.RequestID)
	outcome := decision.Outcome{Status: http.StatusOK, Took: p.took}
	if len(p.outcomes) > 0 {
		outcome = p.outcomes[min(len(p.target.calls), len(p.outcomes))-1]
	}
	if outcome.Failure == "hangs" {
		<-ctx.Done()
		return decision.Outcome{Failure: decision.FailureInterrupted}
	}
	if outcome.Failure == "panics" {
		panic("a bug of ours")
	}
	<-time.After(outcome.Took)
	return outcome
}

// run lets the host deliver the messages, and says what remains.
func (p *play) run() {
	if p.messages == nil {
		directives["envelope"](p, "")
	}
	<-time.After(p.waits)
	p.configure()
	for _, content := range p.messages {
		p.send(p.t, p.queue, string(content))
	}
	n := p.deliveries
	if n == 0 {
		n = len(p.messages)
	}
	for ; n != 0 && p.next(p.t, p.queue, mainQueue); n-- {
		p.say("received %s from %s, delivery %d", p.held.ID, p.heldFrom, p.held.DequeueCount)
		if p.isGone {
			p.store.Queues = memory.New()
		}
		status, body := p.invoke(p.t)
		p.say("answered %d %s", status, strings.TrimSpace(body))
		if p.repeats {
			status = http.StatusInternalServerError
		}
		if !p.isDead && !p.isGone {
			p.complete(p.t, status)
		}
	}
	<-time.After(2 * time.Second)
	synctest.Wait()
	p.sayTargets()
	p.closeTables()
	p.sayHistory()
	p.sayQueues()
}

// say adds a line about something that happens now.
func (p *play) say(format string, arguments ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(&p.out, "%v "+format+"\n", append([]any{p.since(time.Now())}, arguments...)...)
}

// since writes a time in whole seconds since the case began: the pauses between two tries are random.
func (*play) since(at time.Time) time.Duration { return at.Sub(midnight).Truncate(time.Second) }

// describe writes a content.
func (p *play) describe(content []byte) string {
	for _, sent := range p.messages {
		if string(content) == string(sent) && len(sent) > 0 {
			return "the message as sent"
		}
	}
	if len(content) > 4<<10 {
		return fmt.Sprintf("%d bytes", len(content))
	}
	text := abbreviate.Replace(string(content))
	return inText.ReplaceAllStringFunc(text, func(found string) string {
		decoded, err := base64.StdEncoding.DecodeString(strings.Trim(found, `"`))
		if err != nil {
			return found
		}
		quoted := strconv.Quote(string(decoded))
		return `"{{` + quoted[1:len(quoted)-1] + `}}"`
	})
}

// Write implements [io.Writer] for the log. What identifies the message that the host has is only shown if it is wrong
// or missing.
func (p *play) Write(line []byte) (int, error) {
	members, err := strictjson.Object(line)
	p.must(err)
	var level, text string
	var fields []string
	identity := map[string]string{
		"invocation_id": invocationID, "function": functionOf(p.heldFrom), "queue": p.heldFrom,
		"message_id": p.held.ID, "dequeue_count": fmt.Sprint(p.held.DequeueCount),
	}
	for _, m := range members {
		value := strings.Trim(string(m.Value), `"`)
		if strings.ContainsAny(value, " {[") {
			value = string(m.Value)
		}
		switch m.Name {
		case "level":
			level = value
		case "message":
			p.must(json.Unmarshal(m.Value, &text))
		case "stack", "time":
		default:
			if identity[m.Name] != value {
				fields = append(fields, m.Name+"="+value)
			}
			delete(identity, m.Name)
		}
	}
	switch len(identity) {
	case 0:
	case 5:
		fields = append(fields, "about no message")
	default:
		fields = append(fields, "without "+strings.Join(slices.Sorted(maps.Keys(identity)), ", "))
	}
	p.say("log %s %q %s", level, text, shortLog.Replace(strings.Join(fields, " ")))
	return len(line), nil
}

// shortLog abbreviates the fields that most lines have.
var shortLog = strings.NewReplacer(
	"request_id=r1 target_host=target.example:8443 ", "R1 ", "trace_id=", "", " span_id=", "/")

// noted is a table whose changes are said, after its operations have taken their time.
type noted struct {
	storage.Table
	p    *play
	show func(entity storage.Entity, how string)
	took time.Duration
}

func (n noted) Put(ctx context.Context, entities []storage.Entity) error {
	<-time.After(n.took)
	n.showAll(entities, "")
	return n.Table.Put(ctx, entities)
}

func (n noted) Insert(ctx context.Context, entities []storage.Entity) error {
	n.showAll(entities, ", unless it has one")
	return n.Table.Insert(ctx, entities)
}

// showAll shows entities in the order of their ids: those of one write have no order.
func (n noted) showAll(entities []storage.Entity, how string) {
	slices.SortFunc(entities, func(a, b storage.Entity) int { return strings.Compare(a.ID, b.ID) })
	for _, entity := range entities {
		n.show(entity, how)
	}
}

func (n noted) Delete(ctx context.Context, keys []storage.Key) error {
	slices.SortFunc(keys, func(a, b storage.Key) int { return strings.Compare(a.ID, b.ID) })
	for _, key := range keys {
		n.p.say("row of %s removed", key.ID)
	}
	return n.Table.Delete(ctx, keys)
}

// sayOutcome says what the row of a message of a run says.
func (p *play) sayOutcome(entity storage.Entity, _ string) {
	o := rows.Decode[record.Outcome](entity)
	p.say("outcome %s of run %s: %s %s %d at %s %q", o.ID, o.Partition, o.Action, o.Reason, o.Status, o.TargetHost,
		o.Cause)
}

// sayRow says what the row of a message says, and checks it.
func (p *play) sayRow(entity storage.Entity, how string) {
	r := rows.Decode[record.Row](entity)
	about := fmt.Sprintf("%s %s %s%s, %s, status %d, cause %q, answer %q, attempts %d", r.RequestID, r.Method,
		r.TargetHost, r.PathPattern, r.Reason, r.Status, r.Cause, r.Answer, r.Attempts)
	if r.MovedTo != "" {
		about += ", moved to " + r.MovedTo
	}
	if r.Repeated {
		about += ", written more than once"
	}
	if r.IsDeadLetter() {
		p.say("row of dead letter %s%s: %s", r.ID, how, about)
	} else {
		p.say("row of %s%s: %s, next %v, deadline %v", r.ID, how, about, p.since(r.NextAttemptAt), p.since(r.Deadline))
	}
	all := p.store.All(r.Partition)
	at := slices.IndexFunc(all, func(m storage.Message) bool { return m.ID == r.ID })
	if at < 0 {
		p.t.Errorf("the row of a message that is not on %s", r.Partition)
		return
	}
	m := all[at]
	if m.Text != p.encoding.Encode(r.Content) && r.Content != nil {
		p.t.Errorf("the row has the content %s, the message %s", r.Content, m.Text)
	}
	if !r.IsDeadLetter() {
		if m.PopReceipt != r.PopReceipt {
			p.t.Errorf("the row has the receipt %s, the message %s", r.PopReceipt, m.PopReceipt)
		}
		return
	}
	if strings.HasPrefix(r.Partition, routedQueue) { // its row says more than a content that is no envelope
		return
	}
	rules := message.Rules{Encoding: p.encoding, Decision: p.Rules}
	want, got := message.Read(rules, r.Partition, m), message.FromRow(r).Message
	want.Path, want.Bytes, got.Bytes = "", 0, 0
	want.Since, got.Since = want.Since.Truncate(time.Second), got.Since.Truncate(time.Second)
	if diff := cmp.Diff(want, got); diff != "" {
		p.t.Errorf("the dead letter is read differently from its row (-message +row):\n%s", diff)
	}
}

// sayTargets says which targets fail.
func (p *play) sayTargets() {
	failing, err := sight.NewReader(&p.sight).Failing(p.t.Context())
	p.must(err)
	for _, f := range failing {
		fmt.Fprintf(&p.out, "target %s fails: %s %s %q\n", f.Host, f.Reason, f.Cause, f.Answer)
	}
}

// sayHistory says what the history has of the calls.
func (p *play) sayHistory() {
	for _, of := range []envelope.Tenant{{}, {Organization: "acme", Environment: "prd"}} {
		for _, id := range []string{"r1", "n1"} {
			found, _, err := history.Find(p.t.Context(), &p.tables, of, id)
			p.must(err)
			for _, e := range found {
				fmt.Fprintf(&p.out, "history %s %s %s at %s: %s %s %d, attempts %d, trail %d, ended %v, trace %s, "+
					"in %s\n", e.RequestID, e.Queue, e.MessageID,
					strings.TrimSuffix(e.TargetHost+" moved to "+e.MovedTo, " moved to "), e.Action, e.Reason, e.Status,
					e.Attempts, len(e.Trail), p.since(e.EndedAt), e.TraceID, e.Table)
			}
		}
	}
}

// sayQueues says what is on the queues.
func (p *play) sayQueues() {
	queues, err := p.store.Names(p.t.Context(), "")
	p.must(err)
	for _, queue := range queues {
		for _, m := range p.store.All(queue) {
			content, err := p.encoding.Decode(m.Text)
			p.must(err)
			due := fmt.Sprint("due at ", p.since(m.NextVisibleAt))
			if !m.ExpiresAt.Equal(storage.NeverExpires) {
				due += fmt.Sprint(", expires at ", p.since(m.ExpiresAt))
			}
			fmt.Fprintf(&p.out, "on %s %s, %s: %s\n", queue, m.ID, due, p.describe(content))
		}
	}
}

// awayTables are tables that fail or, without an error, hang.
type awayTables struct {
	memory.Tables
	err error
}

type awayTable struct {
	storage.Table
	err error
}

func (t *awayTables) Table(name string) storage.Table { return awayTable{t.Tables.Table(name), t.err} }

func (t awayTable) Get(ctx context.Context, _, _ string) (entity storage.Entity, found bool, err error) {
	return entity, false, t.fail(ctx)
}

func (t awayTable) Put(ctx context.Context, _ []storage.Entity) error { return t.fail(ctx) }

func (t awayTable) fail(ctx context.Context) error {
	if t.err == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return t.err
}

func (p *play) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *play) number(text string) int {
	p.t.Helper()
	n, err := strconv.Atoi(text)
	p.must(err)
	return n
}

func (p *play) duration(text string) time.Duration {
	p.t.Helper()
	d, err := time.ParseDuration(text)
	p.must(err)
	return d
}
