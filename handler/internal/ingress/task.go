package ingress

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/logs"
)

// Task is the work of one timer function. Its context is that of the host's request: it ends when the host hangs
// up, but not when the handler stops. It carries the invocation's logger. The summary is one printable
// line for the invocation's log; it is ignored if there is an error. The handler logs both, so neither may hold a
// secret.
//
// A task must tolerate interruption: the host runs a failed task at its next time only. One task never runs twice
// at once in one process, but the hosts of two instances may each run it.
type Task func(ctx context.Context) (summary string, err error)

// runMissed says what happens after an invocation of a timer fails.
const runMissed = "the host runs it again at its next time"

// taskHandler runs the task for each invocation. It reads the timer's schedule in the body, so that the connection
// can be reused, and ignores it.
func taskHandler(name string, task Task, log zerolog.Logger) http.HandlerFunc {
	var running sync.Mutex
	return func(w http.ResponseWriter, r *http.Request) {
		log := log.With().Str(logs.InvocationID, r.Header.Get(invocationHeader)).Str(logs.Function, name).Logger()
		invocation{w, r, log, nil, runMissed}.serve(r.Context(), func(ctx context.Context, body io.Reader) (answer, error) {
			if _, err := io.Copy(io.Discard, body); err != nil {
				return answer{}, err
			}
			if !running.TryLock() {
				// This is no failure: the work is in progress.
				log.Warn().Msg("task not started: a run is in progress")
				return answer{code: http.StatusOK, Logs: []string{"not started: a run is in progress"}}, nil
			}
			defer running.Unlock()
			return runTask(log.WithContext(ctx), task, &log), nil
		})
	}
}

func runTask(ctx context.Context, task Task, log *zerolog.Logger) answer {
	begin := time.Now()
	summary, err := task(ctx)
	took := time.Since(begin)
	if err != nil {
		log.Error().Err(err).Dur(logs.Took, took).Msg("task failed: " + runMissed)
		return answer{code: http.StatusInternalServerError, Error: err.Error()}
	}
	summary = cmp.Or(summary, "done")
	log.Info().Str(logs.Detail, summary).Dur(logs.Took, took).Msg("task done")
	return answer{code: http.StatusOK, Logs: []string{summary}}
}
