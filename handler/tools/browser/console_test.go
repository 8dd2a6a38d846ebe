package browser_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/emulator"
	"asynccaller/handler/tools/browser"
	"asynccaller/handler/tools/testbed"
)

var screenshots = flag.String("screenshots", "", "write the screenshots of docs/operating.md to this `folder`")

// patience is how long a page may take that is not timed.
const patience = time.Minute

var executable string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	folder, err := os.MkdirTemp("", "async-caller-browser-")
	if err == nil {
		defer func() { _ = os.RemoveAll(folder) }()
		executable, err = testbed.Build(context.Background(), folder)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// fixture is an account with a console.
type fixture struct {
	*sample

	// address is that of the first page.
	address string
	// connection is the connection string of the account, and stop ends the console.
	connection string
	stop       func()
	browser    *browser.Browser
}

// port is that of the console.
func (f *fixture) port() string { return must(url.Parse(f.address)).Port() }

func start(t *testing.T) *fixture {
	t.Helper()
	server := must(emulator.Start(t.Context(), emulator.Options{}))
	t.Cleanup(server.Close)
	f := &fixture{
		sample: openSample(t, server.ConnectionString), connection: server.ConnectionString, browser: browser.Start(t),
	}
	f.serve(t, "0")
	return f
}

// serve starts a console at a port, or at a free one.
func (f *fixture) serve(t *testing.T, port string) {
	t.Helper()
	// The runs of this machine are its own.
	command := exec.CommandContext(context.WithoutCancel(t.Context()), executable, "console", "--port", port)
	command.Dir = t.TempDir()
	command.Env = append(os.Environ(), "AzureWebJobsStorage="+f.connection, "XDG_STATE_HOME="+t.TempDir())
	output := must(command.StdoutPipe())
	var problems strings.Builder
	command.Stderr = &problems
	f.must(command.Start())
	f.stop = sync.OnceFunc(func() {
		f.must(command.Process.Signal(syscall.SIGTERM))
		if err := command.Wait(); err != nil || t.Failed() {
			t.Errorf("the console ended: %v\n%s", err, problems.String())
		}
	})
	t.Cleanup(f.stop)
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatalf("the console printed no address: %v", err)
	}
	f.address = strings.TrimSpace(line)
}

// get returns a page, which is there.
func (f *fixture) get(path string) string {
	f.t.Helper()
	u := must(url.Parse(f.address + path))
	u.Host = net.JoinHostPort("127.0.0.1", u.Port()) // few resolvers know names below localhost
	request := must(http.NewRequestWithContext(f.t.Context(), http.MethodGet, u.String(), nil))
	response, err := http.DefaultClient.Do(request)
	f.must(err)
	defer response.Body.Close()
	content := must(io.ReadAll(response.Body))
	if response.StatusCode != http.StatusOK {
		f.t.Fatalf("%s: %s\n%.2000s", path, response.Status, content)
	}
	return string(content)
}

// pages are the pages of the console, by the names of their screenshots.
func (f *fixture) pages() map[string]string {
	first := must(f.store.Peek(f.t.Context(), poisonQueue, 1))[0]
	return map[string]string{
		"overview":        "",
		"target":          "target?host=crm.example.com",
		"scheduled":       "scheduled?by=host",
		"scheduled-group": "scheduled?by=host&key=crm.example.com",
		"poison":          "poison?by=error",
		"poison-group":    "poison?by=reason&key=rejected",
		"call":            "call?id=" + first.ID + "&queue=" + poisonQueue,
		"calls":           "call?id=" + id(1, 7)[:8],
		"ended":           "call?id=order-delivered",
		"runs":            "runs",
	}
}

func TestPages(t *testing.T) {
	f := start(t)
	f.scheduled(0, 4_000)
	f.poison(0, 4_000)
	f.traffic()
	f.runsOfOthers()
	f.delivered("order-delivered")
	before := f.front()
	t.Run("time", func(t *testing.T) {
		// Two seconds, or on a slow machine what it takes to read the record twice: a look-up reads all of it, and then
		// the dead letters.
		reading := time.Now()
		f.must(record.ListScheduled(t.Context(), f.table(storage.ScheduledTable), record.Query{},
			func(record.Row) error { return nil }))
		limit := max(2*time.Second, 2*time.Since(reading))
		for name, path := range f.pages() {
			fastest := patience
			for range 3 { // other processes may delay one of them
				begin := time.Now()
				f.get(path)
				fastest = min(fastest, time.Since(begin))
			}
			t.Logf("%s: %v", name, fastest.Round(time.Millisecond))
			if fastest > limit {
				t.Errorf("%s takes %v", name, fastest)
			}
		}
	})
	for name, path := range f.pages() {
		t.Run(name, func(t *testing.T) { f.look(t, name, path) })
	}
	if after := f.front(); after != before {
		t.Errorf("the queue has changed: before\n%s\nafter\n%s", before, after)
	}
	for name, path := range f.pages() {
		if strings.Contains(f.get(path), "CANARY") {
			t.Errorf("%s shows a secret", name)
		}
	}
}

// front describes the poison queue: its length, and its first messages.
func (f *fixture) front() string {
	lines := []string{fmt.Sprint(must(f.store.Count(f.t.Context(), poisonQueue)))}
	for _, m := range must(f.store.Peek(f.t.Context(), poisonQueue, storage.MaxBatch)) {
		lines = append(lines, fmt.Sprintf("%s %d", m.ID, m.DequeueCount))
	}
	return strings.Join(lines, "\n")
}

// ways are how people look at a page.
var ways = map[string]browser.Options{
	"wide":      {Width: 1280},
	"narrow":    {Width: 390, Height: 844, Dark: true},
	"no-script": {Width: 1280, Dark: true, NoScript: true},
}

// pictures are the screenshots of docs/operating.md: the name of the page, and the way of looking at it.
var pictures = map[string]string{"overview": "wide", "poison": "wide", "call": "wide", "scheduled": "narrow"}

// look opens a page in each way, and takes its picture.
func (f *fixture) look(t *testing.T, name, path string) {
	t.Helper()
	for way, options := range ways {
		t.Run(way, func(t *testing.T) {
			p := f.browser.Open(t, f.address+path, options)
			if heading := browser.Run(p, text("h1")); heading == "" {
				t.Error("the page has no heading")
			}
			for _, violation := range p.Axe() {
				t.Error(violation)
			}
			if p.Overflows() {
				t.Error("the page is wider than the screen")
			}
			if way != "narrow" {
				if wide := browser.Run(p, chromedp.Evaluate[string](wideTables)); wide != "" {
					t.Errorf("wider than the page: %s", wide)
				}
			}
			checkIncidents(t, p)
			if *screenshots != "" && pictures[name] == way {
				p.Screenshot(filepath.Join(*screenshots, name+".png"))
			}
		})
	}
}

// wideTables names the tables that are wider than the page, if all of their details are open.
const wideTables = `(() => {
	const details = document.querySelectorAll(".wide details");
	details.forEach((d) => d.open = true);
	const wide = [...document.querySelectorAll(".wide")].filter((table) => table.scrollWidth > table.clientWidth);
	details.forEach((d) => d.open = false);
	return wide.map((table) => table.getAttribute("aria-label") + " " + table.scrollWidth).join(", ");
})()`

func checkIncidents(t *testing.T, p *browser.Page) {
	t.Helper()
	i := p.Incidents()
	if len(i.Errors)+len(i.CSP)+len(i.Dialogs)+len(i.Foreign) > 0 {
		t.Errorf("%+v", i)
	}
}

// text returns the text of the first element of a selector.
func text(selector string) chromedp.Action[string] {
	return chromedp.Evaluate[string](fmt.Sprintf("document.querySelector(%q)?.textContent ?? ''", selector))
}

// await waits until an expression is true on a page.
func await(p *browser.Page, expression string) {
	browser.Run(p, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(patience)))
}

// TestRefresh: a page that is looked at stays what it is for its reader while its numbers change, and says when they
// do not any more.
func TestRefresh(t *testing.T) {
	f := start(t)
	f.scheduled(2, 3)
	p := f.browser.Open(t, f.address+"scheduled?by=host", browser.Options{Width: 390, Height: 500})
	const row = `document.querySelector('tr[data-key="billing.example.com"]')`
	state := fmt.Sprintf(`JSON.stringify([
		document.activeElement === %[1]s.querySelector("a"), %[1]s.querySelector("details").open,
		%[1]s.closest(".wide").scrollLeft, scrollY > 0, document.getElementById("id").value,
		document.querySelectorAll("details[open]").length, getSelection().toString() ])`, row)
	browser.Run(p, chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`
		document.getElementById("id").value = "half an i";
		%[1]s.querySelector("details").open = true;
		%[1]s.querySelector("a").focus();
		%[1]s.closest(".wide").scrollLeft = 40;
		scrollTo(0, 60);
		getSelection().selectAllChildren(%[1]s.querySelector("code"));`, row)))
	before := browser.Run(p, chromedp.Evaluate[string](state))
	if !strings.HasPrefix(before, `[true,true,40,true,"half an i",1,"async-caller`) {
		t.Fatalf("the reader could not do that: %s", before)
	}
	f.scheduled(3, 40) // others become larger groups, and come first
	await(p, `document.querySelector("tbody tr").dataset.key === "crm.example.com" &&
		document.querySelectorAll("tbody tr").length === 4`)
	if after := browser.Run(p, chromedp.Evaluate[string](state)); after != before {
		t.Errorf("before %s\nafter  %s", before, after)
	}
	browser.Run(p, chromedp.Evaluate[chromedp.Void]("getSelection().empty()")) // a row that moves does not keep it
	before = browser.Run(p, chromedp.Evaluate[string](state))
	for n := 42; n < 142; n += 5 { // the group of the row becomes the largest one
		f.scheduled(n, n+1)
	}
	await(p, `document.querySelector("tbody tr").dataset.key === "billing.example.com"`)
	if after := browser.Run(p, chromedp.Evaluate[string](state)); after != before {
		t.Errorf("before %s\nafter  %s", before, after)
	}
	if count := browser.Run(p, text(`tr[data-key="billing.example.com"] td`)); count != "28" {
		t.Errorf("the row says %q", count)
	}
	checkIncidents(t, p)
	f.stop()
	await(p, ended)
	f.impostor(t, "127.0.0.1")
	browser.Run(p, chromedp.Evaluate[string](`document.dispatchEvent(new Event("visibilitychange"));
		fetch(location.href).then((r) => r.text())`, chromedp.EvalAwaitPromise)) // the impostor answers
	if heading := browser.Run(p, text("h1")); heading == forged {
		t.Error("the page was filled by somebody else after the console had ended")
	}
}

const (
	// ended is true on a page that has stopped, because the console has ended.
	ended = `document.getElementById("refreshing").textContent.startsWith("The console has ended")`
	// forged is the heading of the pages of an impostor.
	forged = "Forged"
)

// impostor serves forged pages at the port of the console. Its page registers a service worker, which answers all
// requests of the origin with such pages.
func (f *fixture) impostor(t *testing.T, host string) (stop func()) {
	t.Helper()
	const content = `<h1>` + forged + `</h1>`
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(host, f.port()))
	f.must(err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/worker.js" {
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprintf(w, `addEventListener("install", () => skipWaiting());
				addEventListener("activate", (e) => e.waitUntil(clients.claim()));
				addEventListener("fetch", (e) => e.respondWith(new Response(%q, {headers: {"Content-Type": "text/html"}})));`,
				content)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<main id="main">%s</main><footer></footer>`, content)
	}), ReadHeaderTimeout: patience}
	go func() { _ = server.Serve(listener) }()
	stop = sync.OnceFunc(func() { f.must(server.Close()) })
	t.Cleanup(stop)
	return stop
}

// TestImpostorBetween: a program that takes the port of a console, before a page has noticed that the console has
// ended, does not fill the page.
func TestImpostorBetween(t *testing.T) {
	f := start(t)
	p := f.browser.Open(t, f.address, browser.Options{})
	f.stop()
	f.impostor(t, "127.0.0.1")
	await(p, ended)
	if heading := browser.Run(p, text("h1")); heading == forged {
		t.Error("the page was filled by somebody else")
	}
}

// TestServiceWorker: the service worker of a program that had the port of the console before does not get the pages.
func TestServiceWorker(t *testing.T) {
	f := start(t)
	p := f.browser.Open(t, "about:blank", browser.Options{})
	f.stop()
	stop := f.impostor(t, "127.0.0.1")
	for _, name := range []string{"127.0.0.1", "localhost", "x.localhost"} {
		origin := "http://" + net.JoinHostPort(name, f.port())
		browser.Run(p, chromedp.Navigate(origin))
		browser.Run(p, chromedp.Evaluate[chromedp.Void](`navigator.serviceWorker.register("/worker.js")`))
		await(p, `navigator.serviceWorker.controller !== null`)
	}
	stop()
	f.serve(t, f.port())
	secret := must(url.Parse(f.address)).Path
	browser.Run(p, chromedp.Navigate("http://"+net.JoinHostPort("127.0.0.1", f.port())+secret))
	if heading := browser.Run(p, text("h1")); heading != forged {
		t.Fatalf("no service worker was planted: %q", heading)
	}
	browser.Run(p, chromedp.Navigate(f.address))
	if heading := browser.Run(p, text("h1")); heading != "Overview" {
		t.Errorf("the heading is %q", heading)
	}
	if worker := browser.Run(p, chromedp.Evaluate[bool]("navigator.serviceWorker.controller !== null")); worker {
		t.Error("a service worker controls the page")
	}
}

// TestBothLoopbackAddresses: a browser may look for the console at ::1 first. Nobody else can be there.
func TestBothLoopbackAddresses(t *testing.T) {
	f := start(t)
	f.stop()
	stop := f.impostor(t, "::1")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, executable, "console", "--port", f.port())
	command.Dir = t.TempDir()
	command.Env = append(os.Environ(), "AzureWebJobsStorage="+f.connection)
	out, err := command.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--port chooses another port") {
		t.Errorf("the console has started: %v\n%s", err, out)
	}
	stop()
	f.serve(t, f.port())
	p := f.browser.Open(t, strings.Replace(f.address, "127.0.0.1", "localhost", 1), browser.Options{})
	if heading := browser.Run(p, text("h1")); heading != "Overview" {
		t.Errorf("the heading is %q", heading)
	}
}

// TestOtherOrigin: a page of another port learns nothing, even if it knows the address.
func TestOtherOrigin(t *testing.T) {
	f := start(t)
	f.scheduled(0, 3)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<h1>another page</h1><iframe src=%q></iframe>", f.address)
	}))
	defer other.Close()
	p := f.browser.Open(t, other.URL, browser.Options{})
	results := browser.Run(p, chromedp.Evaluate[string](fmt.Sprintf(`(async () => {
		const address = %q;
		const read = (options) => fetch(address, options).then((r) => r.text(), () => "refused");
		const load = (name, file) => new Promise((resolve) => {
			const element = document.createElement(name);
			element.onload = () => resolve("loaded");
			element.onerror = () => resolve("refused");
			element.src = address + file;
			document.body.append(element);
		});
		const frame = () => { try { return document.querySelector("iframe").contentDocument?.title ?? "refused"; }
			catch { return "refused"; } };
		return [await read({}), await read({mode: "no-cors"}), await load("script", "refresh.js"),
			await load("img", "icon.svg"), frame()].join(", ");
	})()`, f.address), chromedp.EvalAwaitPromise))
	if want := "refused, refused, refused, refused, refused"; results != want {
		t.Errorf("got %s", results)
	}
}
