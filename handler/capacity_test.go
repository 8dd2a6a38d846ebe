package main

import (
	"fmt"
	"math"
	"path/filepath"
	"regexp"
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
	polls := float64(30*day/host.Queues.MaxPollingInterval) / 1e6
	page := read(t, "../docs/performance.md")
	for value, want := range map[string]string{
		"batchSize + newBatchThreshold": fmt.Sprint(batch + threshold),
		"of all queues":                 fmt.Sprint(targets.MaxCalls),
		"to one target":                 toOneAtATime,
		"0.1, 2, 10 or 60 s":            strings.Join(toMany, ", "),
		"the same to one target":        strings.Join(toOne, ", "),
		"without a circuit breaker":     fmt.Sprintf("%d, %d, %d", attempts(time.Hour), attempts(day), attempts(7*day)),
		"in 30 days":                    fmt.Sprintf("%.1f million", polls),
	} {
		if row := value + " | " + want + " |\n"; !strings.Contains(page, row) {
			t.Errorf("docs/performance.md does not have: %s", row)
		}
	}
}

// TestCosts computes the table of docs/performance.md, "Cost", from list prices of 2025 in US dollars.
func TestCosts(t *testing.T) {
	const (
		month              = 30 * 24 * 3600.0 // seconds
		queueOps, tableOps = 0.4, 0.036       // a million operations
		onDemand, ready    = 26e-6, 4e-6      // a GB-s of Flex Consumption
		endpoint, zone     = 7.3, 0.5
		premium            = 150.0             // an EP1
		idle, active, gib  = 3e-6, 24e-6, 3e-6 // a vCPU-s and a GiB-s of Container Apps
	)
	log := func(messages float64) float64 { // 2.3 KB each; 5 GB are free, and each after them costs 2.3 dollars
		return 2.3 * max(0, messages*30*2.3e-6-5)
	}
	perRule := map[string]float64{"PT5M": 1.5, "PT15M": 0.5, "PT1H": 0.25}
	alerts := 0.0
	for _, every := range group(read(t, "../deploy/alerts.bicep"), `\n    every: '(.*)'`) {
		alerts += perRule[every]
	}
	functions, err := filepath.Glob("../functions/*/function.json")
	if err != nil || len(functions) == 0 {
		t.Fatal(err)
	}
	page := read(t, "../docs/performance.md")
	for what, dollars := range map[string][]float64{
		"Flex Consumption without messages":        {87600 * onDemand},
		"its reads of queues":                      {queueOps},
		"alerts":                                   {alerts},
		"Elastic Premium":                          {premium, 3 * premium},
		"zone redundancy on Flex Consumption":      {float64(len(functions)) * 2 * 2 * month * ready},
		"closed storage account":                   {3 * (endpoint + zone)},
		"closed app":                               {endpoint + zone},
		"a worker without messages":                {month * (idle/2 + gib), month * (active/2 + gib)},
		"polls of one empty queue by one instance": {1.3 * queueOps},
		"log of 10,000, 100,000, 1 or 10 million":  {log(1e4), log(1e5), log(1e6), log(1e7)},
		"a million delivered calls":                {2 * queueOps, 3 * queueOps},
		"history of a million calls: `outcomes`":   {0.05 * tableOps, tableOps},
		"history of a million calls: `check`":      {2 * tableOps},
	} {
		var rounded []string
		for _, d := range dollars {
			unit := math.Pow(10, math.Floor(math.Log10(max(d, 0.001)))-1)
			rounded = append(rounded, strconv.FormatFloat(math.Round(d/unit)*unit, 'g', 5, 64))
		}
		row := regexp.QuoteMeta(what) + `[ ,].* \| ` + regexp.QuoteMeta(strings.Join(rounded, ", ")) + ` \|\n`
		if !regexp.MustCompile(`\n\| ` + row).MatchString(page) {
			t.Errorf("docs/performance.md does not say that %s costs %s", what, strings.Join(rounded, ", "))
		}
	}
}
