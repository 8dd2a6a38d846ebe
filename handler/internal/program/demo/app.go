package demo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/rules/envelope"
)

// priorities is the number of the queues with a priority, beside the standard queue.
const priorities = 10

// functionFile is the name of the file in the folder of a function.
const functionFile = "function.json"

// hostFile is the host.json that we ship.
const hostFile = `{
  "version": "2.0",
  "functionTimeout": "00:05:00",
  "customHandler": {
    "description": {
      "defaultExecutablePath": "async-caller",
      "arguments": ["serve"]
    }
  },
  "extensionBundle": {
    "id": "Microsoft.Azure.Functions.ExtensionBundle",
    "version": "[4.*, 5.0.0)"
  },
  "extensions": {
    "http": {
      "maxConcurrentRequests": 100
    },
    "queues": {
      "batchSize": 32,
      "newBatchThreshold": 224,
      "maxDequeueCount": 5,
      "visibilityTimeout": "00:00:30",
      "maxPollingInterval": "00:00:02",
      "messageEncoding": "base64"
    }
  }
}
`

// timerFile is the function.json of a timer function. It also runs at the start, so that the first heartbeat is not
// awaited.
const timerFile = `{
  "bindings": [
    {
      "type": "timerTrigger",
      "direction": "in",
      "name": "timer",
      "schedule": "%s",
      "runOnStartup": true
    }
  ]
}
`

// WriteApp writes an app folder with the queues and the timer functions that we ship. The folder has no executable.
func WriteApp(folder string) error {
	files := map[string]string{
		"host.json": hostFile,
		filepath.Join(functionapp.MonitorTimer, functionFile): fmt.Sprintf(timerFile, "0 * * * * *"),
		filepath.Join(functionapp.KeeperTimer, functionFile):  fmt.Sprintf(timerFile, "0 0 * * * *"),
	}
	for priority := range priorities + 1 {
		name := "AC-standard"
		if priority > 0 {
			name = fmt.Sprintf("AC-priority%02d", priority)
		}
		files[filepath.Join(name, functionFile)] = functionapp.QueueFile(envelope.QueueFor(priority))
	}
	for name, content := range files {
		path := filepath.Join(folder, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600))
		if err != nil {
			return err
		}
	}
	return nil
}

// CopyApp copies the files of an app folder that the app reads.
func CopyApp(from, to string) error {
	paths := []string{filepath.Join(from, "host.json")} // without it, the folder is no app
	for _, pattern := range []string{"*.json", filepath.Join("*", functionFile)} {
		found, err := filepath.Glob(filepath.Join(from, pattern))
		if err != nil {
			return err
		}
		paths = append(paths, found...)
	}
	for _, path := range paths {
		content, err := os.ReadFile(path) //nolint:gosec // the user names the folder
		if err != nil {
			return err
		}
		copied := filepath.Join(to, strings.TrimPrefix(path, filepath.Clean(from)))
		err = os.MkdirAll(filepath.Dir(copied), 0o700)
		if err != nil {
			return err
		}
		err = os.WriteFile(copied, content, 0o600) //nolint:gosec // the path is below the new folder
		if err != nil {
			return err
		}
	}
	return nil
}
