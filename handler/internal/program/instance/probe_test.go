package instance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/logs"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// failing is an account that refuses every operation.
type failing struct {
	*memory.Queues
	err error
}

func (f failing) Count(context.Context, string) (int, error) { return 0, f.err }

// TestProbe: the line at the start names the cause, and blames the credential only if storage denies access.
func TestProbe(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want []string
	}{
		"denied": {
			fmt.Errorf("count queue: 403: %w", storage.ErrDenied),
			[]string{
				"storage refuses the handler: check the credential in AzureWebJobsStorage", storage.QueueRole,
				storage.TableRole,
			},
		},
		"refused": {
			fmt.Errorf("count queue: 400: %w", storage.ErrRefused),
			[]string{`"storage refuses the handler"`},
		},
		"not_started": {
			fmt.Errorf("count queue: %w", syscall.ECONNREFUSED),
			[]string{"start Azurite with `make azurite`"},
		},
		"away": {
			errors.New("no answer"),
			[]string{"check the account in AzureWebJobsStorage, its firewall and the network"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			probe(t.Context(), failing{memory.New(), test.err}, "async-caller", zerolog.New(&log))
			contains(t, log.String(), append(test.want, `"level":"error"`)...)
			if blamed := strings.Contains(log.String(), "credential"); blamed != (name == "denied") {
				t.Errorf("logged %s", &log)
			}
		})
	}
}

// TestProbeOfMissingQueue: that no sender has created the queue yet is no error, and the line does not look like one.
func TestProbeOfMissingQueue(t *testing.T) {
	var log bytes.Buffer
	probe(t.Context(), memory.New(), "async-caller", logs.New(&log, zerolog.InfoLevel))
	var line map[string]any
	if err := json.Unmarshal(log.Bytes(), &line); err != nil {
		t.Fatalf("%v: %s", err, &log)
	}
	took, _ := line["took"].(float64)
	if line["level"] != "info" || line["error"] != nil || took != math.Trunc(took) {
		t.Errorf("logged %s", &log)
	}
}
