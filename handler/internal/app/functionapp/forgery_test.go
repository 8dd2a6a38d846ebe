package functionapp_test

import (
	"strings"
	"testing"

	"asynccaller/handler/internal/app/functionapp"
)

// TestCheckForgeryOfPosts: the functions for posts are HTTP functions, too.
func TestCheckForgeryOfPosts(t *testing.T) {
	dir := app(nil).write(t)
	if _, _, err := functionapp.SyncRoutes(dir, nil, []string{"orders-in"}); err != nil {
		t.Fatal(err)
	}
	for setting, isProblem := range map[string]bool{"false": false, "true": true} {
		loaded, err := functionapp.Load(dir, []string{
			"AzureFunctionsJobHost__customHandler__enableForwardingHttpRequest=" + setting,
		})
		if err != nil || (loaded.CheckForgery() != nil) != isProblem {
			t.Errorf("%s: %v, %v", setting, loaded.CheckForgery(), err)
		}
	}
}

// TestCheckForgery: an HTTP function and a setting with which the host passes its requests on as they are exclude each
// other.
func TestCheckForgery(t *testing.T) {
	const (
		http     = `{"type":"HTTPTrigger","direction":"in","name":"req"},{"type":"http","direction":"out","name":"res"}`
		disabled = `{"disabled":true,"bindings":[` + http + `]}`
		blob     = `{"type":"blobTrigger","direction":"in","name":"b","path":"c/{n}"}`
		setting  = "AzureFunctionsJobHost__customHandler__enableForwardingHttpRequest="
		colons   = "azurefunctionsjobhost:customhandler:ENABLEPROXYINGHTTPREQUEST="
		ofWorker = "AzureFunctionsJobHost__httpWorker__description__a=b"
	)
	handler := func(members string) string { return `"customHandler": {` + members + `, ` }
	top := func(members string) string { return members + `, "customHandler": {` }
	for name, test := range map[string]struct {
		handler string // takes the place of the beginning of customHandler in host.json
		hook    string // function.json of Hook
		setting string
		want    string // in the error
	}{
		"forwarding":     {handler(`"enableForwardingHttpRequest": true`), function(http), "", "enableForwarding"},
		"proxying":       {handler(`"EnableProxyingHttpRequest": "True"`), function(http), "", "enableProxying"},
		"text":           {handler(`"enableForwardingHttpRequest": " TRUE "`), function(http), "", "enableForwarding"},
		"worker":         {top(`"httpWorker": {"description": {"a": "b"}}`), function(http), "", "httpWorker"},
		"setting":        {handler(`"x": 1`), function(http), setting + "true", "Hook/function.json"},
		"setting_colons": {handler(`"x": 1`), function(http), colons + "True", "enableProxyingHttpRequest"},
		"setting_worker": {handler(`"x": 1`), function(http), ofWorker, "httpWorker"},
		"setting_off":    {handler(`"enableForwardingHttpRequest": true`), function(http), setting + "false", ""},
		"off":            {handler(`"enableForwardingHttpRequest": false`), function(http), "", ""},
		"null":           {handler(`"enableForwardingHttpRequest": null`), function(http), "", ""},
		"number":         {handler(`"x": 1`), function(http), setting + "1", ""}, // the host does not start with it
		"neither":        {handler(`"x": 1`), function(http), "", ""},
		"elsewhere":      {top(`"enableForwardingHttpRequest": true`), function(http), "", ""},
		"no_function":    {handler(`"x": 1`), "", setting + "true", ""},
		"disabled":       {handler(`"x": 1`), disabled, setting + "true", ""},
		"blob":           {handler(`"x": 1`), function(blob), setting + "true", ""},
	} {
		t.Run(name, func(t *testing.T) {
			folder := app(files{
				"Hook/function.json": test.hook,
				"host.json":          mustReplace(t, validHost, `"customHandler": {`, test.handler),
			})
			err := folder.mustLoad(t, test.setting).CheckForgery()
			if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}
