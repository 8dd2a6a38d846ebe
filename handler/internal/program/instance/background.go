package instance

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/deliver/logs"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
)

// startBackground starts what runs beside the invocations until ctx ends. The caller waits for it.
func (c Config) startBackground(ctx context.Context, refusals *Refusals, log zerolog.Logger) *sync.WaitGroup {
	var background sync.WaitGroup
	whyIdle := c.App.Functions.WhyIdle(c.App.Environ)
	switch {
	case c.InHoldMode():
		background.Go(func() { remind(ctx, func() { c.logHold(log) }) })
	case whyIdle != "":
		background.Go(func() { remind(ctx, func() { logIdle(whyIdle, log) }) })
	}
	background.Go(func() { refusals.run(ctx, log) })
	if functions := c.App.Functions.Functions; len(functions) > 0 {
		ofAccount := log.With().Str(logs.Account, c.App.Connection.Account()).Logger()
		background.Go(func() { probe(ctx, c.Store, functions[0].Queue, ofAccount) })
	}
	return &background
}

// remindEvery is the interval between two lines about hold mode, and about limits.
const remindEvery = time.Minute

// remind writes a line of the log until ctx ends: at once, and then once a minute.
func remind(ctx context.Context, write func()) {
	write()
	for storage.Sleep(ctx, remindEvery) {
		write()
	}
}

// logHold logs that the handler is in hold mode, and why.
func (c Config) logHold(log zerolog.Logger) {
	where := "go back to their queues"
	if c.Adapter == heartbeat.Worker {
		where = "stay on their queues"
	}
	log.Error().Str(zerolog.ErrorFieldName, oneLine(c.App.SettingsErr)).
		Msg("hold mode: no calls are made, and messages " + where +
			", until the settings are corrected and the app is restarted")
}

// logIdle logs that the host passes no messages to the handler, and why.
func logIdle(why string, log zerolog.Logger) {
	log.Error().Str(zerolog.ErrorFieldName, why).
		Msg("no calls are made, and messages wait on their queues, until a queue function runs again")
}

// oneLine returns the text of an error, which may join several, as one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// probeTimeout is longer than the time in which a managed identity or a developer's account gets its first token.
const probeTimeout = 30 * time.Second

// probe asks storage once for a queue and logs the result. Wrong settings then show at the start and not when the first
// message cannot be settled. It also gets the first token and opens the first connection.
func probe(ctx context.Context, store storage.Queues, name string, log zerolog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	begin := time.Now()
	_, err := store.Count(ctx, name)
	advice := azure.Advice(err, azure.Roles)
	level := zerolog.ErrorLevel
	var text string
	switch {
	case err == nil:
		level, text = zerolog.InfoLevel, "storage answers"
	case errors.Is(err, storage.ErrNoQueue):
		level, text = zerolog.InfoLevel, "storage answers; the queue does not exist until a sender creates it"
		err = nil
	case errors.Is(err, storage.ErrRefused):
		text = strings.TrimSuffix("storage refuses the handler: "+advice, ": ")
	case errors.Is(ctx.Err(), context.Canceled):
		return // the handler stops
	default:
		const checks = "check the account in " + storage.ConnectionName + ", its firewall and the network"
		text = "storage does not answer: " + cmp.Or(advice, checks) +
			"; a message that cannot be written stays with the host"
	}
	log.WithLevel(level).Err(err).Str(logs.Queue, name).Int64(logs.Took, logs.Millis(time.Since(begin))).Msg(text)
}
