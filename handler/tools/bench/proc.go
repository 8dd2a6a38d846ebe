package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is the unit of CPU times in /proc: USER_HZ, which is 100 on every Linux.
const ticksPerSecond = 100

// errNoProc says that the system does not tell about processes: what is not Linux.
var errNoProc = errors.New("the system has no /proc")

// readProc reads a file of a process. Where there is no /proc the error is errNoProc.
func readProc(id, file string) (string, error) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		return "", errNoProc
	}
	content, err := os.ReadFile("/proc/" + id + "/" + file)
	return string(content), err
}

// cpuTime is the CPU time that the process has used so far, to a hundredth of a second.
func cpuTime(id string) (time.Duration, error) {
	stat, err := readProc(id, "stat")
	if err != nil {
		return 0, err
	}
	return parseCPU(stat)
}

// parseCPU reads user and system time in /proc/<id>/stat. The name of the program, which may hold anything,
// ends at the last parenthesis.
func parseCPU(stat string) (time.Duration, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const user, system = 11, 12 // fields 14 and 15 of the whole line
	if len(fields) <= system {
		return 0, errors.New("/proc/<id>/stat: too short")
	}
	var ticks int64
	for _, field := range []string{fields[user], fields[system]} {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/<id>/stat: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}

// memory is what a process has in memory, in bytes: now, and the most so far.
func memory(id string) (now, peak int64, err error) {
	status, err := readProc(id, "status")
	if err != nil {
		return 0, 0, err
	}
	if now, err = parseKiB(status, "VmRSS:"); err != nil {
		return 0, 0, err
	}
	peak, err = parseKiB(status, "VmHWM:")
	return now, peak, err
}

// parseKiB reads a line of /proc/<id>/status, in bytes.
func parseKiB(status, name string) (int64, error) {
	for line := range strings.Lines(status) {
		value, ok := strings.CutPrefix(line, name)
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/<id>/status: %s %w", name, err)
		}
		return kib << 10, nil
	}
	return 0, fmt.Errorf("/proc/<id>/status: no %s", name)
}

// parseFiles reads in /proc/<id>/limits how many files a process may have open.
func parseFiles(limits string) (int, error) {
	for line := range strings.Lines(limits) {
		value, ok := strings.CutPrefix(line, "Max open files")
		if !ok {
			continue
		}
		fields := strings.Fields(value)
		switch {
		case len(fields) == 0:
		case fields[0] == "unlimited":
			return math.MaxInt32, nil
		default:
			return strconv.Atoi(fields[0])
		}
	}
	return 0, errors.New("/proc/<id>/limits: no line of open files")
}

// parseWaiting reads in /proc/<id>/net/tcp how many bytes wait between a server on this machine, which
// listens on the port, and its clients: sent by the server and not read yet.
func parseWaiting(sockets string, port int) (bytes int64, err error) {
	for line := range strings.Lines(sockets) {
		const local, remote, queues = 1, 2, 4
		fields := strings.Fields(line)
		if len(fields) <= queues || fields[local] == "local_address" {
			continue
		}
		sent, received, _ := strings.Cut(fields[queues], ":")
		for address, waiting := range map[string]string{fields[local]: sent, fields[remote]: received} {
			if !strings.HasSuffix(address, fmt.Sprintf(":%04X", port)) {
				continue
			}
			n, err := strconv.ParseInt(waiting, 16, 64)
			if err != nil {
				return 0, fmt.Errorf("/proc/<id>/net/tcp: %w", err)
			}
			bytes += n
		}
	}
	return bytes, nil
}
