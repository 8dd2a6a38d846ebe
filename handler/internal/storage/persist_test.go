package storage_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/storage"
)

// TestPersistExplains: a try that the end of the time cuts off does not hide what storage answered before. Without an
// answer, the error says that there was none.
func TestPersistExplains(t *testing.T) {
	refused := errors.New("503 ServerBusy")
	for name, test := range map[string]struct{ answer, want error }{
		"answered": {refused, refused},
		"silent":   {nil, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				err := storage.Persist(ctx, time.Minute, func(ctx context.Context) error {
					if test.answer != nil && time.Since(midnight) < 5*time.Second {
						return test.answer
					}
					<-ctx.Done()
					return ctx.Err()
				})
				if !errors.Is(err, test.want) {
					t.Errorf("%v, want %v", err, test.want)
				}
			})
		})
	}
}

// midnight is when the clock of a synctest bubble begins.
var midnight = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)
