package host

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/queue"
)

const (
	// renewalFloor is the shortest wait between two renewals of a lease, for leases of 10 minutes and
	// more.
	renewalFloor = time.Minute
	// storageTimeout bounds one storage operation. Completing a message does not end with the stop of
	// the host, so this is also what a stop may take on top.
	storageTimeout = 15 * time.Second
)

// renewalWait is the wait before the next renewal: half the lease, halved again with every failure down
// to the floor. Section D.4 of the Functions host contract.
func renewalWait(lease, latest time.Duration, failed bool) time.Duration {
	if !failed {
		return lease / 2
	}
	return max(latest/2, min(renewalFloor, lease/10))
}

// renewal keeps a message invisible while it is being worked on.
type renewal struct {
	stop    chan struct{}
	done    chan struct{}
	receipt string // the newest one; of use once done is closed
}

// startRenewal begins to renew the message's lease, until end is called.
func startRenewal(ctx context.Context, store queue.Store, queueName string, msg queue.Message, lease time.Duration, log zerolog.Logger) *renewal {
	r := &renewal{stop: make(chan struct{}), done: make(chan struct{}), receipt: msg.PopReceipt}
	go func() {
		defer close(r.done)
		wait := renewalWait(lease, 0, false)
		for pause(wait, r.stop) {
			err := r.renew(ctx, store, queueName, msg, lease)
			if errors.Is(err, queue.ErrStale) || errors.Is(err, queue.ErrNoQueue) {
				log.Debug().Msg("message is no longer ours: lease not renewed")
				return
			}
			if err != nil {
				log.Warn().Err(err).Msg("lease not renewed")
			}
			wait = renewalWait(lease, wait, err != nil)
		}
	}()
	return r
}

// renew is not broken off when the invocation ends: a renewal that storage has done without our
// learning the new receipt would make the message undeletable.
func (r *renewal) renew(ctx context.Context, store queue.Store, queueName string, msg queue.Message, lease time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storageTimeout)
	defer cancel()
	receipt, err := store.Update(ctx, queueName, msg.ID, r.receipt, msg.Text, lease)
	if err != nil {
		return err
	}
	r.receipt = receipt
	return nil
}

// end stops the renewal and returns the newest receipt.
func (r *renewal) end() string {
	close(r.stop)
	<-r.done
	return r.receipt
}
