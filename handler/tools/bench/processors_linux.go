package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// processors are those that this process may use.
func processors() (all []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("asking for this process's processors: %w", err)
	}
	for n := 0; len(all) < set.Count(); n++ {
		if set.IsSet(n) {
			all = append(all, n)
		}
	}
	return all, nil
}

// keepTo keeps this process, and what it starts from now on, to some processors.
func keepTo(some []int) error {
	var set unix.CPUSet
	for _, n := range some {
		set.Set(n)
	}
	const passes = 2 // a thread may have started another one while the first went on
	for range passes {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, thread := range threads {
			id, err := strconv.Atoi(thread.Name())
			if err != nil {
				return err
			}
			if err := unix.SchedSetaffinity(id, &set); err != nil && !errors.Is(err, unix.ESRCH) { // it has ended
				return fmt.Errorf("keeping to processors %v: %w", some, err)
			}
		}
	}
	return nil
}
