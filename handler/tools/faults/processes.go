package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"asynccaller/handler/tools/testbed"
)

// processes are the handlers of a lane: those whose ids are in the file.
type processes struct {
	file, executable string
}

// ids are the process ids of all handlers that were ever started, oldest first.
func (p *processes) ids() (ids []int) {
	content, err := os.ReadFile(p.file)
	if err != nil {
		return nil // none was started
	}
	for line := range strings.FieldsSeq(string(content)) {
		if id, err := strconv.Atoi(line); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// current is the id of the handler that was started last, if it is alive.
func (p *processes) current() (id int, alive bool) {
	ids := p.ids()
	if len(ids) == 0 {
		return 0, false
	}
	id = ids[len(ids)-1]
	return id, p.alive(id)
}

// alive reports whether the id is a handler's that runs, and not somebody else's by now.
func (p *processes) alive(id int) bool {
	if syscall.Kill(id, 0) != nil {
		return false
	}
	if _, err := os.Stat("/proc/self/exe"); err != nil {
		return true // a system that does not tell: ids are not used again that soon
	}
	exe, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(id), "exe"))
	return err == nil && exe == p.executable // one that has ended and was not waited for has none
}

// killLimit is how long the system may take to end a process that was killed.
const killLimit = 5 * time.Second

// kill ends the current handler like a power cut and returns when it is dead. It reports false when
// none was alive.
func (p *processes) kill(ctx context.Context) bool {
	id, alive := p.current()
	if !alive || syscall.Kill(id, syscall.SIGKILL) != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, killLimit)
	defer cancel()
	for p.alive(id) && pause(ctx, time.Millisecond) {
	}
	return true
}

// endLimit is how long handlers may live after their host: an orphan looks for its parent once a second.
const endLimit = 20 * time.Second

// awaitEnd waits until no handler is alive.
func (p *processes) awaitEnd(ctx context.Context) error {
	left := func() (left []int) {
		for _, id := range p.ids() {
			if p.alive(id) {
				left = append(left, id)
			}
		}
		return left
	}
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	if testbed.Await(ctx, func() bool { return len(left()) == 0 }) != nil {
		return fmt.Errorf("handlers are left: processes %v", left())
	}
	return nil
}

// residentBytes is the memory of a process, if the system tells.
func residentBytes(id int) (int64, bool) {
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(id), "status"))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(content)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return kib << 10, err == nil
		}
	}
	return 0, false
}

// pause waits, or less when ctx ends, and reports whether it has not.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
