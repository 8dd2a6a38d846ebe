package inspect

import (
	"strings"

	"asynccaller/handler/internal/scheduled"
)

// FromRow describes the scheduled message of a row, as far as the row says it without the content. Since is when the call was
// created. Anyone who can write to the table can have written the row.
func FromRow(r scheduled.Row) Message {
	return Message{
		Queue: shown(r.Queue, maxHost), ID: shown(r.ID, maxReason), Main: shown(r.Queue, maxHost), Reason: shown(r.Reason, maxReason),
		Since: r.CreatedAt.UTC(), RequestID: shown(r.RequestID, maxTenant), Organization: shown(r.Organization, maxTenant),
		Environment: shown(r.Environment, maxTenant), Attempts: r.Attempts, Status: r.Status,
		Host: shown(strings.ToLower(r.TargetHost), maxHost), Route: shown(r.Route, maxPath), Bytes: len(r.Content),
	}
}
