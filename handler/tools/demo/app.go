package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/program/demo"
)

// heartbeats is the schedule of AC-monitor, so that the first heartbeat is not awaited for a minute.
const heartbeats = "*/5 * * * * *"

var schedule = regexp.MustCompile(`"schedule": "[^"]*"`)

// stage makes the app folder: to stay, a copy of dist with an early heartbeat, and otherwise the app of the demo.
func (s system) stage(ctx context.Context) error {
	err := errors.Join(os.MkdirAll(s.app, 0o700), os.Symlink(s.executable, filepath.Join(s.app, "async-caller")))
	switch {
	case err != nil:
		return err
	case s.stay:
		return s.copyDist()
	}
	err = demo.WriteApp(s.app)
	if err != nil {
		return err
	}
	err = s.newCheck().Prepare(ctx)
	if err != nil {
		return err
	}
	return s.addPosts()
}

func (s system) copyDist() error {
	err := demo.CopyApp(dist, s.app)
	if err != nil {
		return err
	}
	monitor := filepath.Join(s.app, functionapp.MonitorTimer, "function.json")
	content, err := os.ReadFile(monitor)
	if errors.Is(err, fs.ErrNotExist) { // the user's app has none
		return nil
	}
	if err != nil {
		return err
	}
	content = schedule.ReplaceAll(content, []byte(`"schedule": "`+heartbeats+`"`))
	return os.WriteFile(monitor, content, 0o600)
}
