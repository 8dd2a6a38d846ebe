package record

import (
	"context"
	"strings"
	"sync"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
	"asynccaller/handler/internal/targets"
)

// TokenEnd is the row that says when the token of a credential ends that an instance of an app has fetched last. It has
// nothing of the token.
type TokenEnd struct {
	storage.Key

	// App is the app, and Credential the [targets.Credential.ID].
	App        string    `row:"app"`
	Credential string    `row:"credential"`
	Ends       time.Time `row:"endsAt"`
}

// CredentialPartition is the PartitionKey of the rows of credentials.
const CredentialPartition = "credential"

func tokenEndKey(app, credential string) storage.Key {
	return storage.Key{Partition: CredentialPartition, ID: rows.KeyOf(app) + "," + rows.KeyOf(credential)}
}

// ReadTokenEnds returns when the tokens end that were fetched last, of all apps that share the account, by credential.
func ReadTokenEnds(ctx context.Context, table storage.Table) (map[string]time.Time, error) {
	ends := map[string]time.Time{}
	q := storage.Query{Partition: CredentialPartition}
	err := rows.List(ctx, table, q, func(row TokenEnd) error {
		if row.ID != tokenEndKey(row.App, row.Credential).ID || row.Ends.IsZero() {
			return nil // no handler writes it
		}
		if len(ends) == maxReadRows {
			return rows.ErrStop
		}
		if row.Ends.After(ends[row.Credential]) {
			ends[strings.Clone(row.Credential)] = row.Ends.UTC()
		}
		return nil
	})
	return ends, err
}

// TokenEnds keeps the rows of the tokens of an app, in the background and best effort. Its methods never wait. It is
// safe for concurrent use. A nil TokenEnds keeps nothing.
type TokenEnds struct {
	table storage.Table
	app   string
	// scheduled is the recorder of the account.
	scheduled *Recorder
	wake      chan struct{}

	mu sync.Mutex
	// fetched are the tokens since the rows were last written, by credential.
	fetched map[string]time.Time
}

// NewTokenEnds returns the rows of an app in a table. Scheduled is the recorder of the same account: without permission
// to use tables, neither writes. The rows are written while [TokenEnds.Run] runs.
func NewTokenEnds(table storage.Table, app string, scheduled *Recorder) *TokenEnds {
	return &TokenEnds{
		table: table, app: app, scheduled: scheduled, wake: make(chan struct{}, 1), fetched: map[string]time.Time{},
	}
}

// Fetched takes that a token was fetched, which ends at a time.
func (t *TokenEnds) Fetched(c targets.Credential, ends time.Time) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fetched[c.ID] = ends
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Run writes the rows until ctx ends, each at most once a minute.
func (t *TokenEnds) Run(ctx context.Context) {
	for t != nil && t.scheduled.Table() != nil {
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		}
		t.write(ctx)
		storage.Sleep(ctx, targetInterval)
	}
}

// write writes the rows of the tokens that were fetched. What fails is left to the next token.
func (t *TokenEnds) write(ctx context.Context) {
	t.mu.Lock()
	fetched := t.fetched
	t.fetched = map[string]time.Time{}
	t.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	for credential, ends := range fetched {
		row := TokenEnd{Key: tokenEndKey(t.app, credential), App: t.app, Credential: credential, Ends: ends}
		_ = t.scheduled.Check(rows.Put(limited, t.table, row))
	}
}
