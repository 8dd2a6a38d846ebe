package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/program/demo/target"
	"asynccaller/handler/internal/storage"
)

const (
	// routedQueue is the queue of the demo's route. The target answers its calls by routedScript.
	routedQueue  = "demo-orders"
	routedScript = "503,200"
	// patience limits the time of each part of a check; the slowest takes about 6 s.
	patience = 50 * time.Second
	// stepEvery is how often a step that takes long says so.
	stepEvery = 5 * time.Second
	// pollInterval is the time between two looks at what becomes of messages.
	pollInterval = 50 * time.Millisecond
)

// ErrEnded means that the app has ended during a check.
var ErrEnded = errors.New("the app has ended")

// Check sends messages to an app that runs, as a user would, and shows what becomes of them. All fields are required.
type Check struct {
	Store  storage.Queues
	Target *target.Target
	// App is the folder of the app, in which the commands run, so that they read no other file of the user.
	App string
	// Executable is that of the commands, and Name how it is printed. Environ is their environment.
	Executable, Name string
	Environ          []string
	// Deadline is that of the message that expires: long enough for two attempts.
	Deadline string
	// Ended is closed when the app has ended.
	Ended <-chan struct{}
	// Stdout gets what happened, and Stderr the progress.
	Stdout, Stderr io.Writer
}

// Prepare adds a route, with its queue, to the app folder. It is called before the app starts.
func (c *Check) Prepare(ctx context.Context) error {
	content, err := json.Marshal(map[string]any{routedQueue: map[string]any{
		"url": c.Target.URL(routedScript), "retry": map[string]any{"schedule": []string{"1s"}},
	}})
	if err != nil {
		return err
	}
	err = os.WriteFile(filepath.Join(c.App, config.RoutesFile), content, 0o600)
	if err != nil {
		return err
	}
	sync := c.execute(ctx, "routes", "sync")
	if sync.code != exitDone {
		return fmt.Errorf("%s: %s", sync.typed, sync.output)
	}
	return c.Store.Create(ctx, routedQueue)
}

// Run sends the messages and shows what happened to each. It returns an error unless all ended as expected.
func (c *Check) Run(ctx context.Context) error {
	err := c.run(ctx)
	if ctx.Err() != nil {
		return errors.New("interrupted: the messages were not awaited")
	}
	return err
}

func (c *Check) run(ctx context.Context) error {
	played := c.step("Sending seven messages that end in different ways")
	rows, err := c.play(ctx)
	played()
	if err != nil {
		return err
	}
	unexpected := report(c.Stdout, rows)
	if unexpected > 0 {
		return fmt.Errorf("%d of %d messages did not end as expected", unexpected, len(rows))
	}
	ranEarly := c.step("Sending a message that waits ten minutes, and making its call now")
	err = c.runEarly(ctx)
	ranEarly()
	if err != nil {
		return err
	}
	defer c.step("Drilling the app")()
	return c.drill(ctx)
}

// step says what the check does, and how long it has been at it, until the returned function is called.
func (c *Check) step(text string) (done func()) {
	fmt.Fprintln(c.Stderr, text, "...")
	ended := make(chan struct{})
	began := time.Now()
	go func() {
		tick := time.NewTicker(stepEvery)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				fmt.Fprintf(c.Stderr, "  ... %.0f s\n", time.Since(began).Seconds())
			}
		}
	}()
	return func() { close(ended) }
}

// hasEnded reports whether the app has ended.
func (c *Check) hasEnded() bool {
	select {
	case <-c.Ended:
		return true
	default:
		return false
	}
}

// await polls until the condition holds. It returns an error if ctx or the app ends first.
func (c *Check) await(ctx context.Context, condition func() bool) error {
	for !condition() {
		switch {
		case c.hasEnded():
			return ErrEnded
		case !storage.Sleep(ctx, pollInterval):
			return context.Cause(ctx)
		}
	}
	return nil
}

// WithoutSettings returns an environment without what the user has set for an app. Windows does not know the letter
// case of names.
func WithoutSettings(environ []string) (kept []string) {
	for _, variable := range environ {
		name, _, _ := strings.Cut(strings.ToUpper(variable), "=")
		isSetting := strings.HasPrefix(name, config.Prefix) || strings.HasPrefix(name, "AZUREWEBJOBS") ||
			strings.HasPrefix(name, "AZUREFUNCTIONSJOBHOST__") || strings.HasPrefix(name, "FUNCTIONS_") ||
			name == "AZURE_FUNCTIONS_ENVIRONMENT"
		if !isSetting {
			kept = append(kept, variable)
		}
	}
	return kept
}
