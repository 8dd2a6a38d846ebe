package browser_test

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/tools/browser"
)

// TestFaultsOfPagesAreFound: tests of the console rely on it that nothing was found.
func TestFaultsOfPagesAreFound(t *testing.T) {
	const attack = `<script>alert("run")</script>`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/protected" {
			w.Header().Set("Content-Security-Policy", "default-src 'none'")
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(`<!doctype html><html lang="en"><title>A page</title><h1>A page</h1>` + attack))
		if r.URL.Path == "/faulty" {
			_, _ = w.Write([]byte(`<img src="http://foreign.invalid/x.png"><p style="width: 400px">wide</p>
				<script>console.error("bad"); throw new Error("worse")</script>`))
		}
	}))
	t.Cleanup(server.Close)
	chromium := browser.Start(t)

	faulty := chromium.Open(t, server.URL+"/faulty", browser.Options{Width: 390})
	found := faulty.Incidents()
	want := browser.Incidents{Dialogs: []string{"run"}, Foreign: []string{"http://foreign.invalid/x.png"}}
	errors := strings.Join(found.Errors, "\n")
	found.Errors = nil
	if diff := cmp.Diff(want, found); diff != "" || !strings.Contains(errors, "bad") ||
		!strings.Contains(errors, "Error: worse") || !strings.Contains(errors, "ERR_NAME_NOT_RESOLVED") {
		t.Errorf("%s\nerrors: %s", diff, errors)
	}
	if !faulty.Overflows() {
		t.Error("the page does not overflow")
	}
	violations := faulty.Axe()
	if !slices.ContainsFunc(violations, func(v browser.Violation) bool { return v.ID == "image-alt" }) {
		t.Errorf("axe does not find the image without a text: %v", violations)
	}
	faulty.Screenshot(filepath.Join(t.TempDir(), "page.png"))

	protected := chromium.Open(t, server.URL+"/protected", browser.Options{Dark: true})
	if found := protected.Incidents(); len(found.CSP) != 1 || len(found.Dialogs) != 0 || len(found.Errors) != 0 {
		t.Errorf("a blocked script: %+v", found)
	}

	silent := chromium.Open(t, server.URL, browser.Options{NoScript: true})
	_ = silent.Axe()
	if diff := cmp.Diff(browser.Incidents{}, silent.Incidents()); diff != "" {
		t.Error(diff)
	}
}
