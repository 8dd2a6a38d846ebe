package account

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// TestListByNextAttempt: the list is sorted and complete, however much memory there is for it.
func TestListByNextAttempt(t *testing.T) {
	table := &memory.Table{}
	random := rand.New(rand.NewPCG(1, 2))
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var want []string
	for i := range 100 {
		due := now.Add(time.Duration(random.IntN(100)) * time.Second) // some at the same time
		queue, id := fmt.Sprint("queue-", i%3), fmt.Sprintf("%03d", random.IntN(1000))
		text := due.Format(time.RFC3339) + " " + queue + " " + id
		if !slices.Contains(want, text) {
			want = append(want, text)
		}
		key := storage.Key{Partition: queue, ID: id + due.Format("150405")}
		row := record.Row{Key: key, RequestID: id, NextAttemptAt: due}
		if err := rows.Put(t.Context(), table, row); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(want)
	for _, most := range []int{maxSorted, 50 * lineBytes, 3 * lineBytes} {
		for _, limit := range []int{0, 1, 77} {
			var got []string
			a := &Account{Table: table}
			line := func(m message.Recorded) (string, error) {
				return m.Row.NextAttemptAt.Format(time.RFC3339) + " " + m.Queue + " " + m.RequestID, nil
			}
			sorted := sorting{
				most: most, limit: limit, line: line,
				print: func(_, text string) error { got = append(got, text); return nil },
			}
			err := sorted.list(func(visit func(message.Recorded) error) error {
				_, err := a.ListScheduled(t.Context(), Source{}, false, visit)
				return err
			})
			matched := sorted.printed
			wanted := want
			if limit > 0 {
				wanted = want[:limit]
			}
			if err != nil || matched != len(wanted) || !slices.Equal(got, wanted) {
				t.Errorf("%d bytes, limit %d: %d messages, %v\n%s", most, limit, matched, err, strings.Join(got, "\n"))
			}
		}
	}
}
