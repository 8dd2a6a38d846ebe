package account

import (
	"strings"

	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/storage"
)

// ReasonCount is the number of messages with a reason.
type ReasonCount struct {
	Reason string `json:"reason"`
	Count  int    `json:"count"`
}

// countReasons returns the result of groups by reason.
func countReasons(groups *message.Groups) []ReasonCount {
	counts := []ReasonCount{}
	for _, row := range groups.Result() {
		counts = append(counts, ReasonCount{Reason: row.Key, Count: row.Count})
	}
	return counts
}

// MainQueue returns the queue that a poison queue belongs to, and any other name unchanged.
func MainQueue(name string) string { return strings.TrimSuffix(name, storage.PoisonSuffix) }
