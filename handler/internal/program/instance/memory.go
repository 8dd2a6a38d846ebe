package instance

import (
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const (
	// gcPercent lets the heap grow to seven times the live data before a collection. The live data is small, because
	// messages are small and short-lived, and the memory limit bounds the heap. A lower value takes more processor
	// time, most of all with large messages.
	gcPercent = 600
)

// TuneMemory makes the garbage collector use free memory to save time, and work as hard as needed above a share of the
// memory of the container or machine. It respects the operator's GOGC and GOMEMLIMIT.
// It returns the memory limit that it set, in bytes. It returns 0 and changes nothing if the operator has set a limit,
// or if the size of the memory is unknown.
func TuneMemory(getenv func(string) string, share float64) (limit int64) {
	if getenv("GOMEMLIMIT") != "" {
		return 0
	}
	limit, err := memlimit.Set(memlimit.WithRatio(share), memlimit.WithProvider(memoryBytes))
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
