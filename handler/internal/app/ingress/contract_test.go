package ingress_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
)

// anEnvelope returns an envelope with a plain call and extra members.
func anEnvelope(extra string) string {
	return `{"asyncCaller":1,"requestId":"r1","call":{"url":"https://t.example/"}` + extra + `}`
}

// TestRefusedInvocations: a body that the host never sends is an error, which does not quote it. Nothing is written,
// and the host keeps the message.
func TestRefusedInvocations(t *testing.T) {
	for name, row := range map[string]struct {
		body string
		says string
	}{
		"empty":                 {``, "not JSON"},
		"not_json":              {`hello`, "not JSON"},
		"cut_off":               {`{"Data":{"msg":"aGVs`, "not JSON"},
		"two_values":            {`{"Data":{"msg":"aGVsbG8="}} {}`, "not JSON"},
		"null":                  {`null`, "want an object, not null"},
		"array":                 {`[]`, ""},
		"string":                {`"aGVsbG8="`, ""},
		"no_data":               {`{"Metadata":{}}`, "Data.msg"},
		"data_null":             {`{"Data":null,"Metadata":{}}`, "Data.msg"},
		"data_string":           {`{"Data":"aGVsbG8=","Metadata":{}}`, ""},
		"data_array":            {`{"Data":["aGVsbG8="],"Metadata":{}}`, ""},
		"other_binding":         {`{"Data":{"message":"aGVsbG8="},"Metadata":{}}`, "name of the binding"},
		"binding_in_other_case": {`{"Data":{"MSG":"aGVsbG8="},"Metadata":{}}`, "name of the binding"},
		"content_null":          {`{"Data":{"msg":null},"Metadata":{}}`, "Data.msg: "},
		"content_number":        {`{"Data":{"msg":5},"Metadata":{}}`, "Data.msg: "},
		"content_object":        {`{"Data":{"msg":{"asyncCaller":1}},"Metadata":{}}`, "Data.msg: "},
		"content_array":         {`{"Data":{"msg":["aGVsbG8="]},"Metadata":{}}`, "Data.msg: "},
		"base64_invalid":        {`{"Data":{"msg":"hello!"},"Metadata":{}}`, "base64"},
		"base64_invalid_late":   {`{"Data":{"msg":"` + strings.Repeat("aGVs", 99) + `aG!s"},"Metadata":{}}`, "base64"},
		"base64_no_padding":     {`{"Data":{"msg":"aGVsbG8"},"Metadata":{}}`, "base64"},
		"base64_padding_inside": {`{"Data":{"msg":"aG8=aG8="},"Metadata":{}}`, "base64"},
		"base64_cut_off":        {`{"Data":{"msg":"aGVsb"},"Metadata":{}}`, "base64"},
		"base64_space":          {`{"Data":{"msg":"aGVs bG8="},"Metadata":{}}`, "base64"},
		"base64_for_urls":       {`{"Data":{"msg":"_-_-"},"Metadata":{}}`, "base64"},
		"text_not_json":         {`{"Data":{"msg":"\"hello"},"Metadata":{}}`, "JSON string"},
		"text_and_more":         {`{"Data":{"msg":"\"hello\" \"you\""},"Metadata":{}}`, "JSON string"},
		"metadata_string":       {`{"Data":{"msg":"aGVsbG8="},"Metadata":"none"}`, ""},
		"secret_not_json":       {canary, "not JSON"},
		"secret_data_string":    {`{"Data":"C4nary","Metadata":{}}`, ""},
		"secret_not_base64":     {`{"Data":{"msg":"C4nary!"},"Metadata":{}}`, "base64"},
		"secret_not_text":       {`{"Data":{"msg":"\"C4nary"},"Metadata":{}}`, "JSON string"},
		"secret_metadata":       {`{"Data":{"msg":"aGVsbG8="},"Metadata":"C4nary"}`, ""},
		"secret_content_object": {`{"Data":{"msg":{"C4nary":"C4nary"}},"Metadata":{}}`, "Data.msg: "},
		"secret_too_large":      {strings.Repeat(canary, 1<<19), ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := newApp(t, nil)

			reply := post(t, a.start(t), row.body)

			if reply.status < 400 || reply.status > 599 {
				t.Errorf("answered %d", reply.status)
			}
			if !strings.Contains(reply.body, row.says) {
				t.Errorf("%s does not contain %q", reply.body, row.says)
			}
			a.wantNoSecret(t, reply)
			a.wantContents(t, mainQueue)
			a.wantContents(t, poisonQueue)
			if line := a.mustOneLine(t); line["level"] != "error" || line["error"] == "" ||
				line["invocation_id"] != invocationID || line["function"] != function {
				t.Errorf("want an error line that names invocation and function, got %v", line)
			}
		})
	}
}

// TestTolerantBase64: line breaks in the base64 text, and bits after its last byte, do not count.
func TestTolerantBase64(t *testing.T) {
	long := strings.Repeat("hello ", 20)
	for name, row := range map[string]struct{ data, content string }{
		"plain":             {`aGVsbG8=`, "hello"},
		"line_breaks":       {`aGVs\r\nbG8=\n`, "hello"},
		"within_four":       {`aGV\nsbG8=`, "hello"},
		"within_padding":    {`aA=\n=`, "h"},
		"long_line_breaks":  {strings.Repeat(`aGVsbG8g`, 10) + `\n` + strings.Repeat(`aGVsbG8g`, 10), long},
		"long_within_four":  {strings.Repeat(`aGVsbG8g`, 10) + `a\nGVsbG8g` + strings.Repeat(`aGVsbG8g`, 9), long},
		"bits_after_a_byte": {`aGVsbG9=`, "hello"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newApp(t, nil)
			post(t, a.start(t), `{"Data":{"msg":"`+row.data+`"},"Metadata":{}}`).wantStatus(t, http.StatusOK)
			a.wantContents(t, poisonQueue, row.content)
		})
	}
}

// TestLargeInvocations: the largest messages are accepted with the longest escapes, and with members copied into the
// metadata.
func TestLargeInvocations(t *testing.T) {
	full := storage.Base64.MaxContentBytes()
	// 0x01 is \u0001 in the inner JSON and \\u0001 in the outer: seven bytes.
	control := strings.Repeat("\x01", full)
	quotes := `{"a":"` + strings.Repeat(`\"`, full/2-4) + `"}`
	if bytes := len(text(t, control, goodMetadata)); bytes < 300<<10 {
		t.Fatalf("the invocation has only %d bytes", bytes)
	}
	copied := `{"a":` + mustEncode(t, mustEncode(t, strings.Repeat(`"`, full/2-4))) + `}`
	for name, row := range map[string]struct{ body, content string }{
		"text_control_characters": {text(t, control, goodMetadata), control},
		"text_object_in_metadata": {text(t, quotes, copied), quotes},
		"binary":                  {binary(control, goodMetadata), control},
	} {
		t.Run(name, func(t *testing.T) {
			a := newApp(t, nil)
			// under `func start` the host sends a length, and not chunks
			do(t, a.start(t), http.MethodPost, "/"+function, strings.NewReader(row.body)).wantStatus(t, http.StatusOK)
			if got := a.contents(t, poisonQueue); len(got) != 1 || got[0] != row.content {
				t.Errorf("%d dead letters, not the message as it came", len(got))
			}
		})
	}
}

// TestBodySize: a body up to 2 MiB is accepted, a larger one is refused.
func TestBodySize(t *testing.T) {
	padded := func(size int) string {
		body := binary("hello", goodMetadata)
		return strings.Repeat(" ", size-len(body)) + body
	}
	for name, row := range map[string]struct{ size, status, poison int }{
		"1_mib":            {1 << 20, http.StatusOK, 1},
		"2_mib":            {2 << 20, http.StatusOK, 1},
		"2_mib_and_1_byte": {2<<20 + 1, http.StatusRequestEntityTooLarge, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a := newApp(t, nil)
			if reply := post(t, a.start(t), padded(row.size)); reply.status != row.status {
				t.Errorf("answered %d, want %d", reply.status, row.status)
			}
			if got := len(a.contents(t, poisonQueue)); got != row.poison {
				t.Errorf("%d dead letters, want %d", got, row.poison)
			}
		})
	}
}

// TestBrokenConnection: a body that breaks off is refused.
func TestBrokenConnection(t *testing.T) {
	a := newApp(t, nil)
	server := a.start(t)
	body, host := io.Pipe()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/"+function, body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Azure-Functions-InvocationId", invocationID)
	go func() {
		_, _ = io.WriteString(host, `{"Data":{"msg":"aGVsbG8="}`)
		_ = host.CloseWithError(errors.New("the host died"))
	}()
	if response, err := server.Client().Do(request); err == nil {
		response.Body.Close()
		t.Errorf("answered %d", response.StatusCode)
	}
	server.Close() // waits for the handler
	a.wantContents(t, poisonQueue)
	a.wantContents(t, mainQueue)
}

// TestRoutes: GET / is answered, and unknown paths and methods are refused. A task runs at its own path alone.
func TestRoutes(t *testing.T) {
	for name, row := range map[string]struct {
		method, path string
		status       int
	}{
		"ready":                  {http.MethodGet, "/", 200},
		"unknown_function":       {http.MethodPost, "/Other", 404},
		"function_in_other_case": {http.MethodPost, "/queuefn", 404},
		"below_function":         {http.MethodPost, "/" + function + "/x", 404},
		"slash_at_the_end":       {http.MethodPost, "/" + function + "/", 404},
		"slash_twice":            {http.MethodPost, "//" + function, 404},
		"dot_segment":            {http.MethodPost, "/./" + function, 404},
		"dot_segment_escaped":    {http.MethodPost, "/api/%2e%2e/" + function, 404},
		"slash_escaped":          {http.MethodPost, "/api/..%2f" + function, 404},
		"function_escaped":       {http.MethodPost, "/%51ueueFn", 404},
		"get_function":           {http.MethodGet, "/" + function, 405},
		"put_function":           {http.MethodPut, "/" + function, 405},
		"post_root":              {http.MethodPost, "/", 405},
		"task":                   {http.MethodPost, "/" + taskName, 200},
		"task_in_other_case":     {http.MethodPost, "/nightly", 404},
		"below_task":             {http.MethodPost, "/" + taskName + "/x", 404},
		"get_task":               {http.MethodGet, "/" + taskName, 405},
		"other_task":             {http.MethodPost, "/Weekly", 404},
	} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			a := newTaskApp(t, func(context.Context) (string, error) { runs++; return "done", nil })
			reply := do(t, a.start(t), row.method, row.path, strings.NewReader(binary("hello", goodMetadata)))
			if reply.status != row.status || (runs == 1) != (name == "task") {
				t.Errorf("answered %d after %d runs of the task, want %d", reply.status, runs, row.status)
			}
			a.wantContents(t, poisonQueue)
		})
	}
}

// TestReadyWhileBusy: GET / is answered at once while every call hangs, and every invocation is answered in the end.
func TestReadyWhileBusy(t *testing.T) {
	const invocations = 50
	started, release := make(chan struct{}, invocations), make(chan struct{})
	a := newApp(t, caller(func(context.Context, *envelope.Envelope) decision.Outcome {
		started <- struct{}{}
		<-release
		return decision.Outcome{Status: 500}
	}))
	server := a.start(t)
	var replies sync.WaitGroup
	for i := range invocations {
		replies.Go(func() {
			content := fmt.Sprintf(`{"asyncCaller":1,"requestId":"r%d","call":{"url":"https://t.example/"}}`, i)
			if got := post(t, server, binary(content, goodMetadata)).status; got != http.StatusOK {
				t.Errorf("invocation %d was answered %d", i, got)
			}
		})
	}
	for range invocations {
		<-started
	}

	ready := do(t, server, http.MethodGet, "/", http.NoBody)

	if ready.status != http.StatusOK {
		t.Errorf("answered %d", ready.status)
	}
	if lines := a.lines(t); len(lines) > 0 {
		t.Errorf("no invocation has ended yet: %v", lines)
	}
	close(release)
	replies.Wait()
	if got := len(a.contents(t, mainQueue)); got != invocations {
		t.Errorf("%d successors, want %d", got, invocations)
	}
	if got := len(a.lines(t)); got != invocations {
		t.Errorf("%d log lines, want %d", got, invocations)
	}
}

// TestPanic: a panic makes one invocation fail, and the handler continues.
func TestPanic(t *testing.T) {
	a := newApp(t, caller(func(_ context.Context, e *envelope.Envelope) decision.Outcome {
		if e.RequestID == "r1" {
			panic("a bug of ours")
		}
		return decision.Outcome{Status: 200}
	}))
	server := a.start(t)

	post(t, server, binary(anEnvelope(""), goodMetadata)).wantStatus(t, http.StatusInternalServerError)

	line := a.mustOneLine(t)
	if line["panic"] != "a bug of ours" || line["level"] != "error" || line["message_id"] != messageID ||
		line["invocation_id"] != invocationID {
		t.Errorf("want the panic at error level with the message's ids, got %v", line)
	}
	if stack, _ := line["stack"].(string); !strings.Contains(stack, "contract_test.go") {
		t.Errorf("the stack does not show the place of the panic: %q", stack)
	}
	a.wantContents(t, mainQueue)
	a.wantContents(t, poisonQueue)
	post(t, server, binary(`{"asyncCaller":1,"requestId":"r2","call":{"url":"https://t.example/"}}`, goodMetadata)).
		wantStatus(t, http.StatusOK)
}
