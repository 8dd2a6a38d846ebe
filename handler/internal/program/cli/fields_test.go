package cli

import (
	"fmt"
	"testing"

	"asynccaller/handler/internal/operate/account"
)

func TestReasonsText(t *testing.T) {
	many := make([]account.ReasonCount, 1000)
	for i := range many {
		many[i] = account.ReasonCount{Reason: fmt.Sprint("r", i), Count: 1200}
	}
	for want, counts := range map[string][]account.ReasonCount{
		"-":                     nil,
		"rejected 2, expired 1": {{Reason: "rejected", Count: 2}, {Reason: "expired", Count: 1}},
		"r0 1,200, r1 1,200, r2 1,200, r3 1,200, r4 1,200, 995 others": many,
	} {
		if got := reasonsText(counts); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
