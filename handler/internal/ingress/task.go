package ingress

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/logs"
)

// Task is the work of one timer function. The context is that of the host's request: it ends when the
// host hangs up, but not when the handler is told to stop. It carries the invocation's logger. The summary
// says on one printable line what was done, and is shown on the invocation; it is lost when there is an
// error. Both are logged and must not hold a secret.
//
// A task must put up with being cut short: no run is made up for before the timer's next time. One task
// never runs twice at a time in one process, but the hosts of two instances may each run it.
type Task func(ctx context.Context) (summary string, err error)

const (
	// runMissed is what follows when an invocation of a timer fails.
	runMissed = "the host runs it again at its next time"
	// nothingToSay is the summary of a task that gives none.
	nothingToSay = "done"
)

// taskHandler runs the task for each invocation. What the host says of the timer's schedule is read, so
// that the connection can be used again, and not looked at.
func taskHandler(name string, task Task, log zerolog.Logger) http.HandlerFunc {
	running := make(chan struct{}, 1)
	return func(w http.ResponseWriter, r *http.Request) {
		log := log.With().Str(logs.InvocationID, header(r, invocationHeader)).Str(logs.Function, name).Logger()
		defer func() {
			if cause := recover(); cause != nil {
				panicked(w, log.Error(), cause, runMissed)
			}
		}()
		if err := checkDoor(r); err != nil {
			refuse(w, log.Error(), http.StatusForbidden, err, runMissed)
			return
		}
		if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxInvocationBytes)); err != nil {
			refuse(w, log.Error(), bodyStatus(err), fmt.Errorf("reading the invocation: %w", err), runMissed)
			return
		}
		select {
		case running <- struct{}{}:
			defer func() { <-running }()
		default:
			// No failure: the work is being done, and whoever watches failures need not come.
			log.Warn().Msg("task not started: a run of it is under way")
			answerLogs(w, http.StatusOK, "not started: a run is under way")
			return
		}
		runTask(log.WithContext(r.Context()), w, task, &log)
	}
}

func runTask(ctx context.Context, w http.ResponseWriter, task Task, log *zerolog.Logger) {
	begin := time.Now()
	summary, err := task(ctx)
	took := time.Since(begin)
	if err != nil {
		log.Error().Err(err).Dur(logs.Took, took).Msg("task failed: " + runMissed)
		answer(w, http.StatusInternalServerError, map[string]string{"error": err.Error()})
		return
	}
	if summary == "" {
		summary = nothingToSay
	}
	log.Info().Str(logs.Detail, summary).Dur(logs.Took, took).Msg("task done")
	answerLogs(w, http.StatusOK, summary)
}
