package storagetest

import (
	"context"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/storage"
)

func testCreateTwice(a *account) {
	name := a.create("twice")
	a.put(name, storage.Item{Text: "kept"})
	a.create("twice")
	a.mustCount(name, 1)
}

func testNames(a *account) {
	var want []string
	for _, suffix := range []string{"b", "a", "a-poison", "10", "2"} {
		want = append(want, a.create("list-"+suffix))
	}
	slices.Sort(want)
	a.create("other")

	got, err := a.Names(a.t.Context(), a.prefix+"list-")
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		a.t.Errorf("error %v, Names (-want +got):\n%s", err, diff)
	}
	if got, err := a.Names(a.t.Context(), a.prefix+"nothing"); err != nil || len(got) != 0 {
		a.t.Errorf("Names of an unknown prefix = %q, %v; want none", got, err)
	}
	all, err := a.Names(a.t.Context(), "")
	if err != nil || !slices.Contains(all, a.prefix+"other") || !slices.IsSorted(all) {
		a.t.Errorf("Names of all = %q, %v, want the other one included, in order", all, err)
	}
}

func testQueueMissing(a *account) {
	name := a.prefix + "missing"
	for op, do := range a.operations() {
		err := do(a.t.Context(), name)
		a.mustBe(storage.ErrNoQueue, err, op)
		if err == nil || !strings.Contains(err.Error(), op) || !strings.Contains(err.Error(), name) {
			a.t.Errorf("%s: error %q does not name operation and queue", op, err)
		}
	}
}

func testQueueBadlyNamed(a *account) {
	operations := a.operations()
	operations["create"] = a.Create
	for _, name := range []string{
		"", "ab", "Upper", "two--dashes", "-dash", "dash-", "under_score", "../x", "a/messages",
		strings.Repeat("a", 64),
	} {
		for op, do := range operations {
			a.mustBe(storage.ErrRefused, do(a.t.Context(), name), op+" on queue "+name)
		}
	}
}

func testContextEnded(a *account) {
	name := a.create("cancelled")
	operations := a.operations()
	operations["create"] = a.Create
	operations["list"] = func(ctx context.Context, name string) error { return errorOf(a.Names(ctx, name)) }
	ctx, cancel := context.WithCancel(a.t.Context())
	cancel()
	for op, do := range operations {
		a.mustBe(context.Canceled, do(ctx, name), op)
	}
	a.mustCount(name, 0)
}

func testCount(a *account) {
	name := a.create("count")
	a.mustCount(name, 0)
	a.put(name, storage.Item{Text: "visible"})
	a.put(name, storage.Item{Text: "delayed", Delay: hour})
	a.mustCount(name, 2)
	leased := a.receive(name, hour)
	a.mustCount(name, 2)
	a.remove(name, leased.ID, leased.PopReceipt)
	a.mustCount(name, 1)
}
