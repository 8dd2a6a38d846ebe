package functionapp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"asynccaller/handler/internal/plain/bom"
)

// SyncRoutes makes the functions of routes in an app folder, those that read these queues and those that take posts,
// and removes those of other routes. It returns their names. It changes nothing if the folder of such a function has
// anything else than it writes. After an error, or if it is interrupted, it can be called again; until then start-up
// reports the difference.
func SyncRoutes(dir string, queues, posts []string) (made, removed []string, err error) {
	var wanted, stale, complete []string
	for _, queue := range queues {
		wanted = append(wanted, RouteFunction(queue))
	}
	for _, queue := range posts {
		wanted = append(wanted, PostFunction(queue))
	}
	var found problems
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, entry := range entries {
		name := entry.Name()
		if _, isPost := cutPrefixFold(name, postPrefix); !isPost && !isRouteName(name) {
			continue
		}
		isComplete, err := checkWritten(os.DirFS(dir), entry)
		switch {
		case err != nil:
			found.add("%w", err)
		case !slices.Contains(wanted, name):
			stale = append(stale, name)
		case isComplete:
			complete = append(complete, name)
		}
	}
	if len(found) > 0 {
		return nil, nil, errors.Join(found...)
	}
	for _, name := range wanted {
		if slices.Contains(complete, name) {
			continue
		}
		content, _ := routeFile(name)
		err := writeRoute(filepath.Join(dir, name), content)
		if err != nil {
			return made, nil, err
		}
		made = append(made, name)
	}
	for _, name := range stale {
		err := removeRoute(filepath.Join(dir, name))
		if err != nil {
			return made, removed, err
		}
		removed = append(removed, name)
	}
	return made, removed, nil
}

// checkWritten reports whether the function of a route is complete. It returns an error if its folder has anything else
// than SyncRoutes writes. An interrupted run can leave an empty folder, or the beginning of the file.
func checkWritten(root fs.FS, entry fs.DirEntry) (isComplete bool, err error) {
	name := entry.Name()
	other := fmt.Errorf("%s is not a folder as `async-caller routes sync` writes it: "+
		"move it away or delete it, and run the command again", name)
	want, isKnown := routeFile(name)
	if !entry.IsDir() || !isKnown {
		return false, other
	}
	var content []byte
	files, err := fs.ReadDir(root, name)
	for _, file := range files {
		if file.Name() != fileName || !file.Type().IsRegular() {
			return false, other
		}
		content, err = fs.ReadFile(root, path.Join(name, fileName))
	}
	if err == nil {
		content, err = bom.Text(content)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist): // another run removes it at this moment
		return false, nil
	case err == nil && !strings.HasPrefix(want, string(content)):
		return false, other
	}
	return string(content) == want, err
}

// routeFile returns the function.json of the function of a route. It returns false for any other name.
func routeFile(name string) (content string, isKnown bool) {
	if queue, reads := strings.CutPrefix(name, routePrefix); reads {
		return QueueFile(queue), true
	}
	queue, takesPosts := strings.CutPrefix(name, postPrefix)
	return postFile(queue), takesPosts
}

func writeRoute(folder, content string) error {
	err := os.MkdirAll(folder, 0o755) //nolint:gosec // the host may run as another user
	if err != nil {
		return err
	}
	//nolint:gosec // the same
	return os.WriteFile(filepath.Join(folder, fileName), []byte(content), 0o644)
}

// removeRoute removes no file that has come since the folder was checked. Another run may remove the same.
func removeRoute(folder string) error {
	for _, path := range []string{filepath.Join(folder, fileName), folder} {
		err := os.Remove(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// QueueFile returns the function.json of a function that reads a queue, as that of a route.
func QueueFile(queue string) string {
	return fmt.Sprintf(`{
  "bindings": [
    {
      "type": "queueTrigger",
      "direction": "in",
      "name": "message",
      "queueName": "%s",
      "connection": "AzureWebJobsStorage",
      "dataType": "binary"
    }
  ]
}
`, queue)
}

// postFile returns the function.json of the function that takes posts for the route of a queue. Only its keys, the
// app's and the master key can invoke it.
func postFile(queue string) string {
	return fmt.Sprintf(`{
  "bindings": [
    {
      "type": "httpTrigger",
      "direction": "in",
      "name": "req",
      "authLevel": "function",
      "methods": ["post"],
      "route": "in/%s"
    },
    {
      "type": "http",
      "direction": "out",
      "name": "res"
    }
  ]
}
`, queue)
}
