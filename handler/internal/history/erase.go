package history

import (
	"context"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// Erase deletes the rows of a tenant's request id: those of its calls and callbacks, and those that Nexus callbacks and
// their requests have under the id of the other. Without remove it only counts them. Others may write rows meanwhile.
func Erase(
	ctx context.Context, tables storage.Tables, tenant envelope.Tenant, requestID string, remove bool,
) (found, deleted int, err error) {
	names, err := tables.TableNames(ctx, TablePrefix)
	if err != nil {
		return 0, 0, err
	}
	id := envelope.WithoutCallbackSuffix(requestID)
	first := subjectOf(tenant, id)
	related, err := relatedSubjects(ctx, tables, names, tenant, first)
	if err != nil {
		return 0, 0, err
	}
	for _, name := range names {
		keys := map[string][]storage.Key{}
		for subject := range related {
			err := listSubject(ctx, tables.Table(name), subject, func(row entryRow) {
				e := row.entry(name)
				if subject == first || envelope.WithoutCallbackSuffix(e.RequestID) == id || e.OriginalRequestID == id {
					found++
					at := row.Key.Partition
					keys[at] = append(keys[at], storage.Key{Partition: at, ID: row.ID})
				}
			})
			if err != nil {
				return found, deleted, err
			}
		}
		for _, ofPartition := range keys {
			if !remove {
				break
			}
			n, err := rows.Delete(ctx, tables.Table(name), ofPartition)
			deleted += n
			if err != nil {
				return found, deleted, err
			}
		}
	}
	return found, deleted, nil
}

// relatedSubjects returns a subject and those of the ids that its rows name: a Nexus callback can be in another month
// than its request.
func relatedSubjects(
	ctx context.Context, tables storage.Tables, names []string, tenant envelope.Tenant, first string,
) (related map[string]bool, err error) {
	related = map[string]bool{first: true}
	for _, name := range names {
		err := listSubject(ctx, tables.Table(name), first, func(row entryRow) {
			e := row.entry(name)
			for _, id := range []string{e.RequestID, e.OriginalRequestID} {
				if id != "" {
					related[subjectOf(tenant, envelope.WithoutCallbackSuffix(id))] = true
				}
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return related, nil
}

// listSubject shows the rows of a subject.
func listSubject(ctx context.Context, table storage.Table, subject string, see func(entryRow)) error {
	k := key{subject: subject}
	q := storage.Query{Partition: k.partition(), IDPrefix: k.row()}
	return rows.ListWhole(ctx, table, q, func(row entryRow) error {
		see(row)
		return nil
	})
}
