//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"asynccaller/handler/internal/program/demo/target"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/tools/azurite"
	"asynccaller/handler/tools/faults/judge"
	"asynccaller/handler/tools/faults/schedule"
	"asynccaller/handler/tools/storageproxy"
)

// TestContent checks that messages are sent as planned and are recognized again.
func TestContent(t *testing.T) {
	s := &system{}
	var err error
	s.target, err = target.Serve(t.Context(), s.targetHandler())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.target.Close)
	s.script.reset()
	now := time.Now()
	for number := range 50 {
		for _, m := range schedule.New(1, number).Messages {
			content := s.content(m, now)
			s.script.add(m, content)
			if id := s.script.idOf(storage.Base64.Encode(content)); id != m.ID {
				t.Errorf("%+v is recognized as %q", m, id)
			}
			e, err := envelope.Parse(content)
			if (err != nil) != (m.Outcome == schedule.Malformed) {
				t.Errorf("%+v: %v", m, err)
			}
			if err != nil {
				continue
			}
			if (e.Format() == envelope.FormatNexus) != m.Nexus || (e.Callback != nil) != (m.Callbacks != nil) ||
				e.Deadline.Before(now) {
				t.Errorf("%+v is sent as %s", m, content)
			}
		}
	}
}

// TestServeCall checks that callers get the planned answers, and that calls are recorded with the status that a
// callback reports.
func TestServeCall(t *testing.T) {
	s := &system{started: time.Now()}
	var err error
	s.target, err = target.Serve(t.Context(), s.targetHandler())
	if err != nil {
		t.Fatal(err)
	}
	s.script.reset()
	s.script.add(schedule.Message{ID: "m", Answers: []string{"503", "200"}, Callbacks: []string{"204"}}, nil)
	for _, test := range []struct {
		url, attempt string
		want         int
	}{
		{s.url("call", "m"), "1", 503},
		{s.url("call", "m"), "2", 200},
		{s.url("call", "m"), "9", 200},
		{s.url("callback", "m"), "1", 204},
		{s.url("call", "x"), "1", 410},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, test.url,
			strings.NewReader(`{"StatusCode":400}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-Async-Caller-Attempt", test.attempt)
		transport := &http.Transport{DisableKeepAlives: true}
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil || response.StatusCode != test.want {
			t.Errorf("%s, attempt %s: %d, %v; want %d", test.url, test.attempt, response.StatusCode, err, test.want)
		}
	}
	s.target.Close()
	events := s.takeEvents()
	if len(events) != 5 {
		t.Fatalf("%d events", len(events))
	}
	got := events[3]
	got.At, got.Report = 0, ""
	if want := (judge.Event{
		Kind: judge.Called, ID: "m.callback", Attempt: 1, Answer: "204",
		Reported: 400,
	}); got != want {
		t.Errorf("callback %+v, want %+v", got, want)
	}
}

func TestFaultsWaitForTheirPoint(t *testing.T) {
	var s script
	s.arm([]schedule.Fault{{Point: schedule.BeforeCall, ID: "m", Skip: 1, Action: schedule.KillHost}})
	for n, want := range []bool{false, true, false} {
		if f := s.at(schedule.BeforeCall, "m"); (f != nil) != want {
			t.Errorf("pass %d: fault %v, want one: %v", n+1, f, want)
		}
	}
	if f := s.at(schedule.AfterCall, "m"); f != nil {
		t.Errorf("%+v is injected at another point", f)
	}
}

func TestPlanLong(t *testing.T) {
	const n = 10_000
	once, forGood := 0, 0
	for _, m := range planLong(1, n) {
		switch {
		case m.Outcome == schedule.Rejected:
			forGood++
		case len(m.Answers) == 2:
			once++
		}
	}
	if once < n*9/100 || once > n*11/100 || forGood < n/200 || forGood > n/50 {
		t.Errorf("of %d, %d fail once and %d for good", n, once, forGood)
	}
}

// TestTableStates checks what the handler's table client meets in each state of the table service.
func TestTableStates(t *testing.T) {
	upstream, err := target.Serve(t.Context(),
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("x-ms-request-id", "1")
			w.Header().Set("x-ms-version", "2019-02-02")
			w.WriteHeader(http.StatusNoContent)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(upstream.Close)
	endpoint := "http://" + upstream.Addr + "/" + azurite.AccountName
	for state, want := range map[tableState]struct {
		err      error
		requests int
	}{
		healthy: {nil, 1}, stopped: {syscall.ECONNREFUSED, 0}, slow: {context.DeadlineExceeded, 1},
		refusing: {storage.ErrDenied, 1},
	} {
		r := &result{messages: io.Discard}
		s := &system{setup: setup{table: state}, result: r, storage: &azurite.Server{TableEndpoint: endpoint}}
		s.tableProxy, err = storageproxy.Open(t.Context(), endpoint, tableWatcher{s})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.tableProxy.Close)
		table := mustOpenTable(t, s.tableEndpoint())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := table.Delete(ctx, []storage.Key{{Partition: "async-caller", ID: "test"}})
		cancel()
		r.mu.Lock() // the proxy may still hold a request
		requests := r.ofTable(state).requests
		r.mu.Unlock()
		if !errors.Is(err, want.err) || requests != want.requests {
			t.Errorf("table %s: %v after %d requests; want %v and %d requests", state, err, requests, want.err,
				want.requests)
		}
	}
}

func mustOpenTable(t *testing.T, endpoint string) *azure.Table {
	t.Helper()
	table, err := azure.OpenTable(azure.Connection{
		TableEndpoint: endpoint, AccountName: azurite.AccountName,
		AccountKey: azurite.AccountKey,
	}, storage.ScheduledTable)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(table.Close)
	return table
}

func TestParseTable(t *testing.T) {
	for text, want := range map[string]int{"all": 4, "slow": 1, "": 0, "down": 0} {
		if states, err := parseTable(text); len(states) != want || (err == nil) != (want > 0) {
			t.Errorf("-table %q: %v, %v", text, states, err)
		}
	}
}

// TestUnusedTable checks that a run fails if the state of its table could not matter.
func TestUnusedTable(t *testing.T) {
	log := []byte(`not JSON
{"message":"calls that wait were not recorded in the last minute: away","messages":3}
{"message":"delivered","messages":1}
`)
	for name, test := range map[string]struct {
		use  []tableUse
		want string
	}{
		"never":    {nil, "no message was rescheduled"},
		"short":    {[]tableUse{{requests: 1}}, "no message was rescheduled"},
		"silent":   {[]tableUse{{delays: 2, lived: 1}}, "table stopped: 2 delays"},
		"killed":   {[]tableUse{{delays: 2}}, ""}, // before a handler could say so
		"received": {[]tableUse{{delays: 2, lived: 1}, {requests: 1}}, ""},
		"logged":   {[]tableUse{{delays: 2, lived: 1}, {lost: lostChanges(log)}}, ""},
	} {
		var r result
		for _, use := range test.use {
			r.useTable(stopped, use)
		}
		err := r.checkTables()
		if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	if n := lostChanges(log); n != 3 {
		t.Errorf("%d lost changes in the log, want 3", n)
	}
}

// TestRecorders checks which handlers had time to record a delay, or to report that they could not.
func TestRecorders(t *testing.T) {
	const killed, alive = 1, 2
	start := time.Now()
	var r recorders
	r.delayed(killed, start)
	r.delayed(alive, start.Add(time.Second))
	r.delayed(alive, start.Add(time.Minute)) // the first counts
	for _, step := range []struct {
		handler int
		after   time.Duration
		want    bool
	}{
		{alive, 50 * time.Second, false},
		{3, 10 * time.Minute, false}, // it has delayed nothing
		{alive, 92 * time.Second, true},
		{alive, 93 * time.Second, false}, // it is counted once
	} {
		if got := r.lived(step.handler, start.Add(step.after), recordTime[stopped]); got != step.want {
			t.Errorf("handler %d after %v: %v, want %v", step.handler, step.after, got, step.want)
		}
	}
}

func TestReport(t *testing.T) {
	r := result{messages: io.Discard}
	r.add(slow, judge.Verdict{
		Messages: 3, Calls: judge.Count{All: 4, Repeated: 1},
		Lost: []judge.Finding{{ID: "m", Text: "gone"}}, Unexplained: []judge.Finding{{ID: "n", Text: "odd"}},
	})
	for _, a := range []schedule.Action{schedule.KillHandler, schedule.KillHost, schedule.KillHandler} {
		r.inject(a)
	}
	r.useTable(slow, tableUse{delays: 2})
	r.useTable(slow, tableUse{requests: 5})
	var out bytes.Buffer
	r.print(&out)
	for _, want := range []string{
		"messages    3\n", "lost        1\n", "unexplained 1\n", "1 (25.0 %) of calls",
		"3: handler killed 2, host killed 1",
		"LOST m: gone", "UNEXPLAINED n: odd",
		"table       slow: 1 schedules, 3 messages, 1 lost, 1 unexplained, 1 (25.0 %) of calls repeated; " +
			"2 delays to record, 5 requests, 0 changes not recorded\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// TestDelivered finds the rows of the history in a transaction, whatever their texts are.
func TestDelivered(t *testing.T) {
	const body = "--batch\r\nPUT http://127.0.0.1/asynccallerhistory202611(PartitionKey='1',RowKey='a')\r\n\r\n" +
		`{"content":"e30=","reason":"delivered","requestId":"s1-m1","route":"/call/s{n}-m1"}` + "\r\n" +
		`{"PartitionKey":"1","reason":"rejected","requestId":"s1-m2"}` + "\r\n" +
		`{"content":"eyJvcmlnaW5hbCI6InMxLW0zIn0=","reason":"delivered","requestId":"guid"}` + "\r\n--batch--\r\n"
	if got := fmt.Sprint(delivered(body)); got != "[s1-m1 s1-m3.callback]" {
		t.Error(got)
	}
}
