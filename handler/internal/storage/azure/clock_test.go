package azure

import (
	"errors"
	"net/http"
	"testing"
	"time"
)

// answers is a transporter that answers with a Date.
type answers struct {
	date string
	err  error
}

func (a answers) Do(*http.Request) (*http.Response, error) {
	return &http.Response{Header: http.Header{"Date": {a.date}}, Body: http.NoBody}, a.err
}

// TestClock: the time of a table is storage's, unless it is about that of this machine, or unknown.
func TestClock(t *testing.T) {
	for name, row := range map[string]struct {
		ahead   time.Duration
		broken  bool
		failure error
		want    time.Duration
	}{
		"same":       {},
		"ahead":      {ahead: time.Minute, want: time.Minute},
		"behind":     {ahead: -5 * time.Second, want: -5 * time.Second},
		"no_date":    {ahead: time.Minute, broken: true},
		"no_answer":  {ahead: time.Minute, failure: errors.New("timeout")},
		"tolerated":  {ahead: 400 * time.Millisecond},
		"far_future": {ahead: 1000 * time.Hour, want: 1000 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			date := time.Now().Add(row.ahead).UTC().Format(http.TimeFormat)
			if row.broken {
				date = "soon"
			}
			table := &Table{clock: &clock{next: answers{date, row.failure}}}
			response, _ := table.clock.Do(&http.Request{})
			_ = response.Body.Close()
			got := time.Until(table.Now())
			if (got - row.want).Abs() > 2*time.Second { // a Date has whole seconds
				t.Errorf("%v ahead, want %v", got, row.want)
			}
		})
	}
}
