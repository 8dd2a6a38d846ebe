package operation

import (
	"context"
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

const (
	// compareTime limits the reading of the rows of a queue, and writeTime each write.
	compareTime = time.Minute
	writeTime   = 10 * time.Second
	// mostCompared limits the rows that are kept in memory: anyone who can write to the table can invent any number.
	// The others stay until a later comparison.
	mostCompared = 200_000
	// mostInserted and insertedBytes limit the rows of one write.
	mostInserted  = 100
	insertedBytes = 512 << 10
)

// comparison compares the rows of a queue with the messages that a reading of the queue sees, and puts the rows right.
// Its methods do nothing on a nil comparison, and nothing more after an error.
type comparison struct {
	table storage.Table
	// unseen has the rows of which no message was seen. Missing are rows that wait to be written, and bytes their size.
	unseen  map[string]storage.Key
	missing []record.Row
	bytes   int
	err     error
}

// compare begins a comparison, and reads the rows within the given time. It returns nil without a table.
func compare(ctx context.Context, table storage.Table, queue string, timeout time.Duration) *comparison {
	if table == nil {
		return nil
	}
	c := &comparison{table: table, unseen: map[string]storage.Key{}}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c.err = record.ListDeadLetters(ctx, table, record.Query{Queue: queue}, func(row record.Row) error {
		if len(c.unseen) < mostCompared {
			c.unseen[row.ID] = row.Key
		}
		return nil
	})
	return c
}

// see compares a message of a queue.
func (c *comparison) see(ctx context.Context, a *account.Account, queue string, m storage.Message) {
	if c == nil || c.err != nil {
		return
	}
	if _, hasRow := c.unseen[m.ID]; hasRow {
		delete(c.unseen, m.ID)
		return
	}
	found, _ := a.Read(account.Source{}, queue, m)
	c.add(ctx, message.ToRow(found.Message, found.Content))
}

// add adds a row that is missing.
func (c *comparison) add(ctx context.Context, row record.Row) {
	if c == nil {
		return
	}
	if len(c.missing) == mostInserted || c.bytes+len(row.Content) > insertedBytes {
		c.insert(ctx)
	}
	c.missing = append(c.missing, row)
	c.bytes += len(row.Content)
}

// insert writes the rows that are missing. Others may have written them meanwhile, or their marks.
func (c *comparison) insert(ctx context.Context) {
	if len(c.missing) > 0 && c.err == nil {
		ctx, cancel := context.WithTimeout(ctx, writeTime)
		defer cancel()
		c.err = rows.Insert(ctx, c.table, c.missing...)
	}
	c.missing, c.bytes = nil, 0
}

// end ends the comparison. If the reading has seen as many messages as the queue has, the rows of others go.
func (c *comparison) end(ctx context.Context, sawAll bool) error {
	if c == nil {
		return nil
	}
	c.insert(ctx)
	if c.err != nil || !sawAll {
		return c.err
	}
	var gone []storage.Key
	for _, key := range c.unseen {
		gone = append(gone, key)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	_, err := rows.Delete(ctx, c.table, gone)
	return err
}
