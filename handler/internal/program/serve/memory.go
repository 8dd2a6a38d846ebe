package serve

import (
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const (
	// memoryShare is the share of the memory of the container or machine above which the garbage collector works
	// as hard as needed. The Functions host, in the same container, has the rest.
	memoryShare = 0.5
	// gcPercent lets the heap grow to seven times the live data before a collection. The live data is small, because
	// messages are small and short-lived, and the memory limit bounds the heap. A lower value takes more processor
	// time, most of all with large messages.
	gcPercent = 600
)

// tuneMemory makes the garbage collector use free memory to save time. It respects the operator's GOGC and GOMEMLIMIT.
// It returns the memory limit that it set, in bytes. It returns 0 and changes nothing if the operator has set a limit,
// or if the size of the memory is unknown.
func tuneMemory(getenv func(string) string) (limit int64) {
	if getenv("GOMEMLIMIT") != "" {
		return 0
	}
	limit, err := memlimit.Set(memlimit.WithRatio(memoryShare), memlimit.WithProvider(memoryBytes))
	if err != nil || limit <= 0 {
		return 0
	}
	if getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	return limit
}

// memoryBytes returns the memory of the container or, if that is unlimited or larger, of the machine, in bytes.
func memoryBytes() (uint64, error) {
	container, err := memlimit.FromCgroup()
	if err != nil {
		return memlimit.FromSystem()
	}
	if machine, err := memlimit.FromSystem(); err == nil {
		container = min(container, machine)
	}
	return container, nil
}
