package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/app/functionapp"
)

const (
	// routedQueue is the queue of the demo's route. The target answers its calls by routedScript.
	routedQueue  = "demo-orders"
	routedScript = "503,200"
)

// heartbeats is the schedule of AC-monitor in the demo, so that it need not wait a minute for the first heartbeat.
const heartbeats = "*/5 * * * * *"

// stage makes the app folder, with an early heartbeat: to stay, a copy of dist, and otherwise the part of it that is no
// file of the user, with a route for the demo.
func (s system) stage(ctx context.Context) error {
	functions, err := filepath.Glob(filepath.Join(dist, "*", "function.json"))
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dist, "*.json"))
	if err != nil {
		return err
	}
	for _, path := range append(functions, files...) {
		if !s.stay && isOfUser(path) {
			continue
		}
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
	err = os.Symlink(original, filepath.Join(s.app, filepath.Base(executable)))
	if err != nil || s.stay {
		return err
	}
	return s.addRoute(ctx)
}

// isOfUser reports whether a file of dist is local.settings.json, an optional file, or the function of a route.
func isOfUser(path string) bool {
	name := filepath.Base(path)
	return name == functionapp.LocalSettings || slices.Contains(config.OptionalFiles(), name) ||
		strings.HasPrefix(filepath.Base(filepath.Dir(path)), functionapp.RouteFunction(""))
}

var schedule = regexp.MustCompile(`"schedule": "[^"]*"`)

// addRoute adds the demo's route, and makes its function with the command line as a user would.
func (s system) addRoute(ctx context.Context) error {
	content, err := json.Marshal(map[string]any{routedQueue: map[string]any{
		"url": s.target.URL(routedScript), "retry": map[string]any{"schedule": []string{"1s"}},
	}})
	if err != nil {
		return err
	}
	err = os.WriteFile(filepath.Join(s.app, config.RoutesFile), content, 0o600)
	if err != nil {
		return err
	}
	sync := s.execute(ctx, "routes", "sync")
	if sync.code != exitDone {
		return fmt.Errorf("%s: %s", sync.typed, sync.output)
	}
	return s.store.Create(ctx, routedQueue)
}
