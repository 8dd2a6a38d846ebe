package ingress_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/ingress"
)

const taskName = "Nightly"

// timerBody is the body that host 4.24 sends for a timer, with the schedule's state.
const timerBody = `{"Data":{"timer":{"Schedule":{"AdjustForDST":true},` +
	`"ScheduleStatus":{"Last":"2026-05-15T17:40:00+00:00","Next":"2026-05-15T17:45:00` +
	`+00:00","LastUpdated":"2026-05-15T17:40:00+00:00"},"IsPastDue":false}},` +
	`"Metadata":{"sys":{"MethodName":"Nightly","UtcNow":"2026-05-15T17:45:00.0042750Z",` +
	`"RandGuid":"35e6e68c-5583-436c-a277-5aec2b416ba8"}}}`

// newTaskApp returns an app with a queue function and a task.
func newTaskApp(tb testing.TB, task ingress.Task) *app {
	tb.Helper()
	a := newApp(tb, answers(http.StatusServiceUnavailable))
	functions := []functionapp.Function{{
		Name: function, Binding: "msg", Queue: mainQueue,
		DataType: functionapp.DataBinary,
	}}
	tasks := map[string]ingress.Task{taskName: task}
	a.Handler = ingress.Handler(functions, tasks, ingress.Posts{}, a, zerolog.New(a.log))
	return a
}

// runTask invokes the task as the host does in Azure: chunked.
func runTask(t *testing.T, server *httptest.Server) reply {
	t.Helper()
	return do(t, server, http.MethodPost, "/"+taskName, struct{ io.Reader }{strings.NewReader(timerBody)})
}

func says(summary string, err error) ingress.Task {
	return func(context.Context) (string, error) { return summary, err }
}

// TestTaskAnswers: the answer and one log line show whether the run succeeded, and the answer is never empty.
func TestTaskAnswers(t *testing.T) {
	for name, row := range map[string]struct {
		task   ingress.Task
		status int
		line   map[string]any
	}{
		"done": {
			says("kept 3 messages", nil), 200,
			map[string]any{"level": "info", "message": "task done", "detail": "kept 3 messages"},
		},
		"no_summary":   {says("", nil), 200, map[string]any{"level": "info", "message": "task done", "detail": "done"}},
		"invalid_utf8": {says("caf\xe9", nil), 200, map[string]any{"level": "info", "detail": "caf\ufffd"}},
		"failed": {
			says("half of it", errors.New("list queue x: storage refused")), 500,
			map[string]any{
				"level": "error", "message": "task failed: it runs again at its next time",
				"error": "list queue x: storage refused",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newTaskApp(t, row.task)

			reply := runTask(t, a.start(t))

			if reply.status != row.status {
				t.Fatalf("answered %d %s, want %d", reply.status, reply.body, row.status)
			}
			if row.status != http.StatusOK && !strings.Contains(reply.body, row.line["error"].(string)) {
				t.Errorf("%s does not contain the error", reply.body)
			}
			line := a.mustOneLine(t)
			row.line["function"], row.line["invocation_id"] = taskName, invocationID
			for field, want := range row.line {
				if line[field] != want {
					t.Errorf("%s is %v, want %v", field, line[field], want)
				}
			}
			if took, ok := line["took"].(float64); !ok || took != math.Trunc(took) {
				t.Errorf("the line has no duration in whole milliseconds: %v", line)
			}
		})
	}
}

// TestTaskBodies: a task runs whatever the body, unless the body is too large.
func TestTaskBodies(t *testing.T) {
	for name, row := range map[string]struct {
		body   string
		status int
	}{
		"as_the_host":      {timerBody, 200},
		"empty":            {``, 200},
		"not_json":         {`hello`, 200},
		"2_mib_and_1_byte": {strings.Repeat(" ", 2<<20+1), 413},
	} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			a := newTaskApp(t, func(context.Context) (string, error) { runs++; return "done", nil })
			reply := do(t, a.start(t), http.MethodPost, "/"+taskName, struct{ io.Reader }{strings.NewReader(row.body)})
			if reply.status != row.status || (runs == 1) != (row.status == 200) {
				t.Errorf("answered %d after %d runs, want %d", reply.status, runs, row.status)
			}
		})
	}
}

// TestTaskPanic: a panic makes one run fail, and the next run starts.
func TestTaskPanic(t *testing.T) {
	runs := 0
	a := newTaskApp(t, func(context.Context) (string, error) {
		runs++
		if runs == 1 {
			panic("a bug of ours")
		}
		return "recovered", nil
	})
	server := a.start(t)

	if reply := runTask(t, server); reply.status != http.StatusInternalServerError {
		t.Fatalf("answered %d %s, want 500", reply.status, reply.body)
	}
	line := a.mustOneLine(t)
	if line["panic"] != "a bug of ours" || line["level"] != "error" || line["function"] != taskName ||
		line["message"] != "panic: it runs again at its next time" {
		t.Errorf("want the panic at error level, got %v", line)
	}
	if stack, _ := line["stack"].(string); !strings.Contains(stack, "task_test.go") {
		t.Errorf("the stack does not show the place of the panic: %q", stack)
	}
	if reply := runTask(t, server); reply.status != http.StatusOK {
		t.Errorf("the next run was answered %d %s", reply.status, reply.body)
	}
}

// TestTaskInProgress: during a run, another invocation is answered at once and starts no run.
func TestTaskInProgress(t *testing.T) {
	started, release := make(chan struct{}, 2), make(chan struct{})
	a := newTaskApp(t, func(context.Context) (string, error) {
		started <- struct{}{}
		<-release
		return "at last", nil
	})
	server := a.start(t)
	end := sync.OnceFunc(func() { close(release) })
	defer end() // otherwise the server waits after a failure
	var first sync.WaitGroup
	first.Go(func() {
		if reply := runTask(t, server); reply.status != http.StatusOK {
			t.Errorf("the first run was answered %d %s", reply.status, reply.body)
		}
	})
	<-started

	second := runTask(t, server)

	if second.status != http.StatusOK {
		t.Errorf("the second run was answered %d %s", second.status, second.body)
	}
	if line := a.mustOneLine(t); line["level"] != "warn" || line["function"] != taskName ||
		line["message"] != "task not started: a run is in progress" {
		t.Errorf("want a warning that names the function, got %v", line)
	}
	post(t, server, binary(anEnvelope(""), goodMetadata)).wantStatus(t, http.StatusOK) // messages are still handled
	end()
	first.Wait()
	if reply := runTask(t, server); reply.status != http.StatusOK || len(started) != 1 {
		t.Errorf("after the first run: answered %s", reply.body)
	}
}

// TestTaskContext: the task's context ends when the host hangs up, and carries a logger with the invocation's id.
func TestTaskContext(t *testing.T) {
	started, ended := make(chan struct{}), make(chan error, 1)
	a := newTaskApp(t, func(ctx context.Context) (string, error) {
		zerolog.Ctx(ctx).Info().Msg("working")
		close(started)
		<-ctx.Done()
		ended <- ctx.Err()
		return "", ctx.Err()
	})
	server := a.start(t)
	ctx, hangUp := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/"+taskName,
		strings.NewReader(timerBody))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Azure-Functions-InvocationId", invocationID)
	go func() {
		<-started
		hangUp()
	}()
	if response, err := server.Client().Do(request); err == nil {
		response.Body.Close()
		t.Errorf("answered %d", response.StatusCode)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the task's context ended with %v", err)
	}
	server.Close() // waits for the handler
	lines := a.lines(t)
	if len(lines) != 2 || lines[0]["message"] != "working" || lines[0]["invocation_id"] != invocationID ||
		lines[1]["level"] != "error" {
		t.Errorf("want the task's line and a failure, got\n%s", a.log)
	}
}
