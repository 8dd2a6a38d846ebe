package memory_test

import (
	"testing"

	"asynccaller/handler/internal/scheduled"
	"asynccaller/handler/internal/scheduled/memory"
	"asynccaller/handler/internal/scheduled/scheduledtest"
)

func TestConformance(t *testing.T) {
	scheduledtest.Run(t, func(*testing.T) scheduled.Table { return &memory.Table{} })
}
