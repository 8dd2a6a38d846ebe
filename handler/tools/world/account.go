package world

import (
	"context"
	"errors"
	"fmt"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// class is what a process is.
type class string

const (
	instance class = "instance" // a handler or a worker
	host     class = "host"
	operator class = "operator"
)

var (
	errNoAnswer = errors.New("no answer")
	errKilled   = errors.New("the process was killed")
)

// link is the account as one process sees it.
type link struct {
	*process
	store *memory.Queues
}

var _ storage.Queues = link{}

// about says what a request is about, for the trace.
type about struct {
	verb   verb
	tables bool
	text   string
	// token is that of the message; empty if it is about none, or several.
	token string
}

// latency is how long a request takes.
func (w *World) latency() time.Duration { return time.Duration(w.random(40)) * time.Millisecond }

// ask sends a request of a process to storage. It returns how often it was carried out so far, and what happened to it.
// It never returns to a process that was killed.
func ask[T any](
	ctx context.Context, p *process, a about, do func(context.Context) (T, error),
) (answer T, times int, f what, err error) {
	var nothing T
	if p.isGone() {
		return nothing, 0, "", errKilled
	}
	f = p.world.strike(p, a)
	wait := p.world.latency()
	if f == slow {
		wait += time.Duration(p.world.random(9000)) * time.Millisecond
	}
	isInTime := storage.Sleep(ctx, wait/2)
	switch {
	case p.isGone():
		return nothing, 0, f, errKilled
	case !isInTime:
		return nothing, 0, f, fmt.Errorf("%w: %w", storage.ErrNotSent, ctx.Err())
	case f == killBefore:
		p.kill("at a request of its own")
		p.isGone()
		return nothing, 0, f, errKilled
	case f == fails:
		return nothing, 0, f, errNoAnswer
	case f == busy:
		return nothing, 0, f, storage.ErrBusy
	case f == notSent:
		return nothing, 0, f, storage.ErrNotSent
	case f == late:
		p.world.later(func() { _, _ = do(context.WithoutCancel(ctx)) })
		return nothing, 0, f, errNoAnswer
	}
	lasting := context.WithoutCancel(ctx)
	answer, err = do(lasting)
	times = 1
	if f == repeated {
		answer, err = do(lasting)
		times = 2
	}
	if f == killAfter {
		p.kill("at a request of its own")
	}
	isInTime = storage.Sleep(ctx, wait/2)
	switch {
	case p.isGone():
		return nothing, times, f, errKilled
	case !isInTime:
		return nothing, times, slow, ctx.Err()
	case f == lost:
		return nothing, times, f, errNoAnswer
	case f == foreign:
		return nothing, times, f, storage.ErrForeign
	}
	return answer, times, f, err
}

func (l link) Create(ctx context.Context, name string) error {
	_, _, _, err := ask(ctx, l.process, about{look, false, "create " + name, ""}, func(ctx context.Context) (any,
		error,
	) {
		return nil, l.store.Create(ctx, name)
	})
	return err
}

// Put also notes what is written, when it is.
func (l link) Put(ctx context.Context, name string, item storage.Item) (storage.Message, error) {
	token := tokenIn(decoded(item.Text))
	m, times, f, err := ask(ctx, l.process, about{put, false, token + " on " + name, token},
		func(ctx context.Context) (storage.Message, error) {
			m, err := l.store.Put(ctx, name, item)
			if err == nil {
				l.world.wrote(l.process, name, m.ID, item)
			}
			return m, err
		})
	l.world.answered(l.process, put, token, times, f, err)
	return l.shifted(m), err
}

func (l link) Update(
	ctx context.Context, name, id, receipt, text string, delay time.Duration,
) (string, error) {
	token := l.world.tokenOf(id)
	next, times, f, err := ask(ctx, l.process, about{update, false, token + " on " + name, token},
		func(ctx context.Context) (string, error) {
			next, err := l.store.Update(ctx, name, id, receipt, text, delay)
			if err == nil {
				l.world.changed(l.process, name, id, text, delay)
			}
			return next, err
		})
	l.world.answered(l.process, update, token, times, f, err)
	return next, err
}

func (l link) Delete(ctx context.Context, name, id, receipt string) error {
	token := l.world.tokenOf(id)
	_, times, f, err := ask(ctx, l.process, about{remove, false, token + " from " + name, token},
		func(ctx context.Context) (any, error) {
			err := l.store.Delete(ctx, name, id, receipt)
			if err == nil {
				l.world.removed(l.process, name, id)
			}
			return nil, err
		})
	l.world.answered(l.process, remove, token, times, f, err)
	return err
}

func (l link) Receive(
	ctx context.Context, name string, limit int, lease time.Duration,
) ([]storage.Message, error) {
	var received []storage.Message
	_, _, f, err := ask(ctx, l.process, about{receive, false, "from " + name, ""},
		func(ctx context.Context) (all []storage.Message, err error) {
			all, err = l.store.Receive(ctx, name, limit, lease)
			received = all
			l.world.leased(l.process, name, all, lease)
			return all, err
		})
	if err != nil {
		for _, m := range received {
			l.world.answered(l.process, receive, l.world.tokenOf(m.ID), 1, lost, err)
		}
		return nil, err
	}
	_ = f
	all := make([]storage.Message, len(received))
	for i, m := range received {
		all[i] = l.shifted(m)
	}
	return all, nil
}

func (l link) Peek(ctx context.Context, name string, limit int) ([]storage.Message, error) {
	all, _, _, err := ask(ctx, l.process, about{look, false, "peek at " + name, ""},
		func(ctx context.Context) ([]storage.Message, error) { return l.store.Peek(ctx, name, limit) })
	for i := range all {
		all[i] = l.shifted(all[i])
	}
	return all, err
}

func (l link) Count(ctx context.Context, name string) (int, error) {
	n, _, _, err := ask(ctx, l.process, about{look, false, "count " + name, ""},
		func(ctx context.Context) (int, error) { return l.store.Count(ctx, name) })
	return n, err
}

func (l link) Names(ctx context.Context, prefix string) ([]string, error) {
	names, _, _, err := ask(ctx, l.process, about{look, false, "names", ""},
		func(ctx context.Context) ([]string, error) { return l.store.Names(ctx, prefix) })
	return names, err
}

// shifted returns a message with the times of storage's clock.
func (l link) shifted(m storage.Message) storage.Message {
	for _, at := range []*time.Time{&m.InsertedAt, &m.ExpiresAt, &m.NextVisibleAt} {
		if !at.IsZero() && at.Year() < storage.NeverExpires.Year() {
			*at = at.Add(l.world.Ahead)
		}
	}
	return m
}

// tables are the tables of the account as one process sees them.
type tables struct {
	*process
	store *memory.Tables
}

var _ storage.Tables = tables{}

func (t tables) Table(name string) storage.Table { return table{t.process, name, t.store.Open(name)} }

func (t tables) TableNames(ctx context.Context, prefix string) ([]string, error) {
	names, _, _, err := ask(ctx, t.process, about{read, true, "names of tables", ""},
		func(ctx context.Context) ([]string, error) { return t.store.TableNames(ctx, prefix) })
	return names, err
}

func (t tables) Drop(ctx context.Context, name string) error {
	_, _, _, err := ask(ctx, t.process, about{write, true, "drop " + name, ""},
		func(ctx context.Context) (any, error) { return nil, t.store.Drop(ctx, name) })
	return err
}

// table is a table as one process sees it.
type table struct {
	*process
	name  string
	store *memory.Table
}

var _ storage.Table = table{}

// Now implements [storage.Table].
func (t table) Now() time.Time { return time.Now().Add(t.world.Ahead) }

func (t table) change(ctx context.Context, do func(context.Context) error) error {
	_, _, _, err := ask(ctx, t.process, about{write, true, t.name, ""}, func(ctx context.Context) (any, error) {
		return nil, do(ctx)
	})
	return err
}

func (t table) Put(ctx context.Context, entities []storage.Entity) error {
	return t.change(ctx, func(ctx context.Context) error {
		err := t.store.Put(ctx, entities)
		t.world.rowsWritten(t.name, entities)
		return err
	})
}

func (t table) Insert(ctx context.Context, entities []storage.Entity) error {
	return t.change(ctx, func(ctx context.Context) error {
		t.world.rowsWritten(t.name, entities)
		return t.store.Insert(ctx, entities)
	})
}

func (t table) Replace(ctx context.Context, entity storage.Entity) (string, error) {
	version, _, _, err := ask(ctx, t.process, about{write, true, t.name, ""}, func(ctx context.Context) (string,
		error,
	) {
		return t.store.Replace(ctx, entity)
	})
	return version, err
}

func (t table) Delete(ctx context.Context, keys []storage.Key) error {
	return t.change(ctx, func(ctx context.Context) error { return t.store.Delete(ctx, keys) })
}

func (t table) Get(ctx context.Context, partition, id string) (entity storage.Entity, found bool, err error) {
	entity, _, _, err = ask(ctx, t.process, about{read, true, t.name, ""}, func(ctx context.Context) (storage.Entity,
		error,
	) {
		entity, found, err = t.store.Get(ctx, partition, id)
		return entity, err
	})
	return t.shifted(entity), found && err == nil, err
}

func (t table) List(ctx context.Context, q storage.Query, see func(storage.Entity) error) error {
	if !q.WrittenAfter.IsZero() {
		q.WrittenAfter = q.WrittenAfter.Add(-t.world.Ahead)
	}
	if !q.WrittenBefore.IsZero() {
		q.WrittenBefore = q.WrittenBefore.Add(-t.world.Ahead)
	}
	all, _, _, err := ask(ctx, t.process, about{read, true, t.name, ""},
		func(ctx context.Context) (all []storage.Entity, err error) {
			err = t.store.List(ctx, q, func(e storage.Entity) error {
				all = append(all, e)
				return nil
			})
			return all, err
		})
	for _, entity := range all {
		if err == nil {
			err = see(t.shifted(entity))
		}
	}
	return err
}

func (t table) shifted(entity storage.Entity) storage.Entity {
	if !entity.WrittenAt.IsZero() {
		entity.WrittenAt = entity.WrittenAt.Add(t.world.Ahead)
	}
	return entity
}
