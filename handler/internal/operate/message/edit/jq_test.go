package edit_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestJQEnds checks that an endless expression is stopped, before or after its first result.
func TestJQEnds(t *testing.T) {
	for name, expression := range map[string]string{
		"before": `last(repeat(.))`, "behind": `., (repeat(.) | select(false))`,
		"range": `first(range(1e18) | select(. < 0))`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each takes all of its two seconds
			got, err := flags(t, "--jq", expression).Apply(t.Context(), []byte(`{"asyncCaller":1}`))
			if err == nil || !strings.Contains(err.Error(), "did not finish within 2s") {
				t.Errorf("got %.100s, %v", got, err)
			}
		})
	}
}

// TestJQCancelled checks that the caller's context stops an expression and is the reported reason.
func TestJQCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cancel()
		_, err := flags(t, "--jq", `last(repeat(.))`).Apply(ctx, []byte(`{"asyncCaller":1}`))
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}
