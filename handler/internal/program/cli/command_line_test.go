package cli

import "testing"

// TestCommandLine: a command line has what was changed, and no value that may be a secret.
func TestCommandLine(t *testing.T) {
	for want, args := range map[string][]string{
		"calls retry 4f1c2a9e --state poison --canary 3 --dry-run": {
			"calls", "retry", "4f1c2a9e", "--state", "poison", "--canary", "3", "--dry-run", "--json",
		},
		"calls retry --state poison --set call.url=… --set … --jq … --text … --all": {
			"calls", "retry", "--state", "poison", "--set", "call.url=https://C4nary", "--set", "C4nary",
			"--jq", ".C4nary", "--text", "C4nary", "--all", "--yes",
		},
		"calls retry --state poison --set-header Authorization:… --set-header \"@headers.txt\" --all": {
			"calls", "retry", "--state", "poison", "--set-header", "Authorization: C4nary",
			"--set-header", "@headers.txt", "--all",
		},
		"calls delete --state poison --queue \"a-poison,b-poison\" --group 'error=it'\\''s'": {
			"calls", "delete", "--state", "poison", "--queue", "a-poison,b-poison", "--group", "error=it's",
			"--app", "x", "--runs", "y",
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
