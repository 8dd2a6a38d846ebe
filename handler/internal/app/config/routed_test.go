package config

import (
	"slices"
	"testing"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/rules/route"
)

// TestRoutedQueues: a queue is that of a route by its function as well, even if routes.json is invalid.
func TestRoutedQueues(t *testing.T) {
	a := App{
		Settings: Settings{Routes: route.Routes{"no-function": {}, "orders-in": {}}},
		Functions: &functionapp.App{
			Functions: []functionapp.Function{
				{Name: "AC-route-orders-in", Queue: "orders-in"},
				{Name: "AC-route-no-route", Queue: "no-route"},
				{Name: "AC-standard", Queue: "async-caller"},
			},
			Disabled: []string{"AC-route-disabled", "AC-priority-1"},
		},
	}
	got := a.RoutedQueues()
	slices.Sort(got)
	want := []string{"disabled", "no-function", "no-route", "orders-in"}
	if !slices.Equal(slices.Compact(got), want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := (App{}).RoutedQueues(); len(got) > 0 {
		t.Errorf("without an app: %q", got)
	}
}
