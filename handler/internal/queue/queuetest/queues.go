package queuetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/queue"
)

func testCreateTwice(t *testing.T, a *account) {
	name := a.mustCreate(t, "twice")
	a.mustPut(t, name, queue.Item{Text: "kept"})
	if err := a.Create(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	a.mustCount(t, name, 1)
}

func testNames(t *testing.T, a *account) {
	var want []string
	for _, suffix := range []string{"b", "a", "a-poison", "10", "2"} {
		want = append(want, a.mustCreate(t, "list-"+suffix))
	}
	slices.Sort(want)
	a.mustCreate(t, "other")

	got, err := a.Names(t.Context(), a.prefix+"list-")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Names (-want +got):\n%s", diff)
	}
	if got, err := a.Names(t.Context(), a.prefix+"nothing"); err != nil || len(got) != 0 {
		t.Errorf("Names of an unknown prefix = %q, %v; want none", got, err)
	}
	all, err := a.Names(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(all, a.prefix+"other") || !slices.IsSorted(all) {
		t.Errorf("Names of all = %q, want the other one among them, in order", all)
	}
}

func testQueueMissing(t *testing.T, a *account) {
	name := a.prefix + "missing"
	for op, do := range a.onQueue() {
		err := do(t.Context(), name)
		if !errors.Is(err, queue.ErrNoQueue) {
			t.Errorf("%s: %v, want ErrNoQueue", op, err)
			continue
		}
		if !strings.Contains(err.Error(), op) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %q names neither operation nor queue", op, err)
		}
	}
}

func testQueueBadlyNamed(t *testing.T, a *account) {
	operations := a.onQueue()
	operations["create"] = a.Create
	for _, name := range []string{"", "ab", "Upper", "two--dashes", "-dash", "dash-", "under_score", "../x", "a/messages", strings.Repeat("a", 64)} {
		for op, do := range operations {
			if err := do(t.Context(), name); !errors.Is(err, queue.ErrRefused) {
				t.Errorf("%s on queue %q: %v, want ErrRefused", op, name, err)
			}
		}
	}
}

func testContextEnded(t *testing.T, a *account) {
	name := a.mustCreate(t, "cancelled")
	operations := a.onQueue()
	operations["create"] = a.Create
	operations["list"] = func(ctx context.Context, name string) error {
		_, err := a.Names(ctx, name)
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for op, do := range operations {
		if err := do(ctx, name); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want context.Canceled", op, err)
		}
	}
	a.mustCount(t, name, 0)
}

func testCount(t *testing.T, a *account) {
	name := a.mustCreate(t, "count")
	a.mustCount(t, name, 0)
	a.mustPut(t, name, queue.Item{Text: "visible"})
	a.mustPut(t, name, queue.Item{Text: "delayed", Delay: hour})
	a.mustCount(t, name, 2)
	leased := a.mustReceive(t, name, hour)
	a.mustCount(t, name, 2)
	if err := a.Delete(t.Context(), name, leased.ID, leased.PopReceipt); err != nil {
		t.Fatal(err)
	}
	a.mustCount(t, name, 1)
}
