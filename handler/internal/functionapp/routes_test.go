package functionapp_test

import (
	"strconv"
	"testing"

	"asynccaller/handler/internal/functionapp"
)

// forwarding returns a valid app with a queue function Work, a timer function Nightly and an HTTP function Open with
// forwarding and the given routePrefix in host.json. Without quotes the prefix is JSON; "-" leaves it out.
func forwarding(t *testing.T, prefix, httpBinding string) files {
	t.Helper()
	host := mustReplace(t, validHost, `"customHandler": {`, `"customHandler": {"enableForwardingHttpRequest": true, `)
	if prefix != "-" {
		host = mustReplace(t, host, `"extensions": {`, `"extensions": {"http": {"routePrefix": `+prefix+`}, `)
	}
	return app(files{
		"host.json": host,
		"Nightly/function.json": function(`{"type":"timerTrigger","direction":"in","name":"timer","schedule":"0 ` +
			`0 0 * * *"}`),
		"Open/function.json": function(httpBinding, `{"type":"http","direction":"out","name":"$return"}`),
	})
}

func httpTrigger(route string) string {
	return `{"type":"httpTrigger","direction":"in","name":"req","authLevel":"anonymous","methods":["get"],"route":` +
		strconv.Quote(route) + `}`
}

// TestForgeableRoutes: an HTTP function whose requests the host forwards must not match the path of a function that
// takes invocations.
func TestForgeableRoutes(t *testing.T) {
	for name, row := range map[string]struct {
		prefix, route string
		refused       bool
	}{
		"catch_all":                   {`""`, "{*rest}", true},
		"catch_all_encoded":           {`""`, "{**rest}", true},
		"catch_all_constrained":       {`""`, "{*rest:regex(^[[a-z]]{{3}}/.*$)}", true},
		"parameter":                   {`""`, "{x}", true},
		"parameter_optional":          {`""`, "{x?}", true},
		"parameter_constrained":       {`""`, "{x:int}", true},
		"parameter_default":           {`""`, "{x=1}", true},
		"slash_in_constraint":         {`""`, "{x:regex(^a/b$)}", true},
		"optional_after_parameter":    {`""`, "{x}/{y?}", true},
		"default_after_parameter":     {`""`, "{x}/{y:int=1}/{*z}", true},
		"catch_all_after_literal":     {`""`, "Work/{*rest}", true},
		"optional_after_other_case":   {`""`, "woRK/{id?}", true},
		"literal":                     {`""`, "Work", true},
		"literal_other_case":          {`""`, "WORK", true},
		"literal_of_the_timer":        {`""`, "nightly", true},
		"leading_slash":               {`""`, "/Work/", true},
		"leading_tilde":               {`""`, "~/Work", true},
		"mixed_prefix":                {`""`, "W{x}", true},
		"mixed_suffix":                {`""`, "{x}rk", true},
		"mixed_both":                  {`""`, "w{x:int}K", true},
		"mixed_parameters":            {`""`, "{x}.{y?}", true},
		"percent_encoded":             {`""`, "W%6Frk", true},
		"setting":                     {`""`, "%ROUTE%", true},
		"prefix_null":                 {`null`, "{*rest}", true},
		"prefix_slash":                {`"/"`, "{*rest}", true},
		"prefix_slashes":              {`"//"`, "/{x}", true},
		"prefix_tilde":                {`"~/"`, "Work", true},
		"prefix_parameter":            {`"{tenant}"`, "{*rest}", true},
		"prefix_is_the_function":      {`"work"`, "{*rest}", true},
		"prefix_catch_all":            {`"{*all}"`, "{x?}", true},
		"default_prefix":              {`-`, "{*rest}", false},
		"prefix":                      {`"v1"`, "{*rest}", false},
		"prefix_two_segments":         {`"/a/b/"`, "{*rest}", false},
		"api_of_ours":                 {`"api"`, "v1/{*path}", false},
		"prefix_parameter_literal":    {`"{tenant}"`, "orders", false},
		"prefix_parameter_parameter":  {`"{tenant}"`, "{x}", false},
		"route_below_the_function":    {`""`, "Work/{id}", false},
		"route_beside_the_function":   {`""`, "Works", false},
		"prefix_of_the_function":      {`""`, "Wor", false},
		"parameter_then_literal":      {`""`, "{x}/orders", false},
		"literal_then_catch_all":      {`""`, "orders/{*rest}", false},
		"mixed_with_another_prefix":   {`""`, "a{x}", false},
		"mixed_with_another_suffix":   {`""`, "{x}.json", false},
		"optional_mixed_after_a_name": {`""`, "Work/v{y?}", false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := functionapp.Load(forwarding(t, row.prefix, httpTrigger(row.route)).write(t), nil)
			if !row.refused {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantProblem(t, err, "Open/function.json: route "+strconv.Quote(row.route), "host.json",
				"customHandler.enableForwardingHttpRequest",
				"extensions.http.routePrefix")
		})
	}
}

// TestForgeableApps: it does not matter how the app turns forwarding on, or where its route comes from.
func TestForgeableApps(t *testing.T) {
	const trigger = `{"type":"httpTrigger","direction":"in","name":"req"}`
	open := forwarding(t, `""`, httpTrigger("{*rest}"))
	with := func(old, replacement string) files {
		changed := app(open)
		changed["host.json"] = mustReplace(t, open["host.json"], old, replacement)
		return changed
	}
	for name, row := range map[string]struct {
		files   files
		environ []string
		want    string // empty: the app is valid
	}{
		"any_case": {
			forwarding(t, `""`, `{"Type":"HTTPTRIGGER","direction":"in","name":"req","Route":"{*rest}"}`),
			nil, "Open/function.json",
		},
		"text":     {with("Request\": true", "Request\": \" True \""), nil, "enableForwardingHttpRequest"},
		"proxying": {with("enableForwarding", "enableProxying"), nil, "enableProxyingHttpRequest"},
		"on_by_variable": {
			with("true", "false"),
			[]string{"AzureFunctionsJobHost__customHandler__enableForwardingHttpRequest=true"},
			"enableForwardingHttpRequest",
		},
		"prefix_by_variable": {
			with(`"routePrefix": ""`, `"routePrefix": "api"`),
			[]string{"AzureFunctionsJobHost__extensions__http__routePrefix="},
			`routePrefix is ""`,
		},
		"off_by_variable": {
			open,
			[]string{"AZUREFUNCTIONSJOBHOST:customHandler:enableForwardingHttpRequest=False"},
			"",
		},
		"given_a_prefix_by_a_variable": {
			open,
			[]string{"AzureFunctionsJobHost__extensions__http__routePrefix=api"},
			"",
		},
		"off": {with("true", "false"), nil, ""},
		"disabled_function": {app(files{
			"host.json":          open["host.json"],
			"Open/function.json": `{"disabled":true,"bindings":[` + trigger + `]}`,
		}), nil, ""},
		"other_trigger": {forwarding(t, `""`,
			`{"type":"blobTrigger","direction":"in","name":"req","route":"{*rest}"}`), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := functionapp.Load(row.files.write(t), row.environ)
			if row.want != "" {
				wantProblem(t, err, row.want)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}
