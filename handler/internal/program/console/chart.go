package console

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/plain/format"
)

// The size of a column of a chart, and the height of a chart, in units of its drawing.
const (
	columnWidth = 10
	chartHeight = 100
	// lowest is the height of the lowest bar, which can be seen.
	lowest = 2
)

// chart is a drawing of columns over time, with the same numbers as a table.
type chart struct {
	Title string
	// Summary says what the drawing shows, for those who do not see it.
	Summary string
	// Levels are the labels of the vertical axis from the top, Begin and End those of the horizontal one.
	Levels     []string
	Begin, End string
	Width      int
	Legend     []legendEntry
	Bars       []bar
	// Headings and Rows are the table; the first column is the time.
	Headings []string
	Rows     [][]string
}

type legendEntry struct{ Class, Text string }

// bar is a rectangle of a chart. Text says what it stands for.
type bar struct {
	Class         string
	X, Y          int
	Width, Height int
	Text          string
}

// period is the time that a chart shows, in columns of the same duration.
type period struct {
	name    string
	begin   time.Time
	column  time.Duration
	columns int
	layout  string
}

// lastHour returns the hour until the present minute.
func lastHour(now time.Time) period {
	begin := now.UTC().Truncate(time.Minute).Add(-sight.ShownMinutes * time.Minute)
	return period{"last hour", begin, time.Minute, sight.ShownMinutes, "15:04"}
}

// chart returns an empty chart of the period.
func (p period) chart(title string) chart {
	end := p.begin.Add(time.Duration(p.columns) * p.column)
	return chart{
		Title: title + ", " + p.name, Width: p.columns * columnWidth,
		Begin: p.begin.Format(p.layout), End: end.Format(p.layout) + " UTC",
	}
}

// inside returns the points of the period with their columns.
func (p period) inside(points []sight.Point, see func(column int, point sight.Point)) {
	for _, point := range points {
		column := int(point.At.Sub(p.begin) / p.column)
		if !point.At.Before(p.begin) && column < p.columns {
			see(column, point)
		}
	}
}

// callCharts returns the calls of the last hour, and how long they took, unless there were none.
func callCharts(now time.Time, points []sight.Point) []chart {
	p := lastHour(now)
	calls := p.chart("Calls")
	durations := p.chart("Duration of calls")
	var most, delivered, failed int
	isAtLeast := false
	p.inside(points, func(_ int, point sight.Point) {
		isAtLeast = isAtLeast || point.AtLeast
		most = max(most, point.Delivered+point.FailedCalls())
		delivered += point.Delivered
		failed += point.FailedCalls()
	})
	if isAtLeast {
		calls.Title += ", at least"
	}
	calls.Legend = []legendEntry{{"delivered", "delivered"}, {"failed", "failed"}}
	calls.Levels = []string{format.Number(max(most, 1)), "0"}
	calls.Summary = fmt.Sprintf("%s delivered, %s failed; at most %s in %s",
		format.Number(delivered), format.Number(failed), format.Number(most), format.Duration(p.column))
	calls.Headings = []string{"Time (UTC)", "Delivered", "Failed", "P50", "P99"}
	durations.Legend = []legendEntry{{"p50", "half of them (P50)"}, {"p99", "99 % of them (P99)"}}
	durations.Levels = []string{"> 2m", "< 10s", "< 300ms", "< 10ms"}
	p.inside(points, func(column int, point sight.Point) {
		at, bad := point.At.UTC().Format(p.layout), point.FailedCalls()
		p50, p99 := point.Durations.Percentile(50), point.Durations.Percentile(99)
		text := fmt.Sprintf("%s: %s delivered, %s failed", at, format.Number(point.Delivered), format.Number(bad))
		calls.Rows = append(calls.Rows,
			[]string{at, format.Number(point.Delivered), format.Number(bad), p50, p99})
		base := calls.column("delivered", column, 0, scale(point.Delivered, most), text)
		calls.column("failed", column, base, base+scale(bad, most), text)
		median, isKnown := point.Durations.Element(50)
		slow, _ := point.Durations.Element(99)
		if !isKnown {
			return
		}
		text = fmt.Sprintf("%s: P50 %s, P99 %s", at, p50, p99)
		base = durations.column("p50", column, 0, durationHeight(median), text)
		durations.column("p99", column, base, durationHeight(slow), text)
	})
	durations.Summary = "P50 and P99 are among the numbers of the calls"
	return withBars(calls, durations)
}

// withBars returns the charts that show something.
func withBars(charts ...chart) []chart {
	return slices.DeleteFunc(charts, func(c chart) bool { return len(c.Bars) == 0 })
}

// durationHeight returns the height of an element of [sight.Durations], whose limits grow about as a power.
func durationHeight(element int) int { return max(lowest, scale(element, len(sight.DurationLimits))) }

// dueCharts returns how many scheduled calls are due in the next hour and days, unless none is.
func dueCharts(due message.DueTimes) []chart {
	hour := period{"next hour", due.From, time.Minute, message.DueMinutes, "15:04"}
	days := period{"next 8 days", due.From, time.Hour, message.DueHours, "Jan 2 15:04"}
	waiting := fmt.Sprintf("%s due now, %s later than in 8 days", format.Number(due.Due), format.Number(due.Later))
	return withBars(countChart(hour, due.Minutes[:], waiting), countChart(days, due.Hours[:], waiting))
}

// countChart returns counts of a period.
func countChart(p period, counts []int, summary string) chart {
	c := p.chart("Next attempts")
	most, all := 0, 0
	for _, n := range counts {
		most = max(most, n)
		all += n
	}
	c.Levels = []string{format.Number(max(most, 1)), "0"}
	c.Legend = []legendEntry{{"due", "due"}}
	c.Summary = fmt.Sprintf("%s in the %s, at most %s in %s; %s",
		format.Number(all), p.name, format.Number(most), format.Duration(p.column), summary)
	c.Headings = []string{"From (UTC)", "Due"}
	for column, n := range counts {
		at := p.begin.Add(time.Duration(column) * p.column).UTC().Format(p.layout)
		if n > 0 {
			c.Rows = append(c.Rows, []string{at, format.Number(n)})
			c.column("due", column, 0, scale(n, most), at+": "+strconv.Itoa(n)+" due")
		}
	}
	return c
}

// column adds a bar from one height to another, and returns the latter. It adds none if they are the same.
func (c *chart) column(class string, column, from, to int, text string) int {
	if to > from {
		c.Bars = append(c.Bars, bar{class, column*columnWidth + 1, chartHeight - to, columnWidth - 2, to - from, text})
	}
	return to
}

// scale returns the height of a number.
func scale(n, most int) int {
	if n == 0 {
		return 0
	}
	return max(lowest, int(int64(n)*chartHeight/int64(most)))
}
