//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/tools/testbed"
)

// processes are the handlers of a system. Each adds its process id to a file when it starts.
type processes struct{ file, executable string }

// ids returns the process ids of all handlers that were ever started, oldest first.
func (p *processes) ids() (ids []int) {
	content, _ := os.ReadFile(p.file) // it does not exist before the first start
	for line := range strings.FieldsSeq(string(content)) {
		if id, err := strconv.Atoi(line); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// current returns the process id of the latest handler, and whether it is alive.
func (p *processes) current() (id int, alive bool) {
	ids := p.ids()
	if len(ids) == 0 {
		return 0, false
	}
	id = ids[len(ids)-1]
	return id, p.alive(id)
}

// alive reports whether a process runs and still is a handler.
func (p *processes) alive(id int) bool {
	if syscall.Kill(id, 0) != nil {
		return false
	}
	if _, err := os.Stat("/proc/self/exe"); err != nil {
		return true // no /proc; process ids are not reused that soon
	}
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", id))
	return err == nil && exe == p.executable // a zombie has no executable
}

// killLimit is how long the system may take to end a process that was killed.
const killLimit = 5 * time.Second

// kill kills the current handler and returns when it is dead. It returns false if none was alive.
func (p *processes) kill(ctx context.Context) bool {
	id, alive := p.current()
	if !alive || syscall.Kill(id, syscall.SIGKILL) != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, killLimit)
	defer cancel()
	for p.alive(id) && storage.Sleep(ctx, time.Millisecond) {
	}
	return true
}

// endLimit is how long handlers may live after their host. An orphan checks once a second for its host.
const endLimit = 20 * time.Second

// awaitEnd waits until no handler is alive.
func (p *processes) awaitEnd(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	for _, id := range p.ids() {
		if testbed.Await(ctx, func() bool { return !p.alive(id) }) != nil {
			return fmt.Errorf("the handler with the process id %d is left", id)
		}
	}
	return nil
}
