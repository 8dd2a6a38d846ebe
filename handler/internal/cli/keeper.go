package cli

import (
	"context"
	"fmt"
	"time"

	"asynccaller/handler/internal/ingress"
	"asynccaller/handler/internal/poison"
	"asynccaller/handler/internal/poison/edit"
	"asynccaller/handler/internal/queue"
)

// keeperName is the timer function that keeps what the host moves to poison queues from expiring.
const keeperName = "AC-poison-keeper"

// keeper returns the work of that function, on the poison queues of the app. It ends before the host would
// kill the handler for it, and when the handler is told to stop; what is left is done at its next time.
func keeper(stopping context.Context, w wiring, store queue.Store) ingress.Task {
	account := poison.Account{
		Store: store,
		Rules: edit.Rules{
			Encoding: w.app.Host.Queues.MessageEncoding,
			Decision: w.settings.Rules(w.policies),
			Targets:  w.settings.Targets,
		},
	}
	var queues []string
	for _, f := range w.app.Functions {
		if name, ok := queue.PoisonName(f.Queue); ok {
			queues = append(queues, name)
		}
	}
	return func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(stopping, cancel)()
		if limit := w.app.Host.FunctionTimeout; limit > 0 {
			var end context.CancelFunc
			ctx, end = context.WithTimeout(ctx, limit-min(limit/4, time.Minute))
			defer end()
		}
		kept, err := account.Keep(ctx, queues)
		if err != nil {
			return "", fmt.Errorf("kept %d messages on poison queues from expiring, then: %w", kept, err)
		}
		return fmt.Sprintf("kept %d messages on poison queues from expiring", kept), nil
	}
}
