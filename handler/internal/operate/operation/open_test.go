package operation_test

import (
	"slices"
	"testing"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/operate/operation"
)

func TestAppQueues(t *testing.T) {
	names, err := operation.AppQueues(config.ReadApp(t.TempDir(), nil, config.Operator)) // no app there
	if err != nil || len(names) != 11 || !slices.Contains(names, "async-caller") ||
		!slices.Contains(names, "async-caller-10") {
		t.Errorf("%v, %v", names, err)
	}
	names, err = operation.AppQueues(config.ReadApp("../../../..", nil, config.Operator)) // the shipped app
	if err != nil || !slices.Contains(names, "async-caller-10") {
		t.Errorf("%v, %v", names, err)
	}
}
