package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// memory returns a line of a process's memory in bytes: VmRSS is the resident memory now, VmHWM its peak.
func memory(pid int, line string) (bytes float64, err error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, value, _ := strings.Cut(string(content), line+":")
	_, err = fmt.Sscanf(value, "%g kB", &bytes)
	return bytes * (1 << 10), err
}

// unread returns the number of bytes that a server on a port of this machine has sent and its clients have not read.
func unread(port string) (bytes int64, err error) {
	number, err := strconv.Atoi(port)
	if err != nil {
		return 0, err
	}
	content, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return 0, err
	}
	suffix := fmt.Sprintf(":%04X", number)
	for line := range strings.Lines(string(content)) {
		var slot, local, remote, state string
		var sent, received int64
		if _, err := fmt.Sscanf(line, "%s %s %s %s %x:%x", &slot, &local, &remote, &state, &sent, &received); err != nil {
			continue // the head of the table
		}
		if strings.HasSuffix(local, suffix) {
			bytes += sent
		}
		if strings.HasSuffix(remote, suffix) {
			bytes += received
		}
	}
	return bytes, nil
}

// processors returns the processors that this process may use.
func processors() (all []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("reading the processors of this process: %w", err)
	}
	for n := 0; len(all) < set.Count(); n++ {
		if set.IsSet(n) {
			all = append(all, n)
		}
	}
	return all, nil
}

// keepTo restricts this process, and the processes that it starts from now on, to some processors.
func keepTo(some []int) error {
	var set unix.CPUSet
	for _, n := range some {
		set.Set(n)
	}
	const passes = 2 // a thread may start another one during the first pass
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
			if err := unix.SchedSetaffinity(id, &set); err != nil && !errors.Is(err, unix.ESRCH) { // the thread has ended
				return fmt.Errorf("restricting this process to processors %v: %w", some, err)
			}
		}
	}
	return nil
}

// onProcessors calls do while this process, and what it starts, is restricted to some of its processors.
func onProcessors(some, all []int, do func() error) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(len(some)))
	return errors.Join(keepTo(some), do(), keepTo(all))
}
