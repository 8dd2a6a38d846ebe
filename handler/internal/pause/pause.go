// Package pause has the pauses of targets: operators write their rows, and each instance of an app reads them.
package pause

import (
	"context"
	"errors"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
	"asynccaller/handler/internal/targets"
	"asynccaller/handler/internal/text"
)

// Pause is the row that says that an operator has paused a target: no app of the account calls it.
type Pause struct {
	storage.Key `json:"-"`

	// Host is the target, in the form of [targets.ParseHost]. A host without a port means all ports.
	Host string `json:"host" row:"targetHost"`
	// Since is when the pause began, and Until when it ends; zero means that an operator has to end it.
	Since time.Time `json:"since,omitzero" row:"since"`
	Until time.Time `json:"until,omitzero" row:"until"`
	// By is the user and his machine, and Reason why. Both are what the operator says.
	By     string `json:"by,omitempty" row:"by"`
	Reason string `json:"reason,omitempty" row:"reason"`
	// Problem says why the row is ignored; empty if it is valid. It is not stored.
	Problem string `json:"problem,omitempty"`
}

// Partition is the PartitionKey of the rows of pauses.
const Partition = "pause"

// MaxText limits the texts of a pause, in bytes.
const MaxText = 200

const (
	// maxRead limits the pauses that are read, of those in force and of the others. Anyone who can write to the table
	// can invent some.
	maxRead = 1000
	// maxRemoved is the most rows that a table removes at once.
	maxRemoved = 100
)

// IsInForce reports whether no calls are made because of the pause.
func (p Pause) IsInForce(now time.Time) bool {
	return p.Problem == "" && (p.Until.IsZero() || p.Until.After(now))
}

// Text says since when the target is paused, by whom, until when, and why.
func (p Pause) Text() string {
	text := "since " + p.Since.Format(time.RFC3339)
	if p.By != "" {
		text += " by " + p.By
	}
	if p.Until.IsZero() {
		text += " until it is resumed"
	} else {
		text += " until " + p.Until.Format(time.RFC3339)
	}
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return text
}

func pauseKey(host string) storage.Key {
	return storage.Key{Partition: Partition, ID: rows.KeyOf(host)}
}

// checked returns the pause of a row, which anyone who can write to the table may have written.
func (p Pause) checked() Pause {
	stored := p.Host
	for _, member := range []*string{&p.Host, &p.By, &p.Reason} {
		*member = text.Line(*member, MaxText)
	}
	p.Since, p.Until = p.Since.UTC(), p.Until.UTC()
	host, err := targets.ParseHost(stored)
	isValid := err == nil && host == p.Host && p.ID == rows.KeyOf(host) && !p.Since.IsZero()
	if !isValid {
		p.Host = text.Line(p.ID, MaxText)
		p.Problem = "ignored: invalid"
	}
	return p
}

// Read returns the rows of pauses of an account: at most 1,000 of pauses that are in force, and at most 1,000
// others, which have ended or are invalid.
func Read(ctx context.Context, table storage.Table) (pauses []Pause, err error) {
	now := time.Now()
	inForce, others := 0, 0
	err = rows.List(ctx, table, storage.Query{Partition: Partition}, func(row Pause) error {
		p := row.checked()
		count := &others
		if p.IsInForce(now) {
			count = &inForce
		}
		if *count < maxRead {
			pauses = append(pauses, p)
		}
		*count++
		return nil
	})
	return pauses, err
}

// ErrChanged means that other operators change the same pause at the same time.
var ErrChanged = errors.New("another operator has paused or resumed the target at the same time")

// Write pauses a target, or changes its pause, which then has begun when the earlier one did. It returns the pause
// as it was written. The error is an [ErrChanged] if the pause was changed meanwhile.
func Write(ctx context.Context, table storage.Table, p Pause) (Pause, error) {
	key := pauseKey(p.Host)
	row, found, err := rows.Get[Pause](ctx, table, key.Partition, key.ID)
	if err != nil {
		return p, err
	}
	if earlier := row.checked(); found && earlier.IsInForce(p.Since) {
		p.Since = earlier.Since
	}
	p.Key = key
	p.Version = row.Version
	version, err := rows.Replace(ctx, table, p)
	if err == nil && version == "" {
		err = ErrChanged
	}
	return p, err
}

// Remove ends the pause of a host in the form of [targets.ParseHost]. It reports false if there is none. The error
// is an [ErrChanged] if another operator has changed the pause meanwhile, or paused the host again: he was told
// that it is paused.
func Remove(ctx context.Context, table storage.Table, host string) (p Pause, found bool, err error) {
	key := pauseKey(host)
	row, found, err := rows.Get[Pause](ctx, table, key.Partition, key.ID)
	if err != nil || !found {
		return p, false, err
	}
	p = row.checked()
	err = table.Delete(ctx, []storage.Key{row.Key})
	if err != nil {
		return p, true, err
	}
	_, isBack, err := table.Get(ctx, key.Partition, key.ID)
	if err == nil && isBack {
		err = ErrChanged
	}
	return p, true, err
}

// RemoveEnded removes the rows of pauses that have ended.
func RemoveEnded(ctx context.Context, table storage.Table, pauses []Pause, now time.Time) error {
	var keys []storage.Key
	for _, p := range pauses {
		if p.Problem == "" && !p.IsInForce(now) && len(keys) < maxRemoved {
			keys = append(keys, p.Key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return table.Delete(ctx, keys)
}

// ByHost has the pauses of an account by host.
type ByHost map[string]Pause

// InForce returns those pauses that are in force.
func InForce(pauses []Pause, now time.Time) ByHost {
	paused := ByHost{}
	for _, p := range pauses {
		if p.IsInForce(now) {
			paused[p.Host] = p
		}
	}
	return paused
}

// Of returns the pause of a target that is in force, if there is one.
func (p ByHost) Of(target *url.URL, now time.Time) (pause Pause, isPaused bool) {
	if len(p) == 0 {
		return Pause{}, false
	}
	for _, key := range targets.Keys(target) {
		if pause := p[key]; pause.Host != "" && pause.IsInForce(now) {
			return pause, true
		}
	}
	return Pause{}, false
}

const (
	// readInterval is the time between two readings of the pauses, so that a change is noticed within 20 s.
	readInterval = 15 * time.Second
	// pauseTimeout limits a reading. It is longer than the 5 s that remain: a late pause is better than none.
	pauseTimeout = 15 * time.Second
	// Notice is how long it takes until the instances of an app have noticed a pause, or its end.
	Notice = 20 * time.Second
)

// Watcher reads the pauses of an account for an instance of an app. While the table does not answer, those that are
// known stay in force until they end. It is safe for concurrent use, except that Run is called once, after Read. A nil
// Watcher knows none.
type Watcher struct {
	table storage.Table
	log   zerolog.Logger
	known atomic.Pointer[ByHost]
	// isAway says that the latest reading has failed.
	isAway bool
}

// NewWatcher returns a watcher of a table, which is read by [Watcher.Read], and while [Watcher.Run] runs.
func NewWatcher(table storage.Table, log zerolog.Logger) *Watcher {
	return &Watcher{table: table, log: log}
}

// Of returns the pause of a target that is in force, if there is one. It never waits.
func (p *Watcher) Of(target *url.URL, now time.Time) (pause Pause, isPaused bool) {
	if p == nil {
		return Pause{}, false
	}
	known := p.known.Load()
	if known == nil {
		return Pause{}, false
	}
	return known.Of(target, now)
}

// Read reads the pauses, within a limited time.
func (p *Watcher) Read(ctx context.Context, limit time.Duration) {
	if p == nil {
		return
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	pauses, err := Read(limited, p.table)
	wasAway := p.isAway
	switch {
	case ctx.Err() != nil: // the handler stops
	case err != nil:
		p.isAway = true
		if !wasAway {
			p.log.Warn().Err(err).Msg("pauses of targets cannot be read: those that are known stay in force until " +
				"they end, and others are not noticed")
		}
	default:
		p.isAway = false
		p.known.Store(new(InForce(pauses, time.Now())))
		if wasAway {
			p.log.Info().Msg("pauses of targets can be read again")
		}
	}
}

// Run reads the pauses until ctx ends.
func (p *Watcher) Run(ctx context.Context) {
	for p != nil && storage.Sleep(ctx, readInterval) {
		p.Read(ctx, pauseTimeout)
	}
}

// Enter implements [delivery.Gate].
func (p *Watcher) Enter(_ context.Context, due *decision.Due) (decision.Pass, *decision.Verdict) {
	pause, isPaused := p.Of(due.Intake.Envelope.Call.Target, due.Arrived)
	if !isPaused {
		return nil, nil
	}
	return nil, &decision.Verdict{Refusal: decision.PausedUntil(pause.Until, due.Arrived, due.Jitter)}
}
