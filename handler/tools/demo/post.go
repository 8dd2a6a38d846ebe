package main

import (
	"context"
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

// addPosts adds a route that takes posts to the app of the demo.
func (s system) addPosts() error {
	routes := fmt.Sprintf(`{%q: {"url": %q, "http": true, "queue": false}}`, postRoute, s.target.URL("200"))
	err := os.WriteFile(filepath.Join(s.app, config.RoutesFile), []byte(routes), 0o600)
	if err != nil {
		return err
	}
	_, _, err = functionapp.SyncRoutes(s.app, nil, []string{postRoute})
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
