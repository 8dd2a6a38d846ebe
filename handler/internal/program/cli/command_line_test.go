package cli

import "testing"

// TestCommandLine: a command line has what was changed, and no value that may be a secret.
func TestCommandLine(t *testing.T) {
	for want, args := range map[string][]string{
		"poison requeue 4f1c2a9e --canary 3 --dry-run": {
			"poison", "requeue", "4f1c2a9e", "--canary", "3", "--dry-run", "--json",
		},
		"poison requeue --set call.url=… --set … --jq … --text … --all": {
			"poison", "requeue", "--set", "call.url=https://C4nary", "--set", "C4nary", "--jq", ".C4nary",
			"--text", "C4nary", "--all", "--yes",
		},
		"poison requeue --set-header Authorization:… --set-header \"@headers.txt\" --all": {
			"poison", "requeue", "--set-header", "Authorization: C4nary", "--set-header", "@headers.txt", "--all",
		},
		"poison delete --queue \"a-poison,b-poison\" --group 'error=it'\\''s'": {
			"poison", "delete", "--queue", "a-poison,b-poison", "--group", "error=it's", "--app", "x", "--runs", "y",
		},
	} {
		command, rest, err := newRoot(Env{}).Find(args)
		if err != nil {
			t.Fatal(err)
		}
		if err := command.ParseFlags(rest); err != nil {
			t.Fatal(err)
		}
		if got := commandLine(command, command.Flags().Args()); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}
