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
	orders := function("orders-in", "binary")
	for name, row := range map[string]struct {
		files map[string]string
		want  []string // a part of each line
	}{
		"together":  {map[string]string{"routes.json": routes, "AC-route-orders-in": orders}, nil},
		"no_routes": {nil, nil},
		"no_function": {
			map[string]string{"routes.json": routes},
			[]string{"no function AC-route-orders-in to read the queue: run"},
		},
		"no_route": {
			map[string]string{"AC-route-orders-in": orders},
			[]string{"add the route, or run `async-caller routes sync`"},
		},
		"wrong_queue": {
			map[string]string{"routes.json": routes, "AC-route-orders-in": function("returns", "binary")},
			[]string{"AC-route-orders-in is for a route, but routes.json has none of this name for its queue returns"},
		},
		"wrong_name": {
			map[string]string{"routes.json": routes, "AC-route-orders": orders},
			[]string{"function AC-route-orders is for", "no function AC-route-orders-in"},
		},
		"wrong_case": {
			map[string]string{"routes.json": routes, "ac-ROUTE-orders-in": orders},
			[]string{"function ac-ROUTE-orders-in is for", "no function AC-route-orders-in"},
		},
		"wrong_case_without_route": {
			map[string]string{"ac-route-orders-in": orders}, []string{"function ac-route-orders-in is for"},
		},
		"text": {
			map[string]string{"routes.json": routes, "AC-route-orders-in": function("orders-in", "string")},
			[]string{`AC-route-orders-in/function.json: dataType is "string": set "binary"`},
		},
		"disabled": {map[string]string{"routes.json": routes, "AC-route-orders-in": `{"disabled": true}`}, nil},
		"disabled_beside_another": {
			map[string]string{"routes.json": routes, "AC-route-orders-in": `{"disabled": true}`, "Orders": orders},
			[]string{`"orders-in": function Orders reads envelopes from this queue: delete its folder`},
		},
		"disabled_without_route": {map[string]string{"AC-route-orders-in": `{"disabled": true}`}, nil},
		"invalid": {
			map[string]string{"routes.json": `{"orders-in": {}}`, "AC-route-orders-in": orders},
			[]string{`routes.json: "orders-in": url: is missing`},
		},
		"refused": {
			map[string]string{
				"routes.json": `{"orders-in": {"url": "http://169.254.169.254/"}}`, "AC-route-orders-in": orders,
			},
			[]string{`routes.json: "orders-in": url: `},
		},
		"project": {map[string]string{"routes.json": routes, "functions/AC-standard": orders, "AC-standard": ""}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			files := map[string]string{"host.json": host, "AC-standard": function("async-caller", "binary")}
			maps.Copy(files, row.files)
			for name, content := range files {
				path := filepath.Join(dir, name)
				if !strings.HasSuffix(name, ".json") {
					path = filepath.Join(path, "function.json")
				}
				err := os.MkdirAll(filepath.Dir(path), 0o750)
				if err == nil && content != "" {
					err = os.WriteFile(path, []byte(content), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
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
