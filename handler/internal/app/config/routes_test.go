package config_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"asynccaller/handler/internal/app/config"
)

// TestCheckRoutes: start-up reports a difference between routes.json and the functions, with the next step, once.
func TestCheckRoutes(t *testing.T) {
	const host = `{"version": "2.0", "functionTimeout": "00:05:00", "customHandler": {"description": {
		"defaultExecutablePath": "async-caller", "arguments": ["serve"]}}}`
	const routes = `{"orders-in": {"url": "https://shop.example/"}}`
	function := func(queue, dataType string) string {
		return `{"bindings": [{"type": "queueTrigger", "direction": "in", "name": "message", "queueName": "` + queue +
			`", "dataType": "` + dataType + `"}]}`
	}
	orders, asText := function("orders-in", "binary"), function("orders-in", "string")
	returns, disabled := function("returns", "binary"), `{"disabled": true}`
	type functions = map[string]string
	const (
		name     = "AC-route-orders-in"
		missing  = "no function AC-route-orders-in to read the queue: run"
		metadata = `{"orders-in": {"url": "http://169.254.169.254/"}}`
	)
	const (
		posts   = `{"orders-in": {"url": "https://shop.example/", "http": true, "queue": false}}`
		both    = `{"orders-in": {"url": "https://shop.example/", "http": true, "keepHeaders": ["X-Sign"]}}`
		in      = "AC-in-orders-in"
		trigger = `{"bindings": [{"type": "httpTrigger", "direction": "in", "name": "req", "authLevel": "anonymous"},
			{"type": "http", "direction": "out", "name": "res"}]}`
	)
	for test, row := range map[string]struct {
		routes    string
		functions functions
		want      []string // a part of each line
	}{
		"together":    {routes, functions{name: orders}, nil},
		"no_routes":   {"", nil, nil},
		"no_function": {routes, nil, []string{missing}},
		"no_route":    {"", functions{name: orders}, []string{"add the route, or run `async-caller routes sync`"}},
		"wrong_queue": {routes, functions{name: returns}, []string{"has none of this name for its queue returns"}},
		"wrong_name":  {routes, functions{"AC-route-orders": orders}, []string{"AC-route-orders is for", missing}},
		"wrong_case":  {routes, functions{"ac-route-orders-in": orders}, []string{"ac-route-orders-in is for", missing}},
		"wrong_case_without_route": {
			"", functions{"ac-route-orders-in": orders}, []string{"function ac-route-orders-in is for"},
		},
		"text":                    {routes, functions{name: asText}, []string{name + `/function.json: dataType is "string"`}},
		"disabled":                {routes, functions{name: disabled}, nil},
		"disabled_beside_another": {routes, functions{name: disabled, "Orders": orders}, []string{"function Orders reads"}},
		"disabled_without_route":  {"", functions{name: disabled}, nil},
		"invalid": {
			`{"orders-in": {}}`, functions{name: orders}, []string{`routes.json: "orders-in": url: is missing`},
		},
		"refused":      {metadata, functions{name: orders}, []string{`routes.json: "orders-in": url: `}},
		"posts":        {posts, functions{in: trigger}, nil},
		"posts_too":    {both, functions{in: trigger, name: orders}, nil},
		"no_posts":     {both, functions{name: orders}, []string{"no function AC-in-orders-in to take posts: run"}},
		"posts_of_one": {routes, functions{in: trigger, name: orders}, []string{in + " is for posts, but"}},
		"posts_case": {
			posts, functions{"AC-in-Orders-in": trigger}, []string{"AC-in-Orders-in is for posts", "no function " + in},
		},
		"only_posts": {posts, functions{in: trigger, name: orders}, []string{"has none of this name for"}},
		"project":    {routes, functions{"functions/AC-standard": orders, "AC-standard": ""}, nil},
	} {
		t.Run(test, func(t *testing.T) {
			dir := t.TempDir()
			mustWrite(t, dir, "host.json", host)
			if row.routes != "" {
				mustWrite(t, dir, config.RoutesFile, row.routes)
			}
			files := functions{"AC-standard": function("async-caller", "binary")}
			maps.Copy(files, row.functions)
			for name, content := range files {
				if content == "" {
					continue
				}
				if err := os.MkdirAll(filepath.Join(dir, name), 0o750); err != nil {
					t.Fatal(err)
				}
				mustWrite(t, dir, name+"/function.json", content)
			}
			var got []string
			err := config.ReadApp(dir, nil, config.Handler).SettingsErr
			if err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if len(got) != len(row.want) {
				t.Fatalf("got %q, want %q", got, row.want)
			}
			for i, want := range row.want {
				if !strings.Contains(got[i], want) {
					t.Errorf("got %q, want %q", got[i], want)
				}
			}
		})
	}
}

// TestKeptHeaders: a header of a post cannot replace one of targets.json.
func TestKeptHeaders(t *testing.T) {
	dir := t.TempDir()
	mustWrite(t, dir, config.RoutesFile,
		`{"orders-in": {"url": "https://shop.example/", "http": true, "keepHeaders": ["X-Sign", "X-Api-Key"]}}`)
	mustWrite(t, dir, config.TargetsFile, `{"shop.example": {"headers": {"x-api-key": "$SHOP_KEY"}}}`)
	_, err := config.LoadApp(dir, nil, func(string) string { return "secret" })
	want := `routes.json: "orders-in": keepHeaders: targets.json sets X-Api-Key for the target`
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "X-Sign") {
		t.Errorf("error %v, want %s", err, want)
	}
}
