package console

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"strings"
	"time"

	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/call"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/storage"
)

const (
	// readTimeout is how long a page may read. A status takes less, even of a large record.
	readTimeout = time.Minute
	// waitTimeout is how long a page may wait for others, and then read.
	waitTimeout = 5 * time.Minute
)

//go:embed templates
var templateFiles embed.FS

//go:embed assets
var assets embed.FS

// page is a page to render.
type page struct {
	// Template is the name of its template, and Title what it is about.
	Template, Title string
	// Status is that of HTTP; 0 means 200.
	Status int
	// ID is the text of the field that looks up a call.
	ID string
	// Run is the same in all pages of a console. Account is the name of the account, Flags are those of [New], and At
	// is when the page was made.
	Run     string
	Account string
	Flags   string
	At      time.Time
	// Data is what the template shows.
	Data any
}

// problemData is what a page shows that only says why there is no other.
type problemData struct {
	Title   string
	Lines   []string
	Command string
}

// problemError is why there is no page, and the command that says more.
type problemError struct {
	title   string
	status  int
	command string
	err     error
}

func (p *problemError) Error() string { return p.err.Error() }
func (p *problemError) Unwrap() error { return p.err }

// templates are those of each page, with the layout.
type templates map[string]*template.Template

func newTemplates() templates {
	functions := template.FuncMap{
		"ago":     func(at time.Time) string { return format.AgeAt(at, time.Now()) },
		"badge":   newBadge,
		"cause":   func(t sight.Target) string { return call.CauseText(t, time.Now()) },
		"command": func(command string) string { return "async-caller " + command },
		"fromNow": func(at time.Time) string { return format.FromNow(at, time.Now()) },
		"known":   known,
		"moment":  format.Moment,
		"next":    func(at time.Time) string { return nextText(at, time.Now()) },
		"number":  format.Number,
		"plural":  format.Plural,
		"short":   func(id string) string { return text.Clip(id, 8) },
	}
	all := templates{}
	shared := template.Must(template.New("").Funcs(functions).ParseFS(templateFiles, "templates/layout.html"))
	for _, name := range []string{"overview", "target", "groups", "call", "calls", "runs", "problem"} {
		own := template.Must(shared.Clone())
		all[name] = template.Must(own.ParseFS(templateFiles, "templates/"+name+".html"))
	}
	return all
}

// known returns a number, or that it is unknown.
func known(n *int) string {
	if n == nil {
		return "unknown"
	}
	return format.Number(*n)
}

// nextText says when the next message is due. Those for a target that is paused without an end are not.
func nextText(next, now time.Time) string {
	switch {
	case next.IsZero():
		return "-"
	case !next.Before(storage.NeverExpires):
		return "after the pause"
	case !next.After(now):
		return "due"
	}
	return format.FromNow(next, now)
}

// serve serves a page or a file.
func (c *Console) serve(w http.ResponseWriter, r *http.Request, name string) {
	pages := map[string]func(context.Context, query) (page, error){
		"": c.overview, "target": c.target, "scheduled": c.scheduled, "poison": c.poison, "call": c.call,
		"runs": c.runs,
	}
	read, isPage := pages[name]
	if !isPage {
		serveFile(w, name)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), waitTimeout)
	defer cancel()
	q := query(r.URL.Query())
	p, err := read(ctx, q)
	if err != nil {
		p = problemPage(err)
	}
	p.ID = q.get("id")
	c.write(w, p)
}

// mediaTypes are those of the files that the pages refer to. The tables of some systems have others.
var mediaTypes = map[string]string{
	"style.css": "text/css; charset=utf-8", "refresh.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
}

func serveFile(w http.ResponseWriter, name string) {
	mediaType, isFile := mediaTypes[name]
	if !isFile {
		http.Error(w, "not found: the console has no such page", http.StatusNotFound)
		return
	}
	content, _ := assets.ReadFile("assets/" + name) // it is embedded
	w.Header().Set("Content-Type", mediaType)
	_, _ = w.Write(content) //nolint:gosec // one of our own files, whatever the name is
}

// problemPage returns a page that only says why there is no other.
func problemPage(err error) page {
	p := problemError{"Storage cannot be read", http.StatusServiceUnavailable, "doctor", err}
	if known, isKnown := errors.AsType[*problemError](err); isKnown {
		p = *known
	}
	lines := strings.Split(err.Error(), "\n")
	return page{Template: "problem", Title: p.title, Status: p.status, Data: problemData{p.title, lines, p.command}}
}

func (c *Console) write(w http.ResponseWriter, p page) {
	p.Run, p.Account, p.Flags, p.At = c.run, c.operations.Account.Name, c.flags, time.Now()
	var content bytes.Buffer
	err := c.templates[p.Template].ExecuteTemplate(&content, "layout", p)
	if err != nil {
		http.Error(w, "the page cannot be shown: "+text.Printable(err.Error()), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if p.Status != 0 {
		w.WriteHeader(p.Status)
	}
	// Texts of rows may have characters that are invisible or write backwards.
	_, _ = io.WriteString(w, text.Lines(content.String())) // the browser has gone
}

// status reads the state of the account, and shows it while no other page reads it.
func (c *Console) status(ctx context.Context, show func(account.Status)) error {
	return c.alone(ctx, func(ctx context.Context) error {
		status, err := c.operations.Account.Status(ctx)
		if err == nil {
			show(status)
		}
		return err
	})
}

// alone reads while no other page does, so that many pages take no more memory than one. The time for it begins then.
func (c *Console) alone(ctx context.Context, read func(context.Context) error) error {
	select {
	case c.reading <- struct{}{}:
		defer func() { <-c.reading }()
	case <-ctx.Done():
		return fmt.Errorf("other pages are being read: %w", ctx.Err())
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return read(ctx)
}
