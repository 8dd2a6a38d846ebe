package history

import (
	"context"

	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// Erase deletes the rows of a tenant's request id: those of its calls and callbacks, and those that Nexus callbacks and
// their requests have under the id of the other. Unknown are rows with the request id of the callback and another trace
// than the calls, which it leaves. Without remove it only counts. Others may write rows meanwhile.
func Erase(
	ctx context.Context, tables storage.Tables, tenant envelope.Tenant, requestID string, remove bool,
) (found, deleted, unknown int, err error) {
	names, err := tables.TableNames(ctx, TablePrefix)
	if err != nil {
		return 0, 0, 0, err
	}
	related, traces, err := relatedSubjects(ctx, tables, names, tenant, requestID)
	if err != nil {
		return 0, 0, 0, err
	}
	for _, name := range names {
		keys := map[string][]storage.Key{}
		for subject := range related {
			err := listSubject(ctx, tables.Table(name), subject, func(row entryRow) {
				e := row.entry(name)
				isCallback := e.RequestID == envelope.CallbackID(requestID)
				isOf := e.RequestID == requestID || e.OriginalRequestID == requestID ||
					isCallback && e.TraceID != "" && traces[e.TraceID]
				switch {
				case isOf:
					found++
					at := row.Key.Partition
					keys[at] = append(keys[at], storage.Key{Partition: at, ID: row.ID})
				case isCallback:
					unknown++
				}
			})
			if err != nil {
				return found, deleted, unknown, err
			}
		}
		for _, ofPartition := range keys {
			if !remove {
				break
			}
			n, err := rows.Delete(ctx, tables.Table(name), ofPartition)
			deleted += n
			if err != nil {
				return found, deleted, unknown, err
			}
		}
	}
	return found, deleted, unknown, nil
}

// relatedSubjects returns the subject of a request id and those of the ids that its rows name, because a Nexus callback
// can be in another month than its request, and the traces of the calls with the request id.
func relatedSubjects(
	ctx context.Context, tables storage.Tables, names []string, tenant envelope.Tenant, requestID string,
) (related, traces map[string]bool, err error) {
	first := subjectOf(tenant, envelope.WithoutCallbackSuffix(requestID))
	related, traces = map[string]bool{first: true}, map[string]bool{}
	for _, name := range names {
		err := listSubject(ctx, tables.Table(name), first, func(row entryRow) {
			e := row.entry(name)
			traces[e.TraceID] = traces[e.TraceID] || e.RequestID == requestID
			for _, id := range []string{e.RequestID, e.OriginalRequestID} {
				if id != "" {
					related[subjectOf(tenant, envelope.WithoutCallbackSuffix(id))] = true
				}
			}
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return related, traces, nil
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
