package serve

import (
	"cmp"
	"context"
	"time"

	"asynccaller/handler/internal/admission"
	"asynccaller/handler/internal/logs"

	"github.com/rs/zerolog"
)

// logRefused logs once a minute until ctx ends how many messages the limits of each target rescheduled.
func logRefused(ctx context.Context, gate *admission.Gate, log zerolog.Logger) {
	tick := time.NewTicker(remindEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for refused, messages := range gate.Refused() {
			log.Warn().Str(logs.TargetHost, cmp.Or(refused.Target, "others")).Str(logs.Reason, string(refused.Reason)).
				Str(logs.Detail, refused.Detail).
				Int(logs.Messages, messages).Msg("rescheduled without a call in the last minute")
		}
	}
}
