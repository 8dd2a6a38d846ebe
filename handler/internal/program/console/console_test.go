package console

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/observers/sight/sighttest"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

const (
	address     = "127.0.0.1:8100"
	secret      = "verysecret"
	mainQueue   = "async-caller"
	poisonQueue = "async-caller-poison"
)

// fixture is a console of an account in memory.
type fixture struct {
	*Console

	t     *testing.T
	store *memory.Queues
	// table is the record, apps what instances share, and sight what each knows.
	table, apps, sight *memory.Table
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, store: memory.New(), table: &memory.Table{}, apps: &memory.Table{}, sight: &memory.Table{}}
	f.Console = New(&operation.Operations{
		Account: &account.Account{
			Store: f.store, Name: "test", AppQueues: []string{mainQueue},
			Rules: message.Rules{Encoding: storage.Base64}, Table: f.table, AppTable: f.apps,
			Sight: sight.NewReader(f.sight),
		},
		Outcomes: f.table, Journals: journal.Folder(t.TempDir()),
	}, "--app dist")
	for _, name := range []string{mainQueue, poisonQueue} {
		f.must(f.store.Create(t.Context(), name))
	}
	return f
}

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// poisonMessage puts a dead letter, and returns its id.
func (f *fixture) poisonMessage(requestID, reason string) string {
	f.t.Helper()
	text := fmt.Sprintf(`{"asyncCaller":1,"requestId":%q,"call":{"url":"https://crm.example/orders/7?key=CANARY"},`+
		`"attempts":2,"deadLetter":{"at":"2026-01-01T00:00:00Z","reason":%q,"queue":"async-caller","attempts":2}}`,
		requestID, reason)
	m, err := f.store.Put(f.t.Context(), poisonQueue, storage.Item{Text: storage.Base64.Encode([]byte(text))})
	f.must(err)
	return m.ID
}

// scheduledMessage records a message that is due later.
func (f *fixture) scheduledMessage(n int, host string, wait time.Duration) {
	f.t.Helper()
	id := fmt.Sprintf("%08x-0000-4000-8000-000000000000", n)
	f.must(rows.Put(f.t.Context(), f.table, record.Row{
		Key: storage.Key{Partition: mainQueue, ID: id}, RequestID: fmt.Sprintf("order-%d", n), TargetHost: host,
		PathPattern: "/orders/{n}", Method: "POST", Reason: "temporary_status", Status: 503, Cause: "status 503",
		CreatedAt: time.Now(), NextAttemptAt: time.Now().Add(wait), Deadline: time.Now().Add(time.Hour),
		Content: []byte(`{"asyncCaller":1,"call":{"url":"https://` + host + `/orders/7"}}`),
	}))
}

// ask sends a request, which change may change.
func (f *fixture) ask(target string, change func(*http.Request)) *http.Response {
	f.t.Helper()
	request := httptest.NewRequestWithContext(f.t.Context(), http.MethodGet, "http://"+address+target, nil)
	change(request)
	recorder := httptest.NewRecorder()
	f.handler(address, secret, func() {}).ServeHTTP(recorder, request)
	return recorder.Result()
}

// get returns a page with its status.
func (f *fixture) get(path string) (status int, content string) {
	f.t.Helper()
	response := f.ask("/"+secret+"/"+path, func(*http.Request) {})
	return response.StatusCode, body(f.t, response)
}

func body(t *testing.T, response *http.Response) string {
	t.Helper()
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// TestRefusals: a request that does not come from a page of the console, or from the address bar, learns nothing.
func TestRefusals(t *testing.T) {
	const page = "/" + secret + "/"
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	method := func(name string) func(*http.Request) { return func(r *http.Request) { r.Method = name } }
	unchanged := func(*http.Request) {}
	f := newFixture(t)
	for name, c := range map[string]struct {
		path   string
		change func(*http.Request)
		want   int
	}{
		"page":              {page, unchanged, http.StatusOK},
		"localhost":         {page, host("LOCALHOST:8100"), http.StatusOK},
		"own_fetch":         {page, header("Sec-Fetch-Site", "same-origin"), http.StatusOK},
		"address_bar":       {page, header("Sec-Fetch-Site", "none"), http.StatusOK},
		"own_origin":        {page, header("Origin", "http://"+address), http.StatusOK},
		"rebinding":         {page, host("evil.example:8100"), http.StatusMisdirectedRequest},
		"rebinding_suffix":  {page, host("127.0.0.1.evil.example:8100"), http.StatusMisdirectedRequest},
		"other_port":        {page, host("127.0.0.1:8101"), http.StatusMisdirectedRequest},
		"no_port":           {page, host("127.0.0.1"), http.StatusMisdirectedRequest},
		"no_host":           {page, host(""), http.StatusMisdirectedRequest},
		"user_info":         {page, host("127.0.0.1:8100@evil.example"), http.StatusMisdirectedRequest},
		"other_site":        {page, header("Sec-Fetch-Site", "cross-site"), http.StatusForbidden},
		"port_of_this_host": {page, header("Sec-Fetch-Site", "same-site"), http.StatusForbidden},
		"other_origin":      {page, header("Origin", "http://127.0.0.1:8101"), http.StatusForbidden},
		"null_origin":       {page, header("Origin", "null"), http.StatusForbidden},
		"post":              {page, method(http.MethodPost), http.StatusMethodNotAllowed},
		"options":           {page, method(http.MethodOptions), http.StatusMethodNotAllowed},
		"no_secret":         {"/", unchanged, http.StatusNotFound},
		"only_secret":       {"/" + secret, unchanged, http.StatusTemporaryRedirect},
		"only_secret_query": {"/" + secret + "?x", unchanged, http.StatusTemporaryRedirect},
		"only_secret_other": {"/" + secret, header("Sec-Fetch-Site", "cross-site"), http.StatusForbidden},
		"only_secret_post":  {"/" + secret, method(http.MethodPost), http.StatusMethodNotAllowed},
		"only_secret_twice": {"//" + secret, unchanged, http.StatusNotFound},
		"new_origin":        {page, host("K2XW.localhost:8100"), http.StatusOK},
		"below_port":        {page, host("k2xw.localhost:8101"), http.StatusMisdirectedRequest},
		"not_below":         {page, host("evillocalhost:8100"), http.StatusMisdirectedRequest},
		"localhost_evil":    {page, host("localhost.evil.example:8100"), http.StatusMisdirectedRequest},
		"guess":             {"/verysecreT/", unchanged, http.StatusNotFound},
		"beginning":         {"/very/", unchanged, http.StatusNotFound},
		"longer":            {"/verysecret0/", unchanged, http.StatusNotFound},
		"style_alone":       {"/style.css", unchanged, http.StatusNotFound},
		"double_slash":      {"//" + secret + "/", unchanged, http.StatusNotFound},
		"escaped_slash":     {"/" + secret + "%2f", unchanged, http.StatusNotFound},
		"escaped_letter":    {page + "%73tyle.css", unchanged, http.StatusNotFound},
		"parent":            {page + "../", unchanged, http.StatusNotFound},
		"parent_of_assets":  {page + "../console.go", unchanged, http.StatusNotFound},
		"escaped_parent":    {page + "..%2ftemplates%2flayout.html", unchanged, http.StatusNotFound},
		"template":          {page + "templates/layout.html", unchanged, http.StatusNotFound},
		"folder":            {page + "assets", unchanged, http.StatusNotFound},
		"dot":               {page + ".", unchanged, http.StatusNotFound},
		"backslash":         {page + `..\console.go`, unchanged, http.StatusNotFound},
		"page_below":        {page + "runs/", unchanged, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			response := f.ask(c.path, c.change)
			content := body(t, response)
			if response.StatusCode != c.want {
				t.Errorf("status %d, want %d:\n%s", response.StatusCode, c.want, content)
			}
			isRefused := c.want != http.StatusOK
			if isRefused && (strings.Contains(content, "<") || strings.Contains(content, secret)) {
				t.Errorf("the refusal says more than that: %s", content)
			}
			if to := response.Header.Get("Location"); c.want == http.StatusTemporaryRedirect && to != page {
				t.Errorf("leads to %q", to)
			}
			for name, want := range map[string]string{
				"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff",
			} {
				if got := response.Header.Get(name); got != want {
					t.Errorf("%s: %q", name, got)
				}
			}
			policy := response.Header.Get("Content-Security-Policy")
			isStrict := strings.HasPrefix(policy, "default-src 'none';") && !strings.Contains(policy, "unsafe")
			if !isStrict || !strings.Contains(policy, "frame-ancestors 'none'") {
				t.Errorf("policy: %s", policy)
			}
		})
	}
}

// pipes is a listener without a network, so that time can be virtual.
type pipes struct {
	conns chan net.Conn
	ctx   context.Context
	close context.CancelFunc
}

func newPipes(ctx context.Context) *pipes {
	p := &pipes{conns: make(chan net.Conn)}
	p.ctx, p.close = context.WithCancel(ctx)
	return p
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.close()
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8100} }

// TestIdle: only requests to pages keep the console going.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, listener := newFixture(t), newPipes(t.Context())
		ended := make(chan error, 1)
		begin := time.Now()
		go func() { ended <- f.Serve(t.Context(), listener, secret) }()
		client := http.Client{Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				mine, theirs := net.Pipe()
				listener.conns <- theirs
				return mine, nil
			},
		}}
		get := func(path string) {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
			f.must(err)
			response, err := client.Do(request)
			f.must(err)
			_ = body(t, response)
		}
		<-time.After(50 * time.Minute)
		get("/" + secret + "/style.css")
		<-time.After(50 * time.Minute)
		get("/guess/")
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("it ended early: %v", err)
		default:
		}
		err := <-ended
		if took := time.Since(begin); !errors.Is(err, ErrIdle) || took > 111*time.Minute {
			t.Errorf("it ended after %v: %v", took, err)
		}
	})
}

// TestPages: each page says what there is, and names the commands for it; whatever a message contains is text.
func TestPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const markup = `<script>alert(1)</script>`
		f := newFixture(t)
		first := f.poisonMessage("order-1", "rejected")
		f.poisonMessage("order-2", markup)
		for n := range 40 {
			f.poisonMessage("order-3", "expired")
			f.scheduledMessage(n, "crm.example", time.Duration(n+1)*time.Minute)
		}
		f.scheduledMessage(100, "it's.example", 30*time.Minute)
		sighttest.Fail(t, f.sight, sight.Target{
			App: "app", Host: "crm.example", Cause: "\u202estatus 503", Since: time.Now(), Latest: time.Now(),
		})
		for path, want := range map[string][]string{
			"": {">42<", "target?host=crm.example", "no timer function", "\ufffdstatus 503"},
			"target?host=crm.example": {
				"<h1>crm.example</h1>", "targets pause crm.example --for 1h<", ">--app dist<",
				`href="scheduled?by=host&amp;key=crm.example"`, `href="poison?by=host&amp;key=crm.example"`,
			},
			"target?host=CRM.example.": {"<h1>crm.example</h1>", "targets pause crm.example --for 1h<", ">--app dist<"},
			"scheduled":                {"41 calls", "?by=cause&amp;key="},
			"scheduled?by=host":        {"--group host=#1ddb6788 --dry-run"},
			"scheduled?by=host&key=crm.example": {
				"40 calls", "order-0", "in 1m", "call?id=00000000-",
			},
			"poison":                        {"32 calls seen", "the first 32 of about 42", "&lt;script&gt;alert(1)"},
			"poison?by=reason&key=rejected": {"1 call ", first[:8]},
			"call?id=" + first: {
				"https://crm.example/orders/7?key=***", "calls retry " + first, `class="chip bad">dead letter<`,
			},
			"call?id=order-4": {"calls retry 00000004-", "2000-01-01T00:05:00Z", `class="chip waiting">scheduled<`},
			"runs":            {"Nobody has changed calls"},
		} {
			status, content := f.get(path)
			if status != http.StatusOK {
				t.Errorf("%s: status %d", path, status)
			}
			for _, text := range want {
				if !strings.Contains(content, text) {
					t.Errorf("%s does not contain %s:\n%s", path, text, content)
				}
			}
			if strings.Contains(content, markup) || strings.ContainsAny(content, "\u202e") {
				t.Errorf("%s has markup of a message, or writes backwards", path)
			}
			if strings.HasPrefix(path, "call?id="+first) && strings.Contains(content, "Incomplete: queue") {
				t.Errorf("%s warns although no other message has this id", path)
			}
			if strings.Contains(content, "CANARY") {
				t.Errorf("%s has a secret", path)
			}
		}
		for _, m := range f.store.All(poisonQueue) {
			if m.DequeueCount != 0 || m.NextVisibleAt.After(time.Now()) {
				t.Fatalf("a message was received: %+v", m)
			}
		}
	})
}

// TestMessagesDueFirst: of a large group, the page has the messages that are due first.
func TestMessagesDueFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		const messages = 11*mostCalls + 30
		for n := range messages {
			f.scheduledMessage(n, "crm.example", time.Duration(messages-n)*time.Minute)
		}
		_, content := f.get("scheduled?by=host&key=crm.example")
		first, last := strings.Index(content, "order-1129<"), strings.Index(content, "order-1030<")
		if first < 0 || last < first || strings.Contains(content, "order-1029<") {
			t.Errorf("the first is at %d, the last at %d", first, last)
		}
		if !strings.Contains(content, "1,030 calls due later") {
			t.Error("the page does not say how many are left")
		}
	})
}

// TestOtherQueues: the sums of the overview, and the commands for groups, include queues that no function reads.
func TestOtherQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.poisonMessage("order-1", "rejected")
		for _, name := range []string{"other-poison", "parked"} {
			f.must(f.store.Create(t.Context(), name))
			_, err := f.store.Put(t.Context(), name, storage.Item{Text: f.store.All(poisonQueue)[0].Text})
			f.must(err)
		}
		f.scheduledMessage(1, "crm.example", time.Hour)
		for path, want := range map[string]string{
			"": "Dead letters</a></dt>\n<dd>3</dd>",
			"poison": "calls retry --state poison --group reason=rejected " +
				"--queue async-caller-poison --queue other-poison --queue parked",
		} {
			if _, content := f.get(path); !strings.Contains(content, want) {
				t.Errorf("%s does not contain %s:\n%s", path, want, content)
			}
		}
	})
}

// record writes the rows of the dead letters on the poison queue, without the first ones, and that the queue was read.
func (f *fixture) record(without int) {
	f.t.Helper()
	for _, m := range f.store.All(poisonQueue)[without:] {
		row := message.ToRow(message.Read(f.operations.Account.Rules, poisonQueue, m), nil)
		f.must(rows.Put(f.t.Context(), f.table, row))
	}
	key := storage.Key{Partition: poisonQueue, ID: record.ReadingID}
	f.must(rows.Put(f.t.Context(), f.table, record.Reading{Key: key, ReadAt: time.Now()}))
}

// TestDeadLetters: groups and lists are those of all dead letters, and what they lack is said.
func TestDeadLetters(t *testing.T) {
	for name, c := range map[string]struct {
		without, received int
		groups, list      string
	}{
		"all":      {0, 0, "42 calls recorded.", ">order-41<"},
		"missing":  {40, 0, "recorded 34, on the queue about 42", ">order-41<"},
		"received": {0, 42, "not seen 42: perhaps received by another command", `>not seen<`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				for n := range 42 {
					f.poisonMessage(fmt.Sprintf("order-%d", n), "rejected")
				}
				f.record(c.without)
				for range c.received {
					_, err := f.store.Receive(t.Context(), poisonQueue, 1, time.Hour)
					f.must(err)
				}
				for path, want := range map[string]string{"poison": c.groups, "poison?by=reason&key=rejected": c.list} {
					status, content := f.get(path)
					if status != http.StatusOK || !strings.Contains(content, want) {
						t.Errorf("%s: status %d, without %q:\n%s", path, status, want, content)
					}
				}
			})
		})
	}
}

// TestPaused: a pause of the port that https has is one of the target, whose messages wait for its end.
func TestPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.scheduledMessage(1, "crm.example", time.Hour)
		for _, host := range []string{"crm.example:443", "crm.example:80"} {
			made := setting.Setting{Host: host, Member: setting.Pause, Since: time.Now()}
			err := setting.Write(t.Context(), f.apps, made)
			f.must(err)
		}
		_, content := f.get("target?host=crm.example")
		if !strings.Contains(content, "targets resume crm.example:443") || strings.Contains(content, "targets pause") {
			t.Errorf("the target:\n%s", content)
		}
		_, content = f.get("scheduled?by=host")
		if strings.Count(content, "after the pause") != 2 {
			t.Errorf("the group:\n%s", content)
		}
	})
}

// TestSeveralCalls: a page lists the calls that an id names, and leads to each of them.
func TestSeveralCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		tables := &memory.Tables{}
		f.operations.History = tables
		ended := history.New(tables, 30*24*time.Hour, zerolog.Nop())
		for n := range 2 {
			f.poisonMessage("order-1", "rejected")
			e, err := envelope.Parse(fmt.Appendf(nil,
				`{"asyncCaller":1,"requestId":"order-1","call":{"url":"https://crm.example/%d"}}`, n))
			f.must(err)
			e.CreatedAt = time.Now()
			entry := ended.NewEntry(e, time.Now())
			entry.MessageID, entry.Queue = fmt.Sprintf("0000000%d-0000-4000-8000-000000000000", n), mainQueue
			entry.Action, entry.Reason, entry.TraceID = string(decision.Finish), history.Delivered, fmt.Sprint(n)
			if n == 1 {
				entry.Action, entry.Reason = string(decision.Callback), string(decision.Rejected)
			}
			ended.Acknowledge(t.Context(), entry, time.Now())
		}
		ended.Close(time.Second)
		_, content := f.get("call?id=order-1")
		for _, badge := range []string{`good">delivered<`, `bad">dead letter<`, `bad">rejected<`} {
			if !strings.Contains(content, `<span class="chip `+badge) {
				t.Errorf("no badge %s:\n%s", badge, content)
			}
		}
		links := regexp.MustCompile(`href="(call\?[^"]*)"`).FindAllStringSubmatch(content, -1)
		if len(links) != 4 {
			t.Fatalf("%d links:\n%s", len(links), content)
		}
		for _, link := range links {
			status, content := f.get(html.UnescapeString(link[1]))
			if status != http.StatusOK || !strings.Contains(content, "<h2>Timeline</h2>") {
				t.Errorf("%s: %d\n%s", link[1], status, content)
			}
		}
	})
}

// TestProblems: a page that cannot be shown says why, and which command says more.
func TestProblems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		for range 2 {
			f.poisonMessage("order-1", "rejected")
		}
		for n := range 40 {
			f.poisonMessage(fmt.Sprintf("further-%d", n), "expired")
		}
		for path, want := range map[string]struct {
			status int
			text   string
		}{
			"call":                           {http.StatusNotFound, "enter a request id"},
			"call?id=nobody":                 {http.StatusNotFound, "only the first 32 of about 42"},
			"call?id=further-39":             {http.StatusNotFound, ">async-caller show further-39<"},
			"call?id=order-1":                {http.StatusOK, "names 2 calls"},
			"call?id=order-1&message=":       {http.StatusOK, "Incomplete: queue async-caller-poison"},
			"call?id=--reveal":               {http.StatusNotFound, "only the first 32 of about 42"},
			"call?id=%24(calc)":              {http.StatusNotFound, "only the first 32 of about 42"},
			"call?id=further-39&queue=a%27b": {http.StatusNotFound, "a&#39;b"},
			"call?id=order-1&queue=missing":  {http.StatusNotFound, "missing"},
			"target?host=nobody.example":     {http.StatusNotFound, "no call to it is known"},
			"scheduled?by=colour":            {http.StatusNotFound, "cannot group by"},
			"poison?by=queue":                {http.StatusNotFound, "cannot group by"},
		} {
			status, content := f.get(path)
			isUnsafe := strings.Contains(content, "show --reveal") ||
				strings.Contains(content, "async-caller show &#39;") || strings.Contains(content, "--queue=&#39;")
			if status != want.status || !strings.Contains(content, want.text) || isUnsafe {
				t.Errorf("%s: status %d, without %q:\n%s", path, status, want.text, content)
			}
		}
		f.operations.Account.Store = unreadable{f.store}
		status, content := f.get("poison")
		if status != http.StatusServiceUnavailable || !strings.Contains(content, ">async-caller doctor<") {
			t.Errorf("without storage: status %d:\n%s", status, content)
		}
		f.operations.Outcomes = nil
		_, content = f.get("runs")
		if strings.Contains(content, "Nobody") {
			t.Errorf("without a table of runs:\n%s", content)
		}
		f.operations.Account.Table = nil
		status, content = f.get("scheduled")
		if status != http.StatusNotFound || !strings.Contains(content, "not recorded") {
			t.Errorf("without a record: status %d:\n%s", status, content)
		}
	})
}

// unreadable are queues whose names storage refuses to list.
type unreadable struct{ storage.Queues }

func (unreadable) Names(context.Context, string) ([]string, error) {
	return nil, fmt.Errorf("list the queues: %w", storage.ErrDenied)
}

// TestNothing: an account in which nothing waits has no charts.
func TestNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		_, content := f.get("")
		if strings.Contains(content, "<svg") || strings.Contains(content, "Over time") {
			t.Errorf("the overview:\n%s", content)
		}
	})
}

// TestUnknown: what cannot be read is never shown as nothing.
func TestUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		partition string
		target    string
	}{
		"record":  {"", "200 Scheduled</dt><dd>unknown"},
		"targets": {"now", "200 How it fails is unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.scheduledMessage(1, "crm.example", time.Hour)
				f.operations.Account.Table = brokenTable{f.table, c.partition}
				f.operations.Account.AppTable = brokenTable{f.apps, c.partition}
				f.operations.Account.Sight = sight.NewReader(brokenTable{f.sight, c.partition})
				_, content := f.get("")
				if strings.Contains(content, "No target fails") || !strings.Contains(content, "unknown: ") {
					t.Errorf("the overview:\n%s", content)
				}
				status, content := f.get("target?host=crm.example")
				code, text, _ := strings.Cut(c.target, " ")
				if fmt.Sprint(status) != code || !strings.Contains(content, text) {
					t.Errorf("the target: %d\n%s", status, content)
				}
				status, _ = f.get("target?host=other.example")
				if status == http.StatusNotFound {
					t.Error("a target that may fail is not found")
				}
			})
		})
	}
}

// brokenTable cannot be read, or one partition of it; empty means all.
type brokenTable struct {
	storage.Table

	partition string
}

func (b brokenTable) List(ctx context.Context, q storage.Query, see func(storage.Entity) error) error {
	if b.partition == "" || q.Partition == b.partition {
		return fmt.Errorf("read the table: %w", storage.ErrRefused)
	}
	return b.Table.List(ctx, q, see)
}
