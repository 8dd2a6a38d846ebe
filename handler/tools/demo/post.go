package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/tools/testbed"
)

// The route to which the demo posts once, the id of the call, and what the local host says about its function.
const (
	postRoute = "posts-in"
	postID    = "post-1"
	ofPosts   = "HTTP function: "
)

// addPosts adds a route that takes posts to the routes of the demo's app.
func (s system) addPosts() error {
	path := filepath.Join(s.app, config.RoutesFile)
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	all := map[string]any{}
	err = json.Unmarshal(content, &all)
	if err != nil {
		return err
	}
	all[postRoute] = map[string]any{"url": s.target.URL("200"), "http": true, "queue": false}
	content, err = json.Marshal(all)
	if err == nil {
		err = os.WriteFile(path, content, 0o600)
	}
	if err != nil {
		return err
	}
	routes, err := config.LoadRoutes(s.app)
	if err != nil {
		return err
	}
	_, _, err = functionapp.SyncRoutes(s.app, routes.Queues(), routes.Posts())
	return err
}

// post posts once, as a program does that knows nothing of queues, and waits for the call.
func (s system) post(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the post was not delivered"))
	defer cancel()
	lines := s.host.Lines(ofPosts)
	if len(lines) == 0 {
		return errors.New("the local host serves no HTTP function")
	}
	url := strings.TrimPrefix(fmt.Sprint(lines[0]["message"]), ofPosts)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("hello"))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "text/plain")
	request.Header.Set("Idempotency-Key", postID)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusAccepted {
		return fmt.Errorf("the post was answered %s", response.Status)
	}
	err = testbed.Await(ctx, func() bool { return len(s.target.Calls(postID)) > 0 })
	if err != nil {
		return context.Cause(ctx)
	}
	fmt.Fprintln(os.Stdout, "A post to a route was answered 202, and the target was called.")
	return nil
}
