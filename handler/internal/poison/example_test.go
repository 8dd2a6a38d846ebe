package poison_test

import (
	"context"
	"fmt"
	"os"

	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/poison"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// A plan says what a run will do before it changes anything, and an undo restores the messages.
func Example() {
	ctx := context.Background()
	store := memory.New()
	_ = store.Create(ctx, poisonQueue)
	_, _ = store.Put(ctx, poisonQueue, storage.Item{Text: deadLetter("order-4711", mainQueue)})
	runs, _ := os.MkdirTemp("", "runs-*")
	defer func() { _ = os.RemoveAll(runs) }()
	account := accountIn(store, runs)

	source := poison.Source{Filter: message.Filter{Reasons: []string{"rejected"}}}
	plan, _ := account.PlanRequeue(ctx, source, poison.Requeue{})
	fmt.Println(plan.Command, plan.Total, plan.From, plan.To)
	result, _ := plan.Execute(ctx)
	fmt.Println("done", result.Done, "left", result.Left)

	undo, _ := account.PlanUndo(ctx, result.Run)
	result, _ = undo.Execute(ctx)
	fmt.Println("restored", result.Done, undo.To)
	// Output:
	// requeue 1 map[async-caller-poison:1] map[async-caller:1]
	// done 1 left 0
	// restored 1 map[async-caller-poison:1]
}
