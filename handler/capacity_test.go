package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/rules/retry"
	"asynccaller/handler/internal/rules/targets"
)

// TestPlanningValues computes the table of docs/performance.md, "Instances".
func TestPlanningValues(t *testing.T) {
	host, err := functionapp.LoadHost("..", nil)
	if err != nil {
		t.Fatal(err)
	}
	const perCore, storageSeconds, planned = 280, 0.01, 125 // calls a second; 100 and a quarter to spare
	batch, threshold := host.Queues.BatchSize, host.Queues.NewBatchThreshold
	part, _ := strconv.Atoi(mustMatch(t, read(t, "internal/gates/admission/share.go"), `sharePart = (\d+)`)[0])
	share := func(slots int) int { return (slots + part) / (part + 1) }
	var toMany, toOne []string // instances, by the latency of the targets
	for _, latency := range []float64{0.1, 2, 10, 60} {
		instances := func(calls, polling float64) string {
			return fmt.Sprint(math.Ceil(planned / min(perCore, calls/(latency+storageSeconds+polling))))
		}
		slots := float64(threshold + 1) // in flight when the host polls again, which takes a request for each batch
		toMany = append(toMany, instances(slots, slots*storageSeconds/float64(batch)))
		toOne = append(toOne, instances(float64(share(threshold)), 0))
	}
	attempts := func(outage time.Duration) (calls int) {
		for age := time.Duration(0); age <= outage; age += retry.Default().Delay(calls, 0.5) {
			calls++
		}
		return calls
	}
	toOneAtATime := fmt.Sprintf("%d of each queue, %d in all", share(threshold), share(targets.MaxCalls))
	const day = 24 * time.Hour
	page := read(t, "../docs/performance.md")
	for value, want := range map[string]string{
		"batchSize + newBatchThreshold": fmt.Sprint(batch + threshold),
		"of all queues":                 fmt.Sprint(targets.MaxCalls),
		"to one target":                 toOneAtATime,
		"0.1, 2, 10 or 60 s":            strings.Join(toMany, ", "),
		"the same to one target":        strings.Join(toOne, ", "),
		"without a circuit breaker":     fmt.Sprintf("%d, %d, %d", attempts(time.Hour), attempts(day), attempts(7*day)),
		"in 30 days":                    fmt.Sprintf("%.1f million", float64(30*day/host.Queues.MaxPollingInterval)/1e6),
	} {
		if row := value + " | " + want + " |\n"; !strings.Contains(page, row) {
			t.Errorf("docs/performance.md does not have: %s", row)
		}
	}
}
