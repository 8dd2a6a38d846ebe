package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/cobra"

	"asynccaller/handler/internal/poison"
	"asynccaller/handler/internal/poison/inspect"
)

var atNoon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// parsed is a selection that has read its flags.
func parsed(t *testing.T, args ...string) *selection {
	t.Helper()
	var which selection
	command := &cobra.Command{}
	which.addTo(command)
	if err := command.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return &which
}

func TestSelection(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want poison.Source
	}{
		"nothing": {nil, poison.Source{}},
		"queues": {
			[]string{"--queue", "a-poison,b-poison", "--queue", "c-poison"},
			poison.Source{Queues: []string{"a-poison", "b-poison", "c-poison"}},
		},
		"statuses": {
			[]string{"--status", "503,none", "--status", "429"},
			poison.Source{Filter: inspect.Filter{Statuses: []int{503, 0, 429}}},
		},
		"words": {
			[]string{"--reason", "expired", "--host", "*.example", "--method", "POST", "--request-id", "r1", "--text", "a,b"},
			poison.Source{Filter: inspect.Filter{
				Reasons: []string{"expired"}, Hosts: []string{"*.example"}, Methods: []string{"POST"}, RequestID: "r1", Text: "a,b",
			}},
		},
		"times": {
			[]string{"--since", "2h", "--until", "2026-11-21T11:30:00Z"},
			poison.Source{Filter: inspect.Filter{Since: atNoon.Add(-2 * time.Hour), Until: atNoon.Add(-30 * time.Minute)}},
		},
		"just_now":           {[]string{"--until", "0s"}, poison.Source{Filter: inspect.Filter{Until: atNoon}}},
		"attempts_over_zero": {[]string{"--attempts-over", "0"}, poison.Source{Filter: inspect.Filter{MinAttempts: 1}}},
		"attempts_over":      {[]string{"--attempts-over", "5"}, poison.Source{Filter: inspect.Filter{MinAttempts: 6}}},
		"group": {
			[]string{"--group", "error=a=b"},
			poison.Source{Filter: inspect.Filter{Group: &inspect.Group{By: inspect.ByError, Key: "a=b"}}},
		},
		"bounds": {[]string{"--limit", "3", "--force"}, poison.Source{Limit: 3, Force: true}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parsed(t, test.args...).source(nil, atNoon)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, cmpopts.IgnoreUnexported(poison.Source{}), cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSelectionRefused: what is wrong is named, all of it at once, and ends with the code for wrong usage.
func TestSelectionRefused(t *testing.T) {
	_, err := parsed(t, "--status", "5xx,99", "--since", "soon", "--until", "-1h", "--limit", "-1", "--attempts-over", "-1",
		"--group", "x", "--queue", "UP", "--host", "").source([]string{""}, atNoon)
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{
		`--status: "5xx"`, `--status: "99"`, "--since", "--until", "--limit", "--attempts-over", "--group", "--queue", "--host: is empty", "an id is empty",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %v", part, err)
		}
	}
	if coded, ok := err.(*codeError); !ok || coded.code != exitUsage { //nolint:errorlint // the outermost is meant
		t.Errorf("%#v", err)
	}
}

// TestSelectionOfKeep: a command with the flags of queues alone takes every message on them, those too that
// were never tried.
func TestSelectionOfKeep(t *testing.T) {
	var which selection
	command := &cobra.Command{}
	which.addQueue(command)
	source, err := which.source(nil, atNoon)
	if err != nil || !source.Filter.Match(inspect.Message{}, nil) {
		t.Errorf("%+v, %v", source, err)
	}
}

// TestEverything: nothing said is not taken for everything.
func TestEverything(t *testing.T) {
	for name, test := range map[string]struct {
		args, ids []string
		all, ok   bool
	}{
		"nothing":       {nil, nil, false, false},
		"only_force":    {[]string{"--force"}, nil, false, false},
		"id":            {nil, []string{"r1"}, false, true},
		"filter":        {[]string{"--reason", "expired"}, nil, false, true},
		"queue":         {[]string{"--queue", "a-poison"}, nil, false, true},
		"limit":         {[]string{"--limit", "1"}, nil, false, true},
		"attempts":      {[]string{"--attempts-over", "0"}, nil, false, true},
		"all":           {nil, nil, true, true},
		"all_of_a_kind": {[]string{"--reason", "expired"}, nil, true, true},
		"all_and_id":    {nil, []string{"r1"}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := (&everything{test.all}).check(parsed(t, test.args...), test.ids)
			if (err == nil) != test.ok {
				t.Errorf("%v", err)
			}
		})
	}
}
