package operation_test

import (
	"context"
	"fmt"
	"os"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// A plan says what a run will do before it changes anything, and an undo restores the messages.
func Example() {
	ctx := context.Background()
	store := memory.New()
	_ = store.Create(ctx, poisonQueue)
	_, _ = store.Put(ctx, poisonQueue, storage.Item{Text: deadLetter("order-4711", mainQueue)})
	folder, _ := os.MkdirTemp("", "runs-*")
	defer func() { _ = os.RemoveAll(folder) }()
	runs := accountIn(store, folder)

	source := account.Source{Filter: message.Filter{Reasons: []string{"rejected"}}}
	plan, _ := runs.PlanRetryPoison(ctx, source, operation.Retry{})
	fmt.Println(plan.Command, plan.Total, plan.From, plan.To)
	result, _ := plan.Execute(ctx)
	fmt.Println("done", result.Done, "left", result.Left)

	undo, _ := runs.PlanUndo(ctx, result.Run)
	result, _ = undo.Execute(ctx)
	fmt.Println("restored", result.Done, undo.To)
	// Output:
	// requeue 1 map[async-caller-poison:1] map[async-caller:1]
	// done 1 left 0
	// restored 1 map[async-caller-poison:1]
}
