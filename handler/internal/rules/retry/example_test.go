package retry_test

import (
	"fmt"
	"time"

	"asynccaller/handler/internal/rules/retry"
)

// The operator's own policies are in retry.json; an envelope chooses one by name, or states parameters.
func ExamplePolicies_Parse() {
	own, err := retry.ParsePolicies([]byte(`{"patient": {"baseDelay": "1m", "factor": 3, "maxDelay": "24h"}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, member := range []string{`"patient"`, `{"schedule": ["5s", "1m"], "maxAttempts": 4}`, `"cycles"`, `{"factor": 0.5}`} {
		policy, err := own.Parse([]byte(member))
		if err != nil {
			fmt.Println(err)
			continue
		}
		shortest, longest := policy.Bounds(1)
		fmt.Printf("%s waits %v to %v after attempt 1, at most %d calls\n", policy.Name, shortest, longest, policy.MaxAttempts)
	}
	// Output:
	// patient waits 48s to 1m12s after attempt 1, at most 0 calls
	// list waits 5s to 5s after attempt 1, at most 4 calls
	// cycles waits 0s to 0s after attempt 1, at most 18 calls
	// factor: want a number of at least 1: waits never get shorter
}

// The operator's limits change what an envelope asks for.
func ExamplePolicy_Within() {
	policy := retry.Default().Within(retry.Limits{MinDelay: 10 * time.Second, MaxAttempts: 5})
	fmt.Println(policy.Delay(1, 0.5), policy.Delay(2, 0.5), policy.Exhausted(5))
	fmt.Println(policy.Limited)
	// Output:
	// 10s 10s true
	// delays of at least 10s, at most 5 attempts
}
