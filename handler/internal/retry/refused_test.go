package retry_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/retry"
)

func TestNegativeSpecsAreRefused(t *testing.T) {
	for _, spec := range []retry.Spec{
		{BaseDelay: -time.Second},
		{MaxDelay: -time.Second},
		{Schedule: []time.Duration{-1}},
		{Kind: "fixed", BaseDelay: -time.Second},
		{Kind: "cycles", Cycles: retry.CycleSpec{RetryCycleDelay: -time.Second}},
	} {
		if policy, err := spec.Policy(); err == nil {
			shortest, longest := policy.Bounds(1)
			t.Errorf("%+v waits %v to %v", spec, shortest, longest)
		}
	}
}

func TestUnknownParameterIsClipped(t *testing.T) {
	_, err := retry.ParseSpec(json.RawMessage(`{"\u001b[2J` + strings.Repeat("x", 5000) + `":1}`))
	if len(err.Error()) > 300 || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("an error of %d bytes with control characters", len(err.Error()))
	}
}
