package serve

import (
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const (
	// memoryShare is the part of the container's or machine's memory beyond which garbage is collected at
	// any price. The Functions host has the rest: it shares the container with us.
	memoryShare = 0.5
	// gcPercent lets the heap grow to five times what is alive before garbage is collected, which is seldom
	// much: messages are small and gone at once. The limit above bounds it.
	gcPercent = 400
)

// TuneMemory trades memory that nobody uses for time that the garbage collector needs. It leaves alone what
// the operator has set: GOGC and GOMEMLIMIT of the Go runtime. It returns the limit in bytes, 0 where none was
// set because no limit of the memory is known; then nothing is tuned at all.
func TuneMemory(getenv func(string) string) (limit int64) {
	if getenv("GOMEMLIMIT") != "" {
		return 0
	}
	limit, err := memlimit.Set(
		memlimit.WithRatio(memoryShare),
		memlimit.WithProvider(memory),
	)
	if err != nil || limit <= 0 {
		return 0
	}
	if getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	return limit
}

// memory is the container's or, where that has no lower limit, the machine's, in bytes.
func memory() (uint64, error) {
	container, err := memlimit.FromCgroup()
	if err != nil {
		return memlimit.FromSystem()
	}
	if machine, err := memlimit.FromSystem(); err == nil {
		container = min(container, machine)
	}
	return container, nil
}
