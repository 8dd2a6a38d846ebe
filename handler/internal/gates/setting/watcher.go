package setting

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/storage"
)

const (
	// readInterval is the time between the beginnings of two readings, so that a change is noticed within 20 s.
	readInterval = 15 * time.Second
	// readTimeout limits a reading. It is longer than the 5 s that remain: a late setting is better than none.
	readTimeout = 15 * time.Second
	// Notice is how long it takes until the instances of an app have noticed a setting, or its end.
	Notice = 20 * time.Second
)

// Watcher reads the settings of an account for an instance of an app. While the table does not answer, those that are
// known stay in force until they end. It is safe for concurrent use, except that Run is called once, after Read. A nil
// Watcher knows none.
type Watcher struct {
	table storage.Table
	log   zerolog.Logger
	known atomic.Pointer[InForce]
	// isAway says that the latest reading has failed.
	isAway bool
}

// NewWatcher returns a watcher of a table, which is read by [Watcher.Read], and while [Watcher.Run] runs.
func NewWatcher(table storage.Table, log zerolog.Logger) *Watcher {
	return &Watcher{table: table, log: log}
}

// Read reads the settings, within a limited time.
func (w *Watcher) Read(ctx context.Context, limit time.Duration) {
	if w == nil {
		return
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	settings, err := Read(limited, w.table)
	wasAway := w.isAway
	switch {
	case ctx.Err() != nil: // the handler stops
	case err != nil:
		w.isAway = true
		if !wasAway {
			w.log.Warn().Err(err).Msg("settings of targets cannot be read: those that are known stay in force until " +
				"they end, and others are not noticed")
		}
	default:
		w.isAway = false
		w.known.Store(new(Select(settings, time.Now())))
		if wasAway {
			w.log.Info().Msg("settings of targets can be read again")
		}
	}
}

// Run reads the settings until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	if w == nil {
		return
	}
	tick := time.NewTicker(readInterval)
	defer tick.Stop()
	if w.isAway { // the first reading has failed
		w.Read(ctx, readTimeout)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.Read(ctx, readTimeout)
		}
	}
}

// Enter refuses the call to a target that is paused. It gives any other call the profile that is in force, on which the
// gates behind it depend. It implements [delivery.Gate].
func (w *Watcher) Enter(_ context.Context, due *decision.Due) (decision.Pass, *decision.Verdict) {
	known := w.known.Load()
	if known == nil || len(*known) == 0 {
		return nil, nil
	}
	of := known.Of(due.Intake.Call().Target, due.Arrived)
	if pause, isPaused := of[Pause]; isPaused {
		return nil, &decision.Verdict{Refusal: decision.PausedUntil(pause.Until, due.Arrived, due.Jitter)}
	}
	due.Intake.Profile = of.Profile(due.Intake.Profile)
	return nil, nil
}
