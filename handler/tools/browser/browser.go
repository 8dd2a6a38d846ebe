// Package browser opens pages in headless Chromium for tests: it records what a page must not do, and finds faults of
// accessibility with axe-core, which the Makefile installs in this package's folder.
package browser

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

const (
	// limit is how long Chromium may take to start, and to run one action. It is far longer than either takes, because
	// other tests run on the same processors.
	limit = 60 * time.Second
	// stopGrace is how long Chromium may take to end before it is killed.
	stopGrace = 10 * time.Second
)

// Browser is a running Chromium.
type Browser struct {
	open func(...chromedp.ContextOption) (context.Context, context.CancelFunc)
}

// Start starts Chromium with an empty profile, and stops it at the end of the test. It resolves no names but
// localhost and those below it, so a page can reach nothing but this machine.
func Start(t *testing.T) *Browser {
	t.Helper()
	home := t.TempDir() // it is removed after the clean-up below
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(find(t)), chromedp.Env("HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("no-pings", true),
		chromedp.Flag("host-resolver-rules",
			"MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost, EXCLUDE *.localhost"),
	}
	if _, err := os.Stat("/.dockerenv"); err == nil || os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Docker denies users the namespaces of a sandbox
	}
	// The test's own context ends before the clean-up, and Chromium would be killed.
	ctx, kill := chromedp.NewContext(context.WithoutCancel(t.Context()), chromedp.WithAllocatorOptions(options...))
	t.Cleanup(func() {
		stop, cancel := context.WithTimeout(ctx, stopGrace)
		defer cancel()
		_ = chromedp.Cancel(stop) // if it fails, kill ends Chromium
		kill()
	})
	begin(ctx, t, kill)
	return &Browser{open: func(options ...chromedp.ContextOption) (context.Context, context.CancelFunc) {
		return chromedp.NewContext(ctx, options...)
	}}
}

// begin starts Chromium, or opens a tab in it. Either ends with the context of its start, so that has no deadline.
func begin(ctx context.Context, t *testing.T, end func()) {
	t.Helper()
	defer time.AfterFunc(limit, end).Stop()
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start Chromium, or open a tab: %v", err)
	}
}

// find returns the path of Chromium or Chrome.
func find(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("Chromium is missing: install it, for example with `apt-get install chromium`, and put it on the PATH")
	return ""
}

// Options are the conditions under which a page is shown.
type Options struct {
	// Width and Height are the size of the viewport in CSS pixels; 0 means 1280 and 800.
	Width, Height int64
	// Dark emulates the preference for dark colours; otherwise light ones are preferred.
	Dark bool
	// NoScript disables the scripts of the page. Run can evaluate JavaScript nevertheless, but timers do not run.
	NoScript bool
}

// Page is a tab with cookies and storage of its own.
type Page struct {
	t        *testing.T
	origin   string
	noScript bool
	limited  func() (context.Context, context.CancelFunc)

	mu    sync.Mutex
	found Incidents
}

// Incidents are what a page should never cause.
type Incidents struct {
	// Errors are the errors on the console: those that scripts wrote or threw, and resources that failed to load.
	Errors []string
	// CSP are the violations of the Content Security Policy.
	CSP []string
	// Dialogs are the messages of dialogs, such as that of alert, that a script opened. They were dismissed.
	Dialogs []string
	// Foreign are the URLs of requests to another origin than that of the page, whether or not they were blocked.
	Foreign []string
}

// Open opens a URL in a new tab, waits until the page is loaded, and closes the tab at the end of the test.
func (b *Browser) Open(t *testing.T, address string, options Options) *Page {
	t.Helper()
	p := &Page{t: t, origin: origin(address), noScript: options.NoScript}
	var ctx context.Context
	listener := chromedp.WithListener(func(event any) { p.record(ctx, event) })
	ctx, cancel := b.open(chromedp.WithNewBrowserContext(), listener)
	t.Cleanup(cancel)
	p.limited = func() (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, limit) }
	begin(ctx, t, cancel)
	scheme := "light"
	if options.Dark {
		scheme = "dark"
	}
	Run(p, chromedp.EmulateViewport(cmp.Or(options.Width, 1280), cmp.Or(options.Height, 800)))
	Run(p, chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	}))
	p.disableScripts(p.noScript)
	Run(p, chromedp.Navigate(address))
	return p
}

// disableScripts disables or enables the scripts of the page.
func (p *Page) disableScripts(disable bool) {
	p.t.Helper()
	Run(p, chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetScriptExecutionDisabled,
			emulation.SetScriptExecutionDisabledParams{Value: disable})
		return err
	}))
}

// Run runs an action of chromedp on the page and returns its value. The test ends if it fails.
func Run[T any](p *Page, action chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := p.limited()
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		p.t.Fatal(err)
	}
	return value
}

// Incidents returns what has been recorded since the page was opened.
func (p *Page) Incidents() Incidents {
	p.t.Helper()
	Run(p, chromedp.Evaluate[int]("0")) // events of the page arrive before the answer
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.found
}

// record adds an event of the tab to the incidents. It must not wait for the tab, which waits for it.
func (p *Page) record(ctx context.Context, event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := &p.found
	switch event := event.(type) {
	case *log.EventEntryAdded:
		text := strings.TrimSpace(event.Entry.Text) + " " + event.Entry.URL
		switch {
		case strings.HasSuffix(event.Entry.URL, "/favicon.ico"): // Chromium asks for it, at any time after loading
		case strings.Contains(text, "Content Security Policy"):
			found.CSP = append(found.CSP, text)
		case event.Entry.Level == log.EntryLevelError:
			found.Errors = append(found.Errors, text)
		}
	case *runtime.EventConsoleAPICalled:
		if event.Type == runtime.ConsoleAPICalledTypeError {
			found.Errors = append(found.Errors, consoleText(event.Args))
		}
	case *runtime.EventExceptionThrown:
		text := event.ExceptionDetails.Text
		if exception := event.ExceptionDetails.Exception; exception != nil {
			text += " " + consoleText([]*runtime.RemoteObject{exception})
		}
		found.Errors = append(found.Errors, text)
	case *page.EventJavascriptDialogOpening:
		found.Dialogs = append(found.Dialogs, event.Message)
		go func() {
			_, _ = chromedp.Call(ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
		}()
	case *network.EventRequestWillBeSent:
		if address := event.Request.URL; !strings.HasPrefix(address, "data:") && origin(address) != p.origin {
			found.Foreign = append(found.Foreign, address)
		}
	}
}

// consoleText returns values of JavaScript in one line.
func consoleText(arguments []*runtime.RemoteObject) string {
	texts := make([]string, len(arguments))
	for i, argument := range arguments {
		texts[i] = cmp.Or(argument.Description, string(argument.Value))
	}
	return strings.Join(texts, " ")
}

// origin returns the scheme and the host of a URL, with the port.
func origin(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	return u.Scheme + "://" + u.Host
}

// Violation is a rule of axe-core that elements of a page break.
type Violation struct {
	ID, Impact, Help string
	// Targets are the selectors of the elements.
	Targets []string
}

// String returns the violation in one line, for a test to print.
func (v Violation) String() string {
	return fmt.Sprintf("%s (%s): %s: %s", v.ID, v.Impact, v.Help, strings.Join(v.Targets, ", "))
}

// Axe returns the faults of accessibility that axe-core finds in the page. The policy of the page does not apply to it.
func (p *Page) Axe() []Violation {
	p.t.Helper()
	p.disableScripts(false) // axe waits for timers; scripts that were not run while the page loaded stay out
	defer p.disableScripts(p.noScript)
	Run(p, chromedp.Evaluate[chromedp.Void](axe(p.t)))
	// With preload, axe would fetch the style sheets again, against the policy.
	return Run(p, chromedp.Evaluate[[]Violation](`axe.run(document, {preload: false, resultTypes: ["violations"]}).
		then(found => found.violations.map(({id, impact, help, nodes}) =>
			({ID: id, Impact: impact, Help: help, Targets: nodes.map(node => node.target.join(" "))})))`,
		chromedp.EvalAwaitPromise))
}

// axe returns the script of axe-core, which is below the working directory or below a parent of it.
func axe(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil && dir != filepath.Dir(dir) {
		path := filepath.Join(dir, "handler", "tools", "browser", "node_modules", "axe-core", "axe.min.js")
		if script, err := os.ReadFile(path); err == nil {
			return string(script)
		}
		dir = filepath.Dir(dir)
	}
	t.Fatal("axe-core is not installed: run `make npm`")
	return ""
}

// Overflows reports whether the page is wider than the viewport, so that a reader has to scroll sideways.
func (p *Page) Overflows() bool {
	p.t.Helper()
	return Run(p, chromedp.Evaluate[bool](
		"document.scrollingElement.scrollWidth > document.documentElement.clientWidth"))
}

// Screenshot writes the whole page to a PNG file.
func (p *Page) Screenshot(path string) {
	p.t.Helper()
	if err := os.WriteFile(path, Run(p, chromedp.FullScreenshot(100)), 0o644); err != nil {
		p.t.Fatal(err)
	}
}
