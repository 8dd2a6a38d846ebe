package demo

import "testing"

func TestCommandString(t *testing.T) {
	for name, row := range map[string]struct{ output, want string }{
		"silent":     {"", "  $ async-caller x\n"},
		"lines":      {"one\ntwo\n", "  $ async-caller x\n  one\n  two\n"},
		"unfinished": {"one\ntwo", "  $ async-caller x\n  one\n  two\n"},
		"empty_line": {"one\n\ntwo\n", "  $ async-caller x\n  one\n\n  two\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (command{typed: "async-caller x", output: row.output}).String(); got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
}
