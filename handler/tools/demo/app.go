package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"asynccaller/handler/internal/bom"
	"asynccaller/handler/internal/config"
	"asynccaller/handler/internal/functionapp"
)

const (
	// routedQueue is the queue of the route that the demo adds to those of the project. The target answers its calls by
	// routedScript.
	routedQueue  = "demo-orders"
	routedScript = "503,200"
)

// heartbeats is the schedule of AC-monitor in the demo, so that it need not wait a minute for the first heartbeat.
const heartbeats = "*/5 * * * * *"

// stage makes an app folder: that of dist, with a route for the demo and an early heartbeat.
func (s system) stage(ctx context.Context) error {
	paths, err := filepath.Glob(filepath.Join(dist, "*", "function.json"))
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dist, "*.json"))
	if err != nil {
		return err
	}
	for _, path := range append(paths, files...) {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if filepath.Base(filepath.Dir(path)) == functionapp.MonitorTimer {
			content = schedule.ReplaceAll(content, []byte(`"schedule": "`+heartbeats+`"`))
		}
		copied := filepath.Join(s.app, strings.TrimPrefix(path, dist))
		err = errors.Join(os.MkdirAll(filepath.Dir(copied), 0o700), os.WriteFile(copied, content, 0o600))
		if err != nil {
			return err
		}
	}
	original, err := filepath.Abs(executable)
	if err != nil {
		return err
	}
	return errors.Join(os.Symlink(original, filepath.Join(s.app, filepath.Base(executable))), s.addRoute(ctx))
}

var schedule = regexp.MustCompile(`"schedule": "[^"]*"`)

// addRoute adds the demo's route, and makes its function with the command line as a user would.
func (s system) addRoute(ctx context.Context) error {
	routes := map[string]any{}
	path := filepath.Join(s.app, config.RoutesFile)
	content, err := os.ReadFile(path)
	if err == nil {
		content, err = bom.Text(content)
	}
	if err == nil {
		err = json.Unmarshal(content, &routes)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", config.RoutesFile, err)
	}
	routes[routedQueue] = map[string]any{
		"url": s.target.URL(routedScript), "retry": map[string]any{"schedule": []string{"1s"}},
	}
	content, err = json.Marshal(routes)
	if err != nil {
		return err
	}
	err = os.WriteFile(path, content, 0o600)
	if err != nil {
		return err
	}
	sync := s.execute(ctx, "routes", "sync", "--app", s.app)
	if sync.code != exitDone {
		return fmt.Errorf("%s: %s", sync.typed, sync.output)
	}
	return s.store.Create(ctx, routedQueue)
}
