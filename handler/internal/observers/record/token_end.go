package record

import (
	"context"
	"strings"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// TokenEnd is the row that says when the token of a credential ends that an instance of an app has fetched last. It has
// nothing of the token.
type TokenEnd struct {
	storage.Key

	// App is the app, and Credential the ID of the credential.
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

// PutTokenEnd records when the token ends that an instance of an app has fetched.
func PutTokenEnd(ctx context.Context, table storage.Table, app, credential string, ends time.Time) error {
	limited, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	row := TokenEnd{Key: tokenEndKey(app, credential), App: app, Credential: credential, Ends: ends}
	return rows.Put(limited, table, row)
}
