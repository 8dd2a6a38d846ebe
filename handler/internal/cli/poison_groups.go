package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"asynccaller/handler/internal/poison"
	"asynccaller/handler/internal/poison/inspect"
)

// listGroups counts messages by what they have in common.
func (d *desk) listGroups(ctx context.Context, source poison.Source, by inspect.By) error {
	groups := inspect.NewGroups(by)
	listed, err := d.account.List(ctx, source, func(f poison.Found) { groups.Add(f.Message) })
	if err != nil {
		return err
	}
	d.tell.quiet()
	result := groups.Result()
	if d.options.json {
		for _, row := range result {
			if err := encode(d.s.Stdout, row); err != nil {
				return err
			}
		}
		return d.told(listed)
	}
	if len(result) > 0 {
		printGroups(d.s.Stdout, result, d.now())
	}
	if err := d.told(listed); err != nil {
		return err
	}
	d.tell.say("`async-caller poison list --group %s` lists those of the first row", shellWord(fmt.Sprintf("%s=%s", by, result[0].Key)))
	return nil
}

func printGroups(out io.Writer, groups []inspect.Row, now time.Time) {
	t := table{out: out, columns: []column{
		{title: "COUNT", width: 7, right: true},
		{title: "FIRST", width: 5, right: true},
		{title: "LAST", width: 4, right: true},
		{title: "SAMPLE", width: shortID},
		{title: "KEY", whole: true}, // one that was cut could not be given to --group
	}}
	t.head()
	for _, g := range groups {
		t.row(thousands(g.Count), age(now.Sub(g.First)), age(now.Sub(g.Last)), beginning(g.Sample.ID), g.Key)
	}
}
