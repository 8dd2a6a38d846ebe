package cli

import (
	"strings"
	"testing"

	"asynccaller/handler/internal/operate/operation"
)

// TestEraseExitCode: what is left, or could not be read, is not said to be erased.
func TestEraseExitCode(t *testing.T) {
	type place = operation.ErasedPlace
	for name, test := range map[string]struct {
		before, after place
		copies        []string
		code          int
		want          string
	}{
		"all":            {place{Found: 2}, place{Found: 2, Deleted: 2}, nil, exitDone, ""},
		"received_since": {place{Found: 2}, place{Found: 1, Deleted: 1}, nil, exitPartly, "result is not known: 1"},
		"problem":        {place{}, place{Problem: "the table is away"}, nil, exitPartly, "the table is away"},
		"hidden":         {place{}, place{Hidden: 3}, nil, exitPartly, "could not be read: 3 messages invisible"},
		"unsearched":     {place{}, place{Unsearched: 3}, nil, exitPartly, "in an unknown charset): 3 messages"},
		"nothing":        {place{}, place{}, nil, exitNothing, "in test"},
		"journal":        {place{Found: 2}, place{Found: 2, Deleted: 2}, []string{"ONE"}, exitPartly, "ONE"},
		"only_journal": {
			place{},
			place{},
			[]string{"ONE", "TWO"},
			exitPartly,
			"have copies, or cannot be searched: ONE, TWO; `async-caller runs delete RUN`",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestSession(t)
			test.before.Place, test.after.Place = "poison queues", "poison queues"
			places := sinceFound([]operation.ErasedPlace{test.before}, []operation.ErasedPlace{test.after})
			result := erasure{Account: "test", Erased: test.before.Found > 0, Places: places, NotReached: notReached()}
			result.Journals = test.copies
			err := d.endErasure(result, test.before.Found)
			if got := codeOf(err); got != test.code {
				t.Errorf("exit code %d, want %d", got, test.code)
			}
			if err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%q, want %q", err, test.want)
			}
			if !strings.Contains(d.err.String(), "not reached: messages that wait on a main queue") {
				t.Errorf("%s", d.err.String())
			}
		})
	}
}
