package ingress_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/ingress"
	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/gates/admission"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/route"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// The function of the route to which tests post, and the queue of its successors.
const (
	postFunction = "AC-in-orders-in"
	successors   = "async-caller-3"
)

const postRoutes = `{"orders-in": {"url": "https://shop.example/orders", "http": true, "priority": 3,
	"headers": {"X-Source": "queue"}, "keepHeaders": ["x-hub-signature"]}}`

// posts returns the functions for posts of an app, and what they need.
func (a *app) posts(tb testing.TB) ingress.Posts {
	tb.Helper()
	routes, err := route.Parse([]byte(postRoutes), func(*envelope.Envelope) error { return nil })
	if err != nil {
		tb.Fatal(err)
	}
	return ingress.Posts{
		Functions: []functionapp.Post{{Name: postFunction, Binding: "req", Output: "res", Queue: "orders-in"}},
		Routes:    routes, Poster: a.deliverer, Room: admission.NewRoom(1, 1, time.Now),
		Refused: &ingress.RefusedPosts{},
	}
}

// The identities of a post: by default, the host says that it has checked the key "shop".
const (
	principal = `{"AuthenticationType":"%s","Claims":[{"Type":"` +
		`http://schemas.microsoft.com/2017/07/functions/claims/authlevel","Value":"%s"},{"Type":"` +
		`http://schemas.microsoft.com/2017/07/functions/claims/keyid","Value":"shop"}]}`
	nobody = `{"AuthenticationType":null,"Claims":[]}`
)

func checked(level string) string { return fmt.Sprintf(principal, "WebJobsAuthLevel", level) }

// received is a post as the host passes it.
type received struct {
	method     string
	headers    map[string][]string
	body       any // nil is none
	identities string
}

// postOf returns the post of a text, in which a test changes what it is about.
func postOf(contentType, text string) received {
	return received{
		method: http.MethodPost,
		headers: map[string][]string{
			"Content-Type": {contentType}, "Content-Length": {strconv.Itoa(len(text))}, "Host": {"app.example"},
		},
		body: text, identities: nobody + "," + checked("Function"),
	}
}

func (p received) with(name string, values ...string) received {
	p.headers[name] = values
	if values == nil {
		delete(p.headers, name)
	}
	return p
}

// invocation returns the host's POST. Its metadata is the sender's.
func (p received) invocation(tb testing.TB) string {
	tb.Helper()
	request := map[string]any{
		"Url": "https://app.example/api/in/orders-in?code=planted", "Method": p.method, "Query": map[string]string{
			"code": "planted",
		}, "Headers": p.headers, "Params": map[string]string{}, "Identities": json.RawMessage("[" + p.identities + "]"),
	}
	if p.body != nil {
		request["Body"] = p.body
	}
	text, err := json.Marshal(map[string]any{
		"Data": map[string]any{"req": request}, "Metadata": map[string]any{"Id": "forged", "DequeueCount": "1"},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// told is the answer for the sender.
type told struct {
	StatusCode int
	Headers    map[string]string
	Body       string
}

// post passes a post as the host does, and returns what the host answers to the sender.
func (a *app) postTo(t *testing.T, handler http.Handler, body string) told {
	t.Helper()
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, invocation(t, postFunction, body))
	var answer struct{ Outputs map[string]told }
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil || recorder.Code != http.StatusOK {
		t.Fatalf("the host is answered %d %s: %v", recorder.Code, recorder.Body, err)
	}
	return answer.Outputs["res"]
}

// allBytes has every value of a byte.
func allBytes() string {
	var b bytes.Buffer
	for i := range 256 {
		b.WriteByte(byte(i))
	}
	return b.String()
}

func bytesOf(contentType, content string) received {
	p := postOf(contentType, content)
	p.body = base64.StdEncoding.EncodeToString([]byte(content))
	return p
}

func (p received) withBody(body any) received {
	p.body = body
	return p
}

func (p received) by(identities string) received {
	p.identities = identities
	return p
}

// TestPosts: a post becomes a call byte for byte, or is refused with what its sender has to change.
func TestPosts(t *testing.T) {
	const octets, plain = "application/octet-stream", "text/plain; charset=utf-8"
	chunked := postOf(plain, "").withBody(nil).with("Content-Length").with("Transfer-Encoding", "chunked")
	get := postOf(plain, "")
	get.method = http.MethodGet
	wide := strings.Repeat("四字熟語", 3)
	for name, c := range map[string]struct {
		post   received
		status int
		want   string // the body of the call, or a part of the answer
	}{
		"text":             {postOf(plain, "order å 🙂\u2028<&>\x00\r\n"), 202, "order å 🙂\u2028<&>\x00\r\n"},
		"json":             {postOf("application/json", `{"Id":"x", "Id":1}`), 202, `{"Id":"x", "Id":1}`},
		"empty":            {postOf(plain, "").withBody(nil), 202, ""},
		"empty_text":       {postOf(plain, ""), 202, ""},
		"no_type":          {postOf("", "x").with("Content-Type"), 202, "x"},
		"every_byte":       {bytesOf(octets, allBytes()), 202, allBytes()},
		"every_byte_parts": {bytesOf("Multipart/Form-Data; boundary=x", allBytes()), 202, allBytes()},
		"wide_text":        {postOf("text/plain", wide), 202, wide},
		"admin":            {postOf(plain, "x").by(checked("Admin")), 202, "x"},
		"as_texts":         {postOf(plain, "x"), 202, "x"},
		"anonymous":        {postOf(plain, "x").by(checked("Anonymous")), 401, "key"},
		"nobody":           {postOf(plain, "x").by(nobody), 401, "key"},
		"forged_before":    {postOf(plain, "x").by(checked("Admin") + "," + checked("Anonymous")), 401, "key"},
		"forged_twice":     {postOf(plain, "x").by(checked("Admin") + "," + checked("Function")), 401, "key"},
		"forged_type":      {postOf(plain, "x").by(fmt.Sprintf(principal, "webjobs", "Admin")), 401, "key"},
		"two_levels": {postOf(plain, "x").by(strings.Replace(checked("Anonymous"), `[`, `[{"Type":"http://schemas.`+
			`microsoft.com/2017/07/functions/claims/authlevel","Value":"Admin"},`, 1)), 401, "key"},
		"get":               {get, 405, "POST"},
		"chunked":           {chunked, 411, "chunks"},
		"no_length":         {postOf(plain, "").withBody(nil).with("Content-Length"), 411, "chunks"},
		"two_lengths":       {postOf(plain, "x").with("Content-Length", "1", "1"), 411, "Content-Length"},
		"lost":              {postOf(plain, "x").withBody(nil), 400, "did not arrive"},
		"short_bytes":       {bytesOf(octets, "abc").with("Content-Length", "4"), 400, "did not arrive"},
		"byte_order_mark":   {postOf(plain, "x").with("Content-Length", "4"), 415, octets},
		"latin_1":           {postOf(plain, "\ufffd").with("Content-Length", "3"), 415, octets},
		"utf_16":            {postOf("text/plain; charset=utf-16", "四字"), 415, octets},
		"text_for_bytes":    {postOf(octets, "abcd"), 400, "did not arrive"},
		"bytes_for_text":    {bytesOf(plain, "abc"), 415, octets},
		"gzip":              {bytesOf(octets, "abc").with("Content-Encoding", "gzip"), 415, "Content-Encoding"},
		"odd_type":          {postOf("text/plain; charset", "x"), 415, "Content-Type"},
		"two_types":         {postOf(plain, "x").with("Content-Type", plain, octets), 415, "Content-Type"},
		"two_keys":          {postOf(plain, "x").with("Idempotency-Key", "a", "b"), 400, "Idempotency-Key"},
		"empty_key":         {postOf(plain, "x").with("Idempotency-Key", ""), 400, "Idempotency-Key"},
		"long_key":          {postOf(plain, "x").with("Idempotency-Key", strings.Repeat("k", 129)), 400, "Idempotency"},
		"control_in_key":    {postOf(plain, "x").with("Idempotency-Key", "a\x01"), 400, "Idempotency-Key"},
		"control_in_header": {postOf(plain, "x").with("X-Hub-Signature", "planted\n"), 422, "X-Hub-Signature"},
		"no_room":           {bytesOf(octets, random(1<<20)), 413, "49152"},
		"larger_than_read":  {bytesOf(octets, random(2<<20)), 413, "2097152"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newApp(t, nil)
			body := c.post.with("X-Functions-Key", "planted").with("Cookie", "planted").invocation(t)
			if name == "as_texts" {
				body = asTexts(t, body)
			}
			answer := a.postTo(t, a, body)
			if answer.StatusCode != c.status {
				t.Fatalf("answered %d %s, want %d", answer.StatusCode, answer.Body, c.status)
			}
			written := a.contents(t, successors)
			if strings.Contains(a.log.String()+answer.Body+strings.Join(written, ""), "planted") {
				t.Errorf("a secret is in %s\n%s\n%s", a.log, answer.Body, written)
			}
			line := a.mustOneLine(t)
			if c.status != 202 {
				isProblem := answer.Headers["Content-Type"] == "application/problem+json"
				if len(written) > 0 || !strings.Contains(answer.Body, c.want) || !isProblem {
					t.Errorf("answered %s, wrote %q", answer.Body, written)
				}
				if line["message"] != "post refused" || line["status"] != float64(c.status) || line["level"] != "warn" {
					t.Errorf("logged %v", line)
				}
				return
			}
			if len(written) != 1 {
				t.Fatalf("wrote %q", written)
			}
			e, err := envelope.Parse([]byte(written[0]))
			if err != nil || string(e.Call.Body.Bytes()) != c.want || e.Call.URL != "https://shop.example/orders" {
				t.Errorf("wrote %s: %v", written[0], err)
			}
			var posted struct{ RequestID, Queue, MessageID string }
			if err := json.Unmarshal([]byte(answer.Body), &posted); err != nil || posted.RequestID != e.RequestID ||
				posted.Queue != successors || posted.MessageID == "" {
				t.Errorf("answered %s: %v", answer.Body, err)
			}
			if line["message"] != "post accepted" || line["key"] != "shop" || line["request_id"] != e.RequestID {
				t.Errorf("logged %v", line)
			}
		})
	}
}

// asTexts returns an invocation whose objects are in texts, as in Microsoft's examples.
func asTexts(t *testing.T, body string) string {
	t.Helper()
	var invocation struct {
		Data struct{ Req map[string]json.RawMessage }
	}
	if err := json.Unmarshal([]byte(body), &invocation); err != nil {
		t.Fatal(err)
	}
	request := map[string]string{}
	for name, value := range invocation.Data.Req {
		request[name] = string(value)
		if value[0] == '"' {
			_ = json.Unmarshal(value, new(string))
			var text string
			_ = json.Unmarshal(value, &text)
			request[name] = text
		}
	}
	packed, err := json.Marshal(map[string]any{"Data": map[string]any{"req": request}})
	if err != nil {
		t.Fatal(err)
	}
	return string(packed)
}

func random(bytes int) string {
	text := make([]byte, bytes)
	seed := uint32(1)
	for i := range text {
		seed = seed*1664525 + 1013904223
		text[i] = byte(seed >> 24)
	}
	return string(text)
}

// TestPostedHeaders: of a post, only the content type, the id, the trace and the headers that the route names go along.
func TestPostedHeaders(t *testing.T) {
	a := newApp(t, nil)
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	p := postOf("text/csv", "a;b").with("Idempotency-Key", "order-42").with("X-Hub-Signature", "s=1", "s=2").
		with("traceparent", parent).with("Authorization", "planted").with("X-Source", "sender").
		with("X-Forwarded-For", "planted")
	if answer := a.postTo(t, a, p.invocation(t)); answer.StatusCode != http.StatusAccepted {
		t.Fatal(answer)
	}
	e, err := envelope.Parse([]byte(a.contents(t, successors)[0]))
	if err != nil {
		t.Fatal(err)
	}
	want := http.Header{"Content-Type": {"text/csv"}, "X-Hub-Signature": {"s=1", "s=2"}, "X-Source": {"queue"}}
	if diff := cmp.Diff(want, e.Call.Header); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if e.RequestID != "order-42" || e.Trace.ID != parent[3:35] || e.Trace.Parent != parent[36:52] {
		t.Errorf("id %s, trace %+v", e.RequestID, e.Trace)
	}
}

// flaky is a queue whose first writes fail.
type flaky struct {
	*memory.Queues
	failures []error
	puts     int
}

func (f *flaky) Put(ctx context.Context, queue string, item storage.Item) (storage.Message, error) {
	f.puts++
	if len(f.failures) == 0 {
		return f.Queues.Put(ctx, queue, item)
	}
	err := f.failures[0]
	f.failures = f.failures[1:]
	if errors.Is(err, io.ErrUnexpectedEOF) { // the answer is lost
		_, _ = storage.PutCreating(ctx, f.Queues, queue, item)
	}
	return storage.Message{}, err
}

// TestPostsInOutages: a post is accepted only after storage has acknowledged its message, and is never more than two.
func TestPostsInOutages(t *testing.T) {
	lost := fmt.Errorf("put: %w", io.ErrUnexpectedEOF)
	busy := fmt.Errorf("put: %w", storage.ErrBusy)
	down := make([]error, 100)
	for i := range down {
		down[i] = storage.ErrNotSent
	}
	for name, c := range map[string]struct {
		failures         []error
		status, messages int
	}{
		"busy":       {[]error{busy, busy}, 202, 1},
		"lost":       {[]error{lost}, 202, 2},
		"lost_twice": {[]error{lost, busy, lost}, 503, 2},
		"refused":    {[]error{storage.ErrDenied}, 503, 0},
		"down":       {down, 503, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newApp(t, nil)
				a.deliverer.Settler = settle.New(&flaky{Queues: a.store, failures: c.failures}, storage.Base64)
				began := time.Now()
				answer := a.postTo(t, a, postOf("text/plain", "x").invocation(t))
				if answer.StatusCode != c.status || time.Since(began) > 5*time.Second {
					t.Errorf("answered %d %s after %v", answer.StatusCode, answer.Body, time.Since(began))
				}
				if got := len(a.contents(t, successors)); got != c.messages {
					t.Errorf("%d messages, want %d", got, c.messages)
				}
				if (answer.Headers["Retry-After"] != "") != (c.status == 503) {
					t.Errorf("headers %v", answer.Headers)
				}
			})
		})
	}
}

// waiting is a poster that waits until it is released.
type waiting struct {
	begun   sync.WaitGroup
	release chan struct{}
}

func (w *waiting) Post(context.Context, route.Route, route.Arrival) (delivery.Posted, error) {
	w.begun.Done()
	<-w.release
	return delivery.Posted{}, &delivery.TooLargeError{}
}

// TestPostsAtOnce: the posts that are served at once are limited, and those that are refused are logged in part.
func TestPostsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newApp(t, nil)
		w := &waiting{release: make(chan struct{})}
		posts := a.posts(t)
		posts.Poster = w
		log := zerolog.New(a.log)
		handler := ingress.Handler(nil, nil, posts, a, log)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		all.Go(func() { posts.Refused.Run(ctx, log) })
		body := postOf("text/plain", "x").invocation(t)
		w.begun.Add(64)
		for range 64 {
			all.Go(func() { a.postTo(t, handler, body) })
		}
		w.begun.Wait()
		for range 30 {
			answer := a.postTo(t, handler, body)
			if answer.StatusCode != http.StatusTooManyRequests || answer.Headers["Retry-After"] == "" {
				t.Fatalf("answered %+v", answer)
			}
		}
		if lines := len(a.lines(t)); lines != 10 {
			t.Errorf("%d lines", lines)
		}
		synctest.Wait()
		<-time.After(time.Minute + time.Second)
		lines := a.lines(t)
		last := lines[len(lines)-1]
		if last["posts"] != 30.0 || last["left_out"] != "the lines of 20 of them" || last["function"] != postFunction {
			t.Errorf("%v", last)
		}
		close(w.release)
	})
}

// TestPostsHold: while a setting is wrong, no post is accepted.
func TestPostsHold(t *testing.T) {
	a := newApp(t, nil)
	posts := a.posts(t)
	posts.IsHolding = true
	handler := ingress.Handler(nil, nil, posts, a, zerolog.New(a.log))
	answer := a.postTo(t, handler, postOf("text/plain", "x").invocation(t))
	if answer.StatusCode != http.StatusServiceUnavailable || answer.Headers["Retry-After"] == "" {
		t.Errorf("answered %+v", answer)
	}
}

// TestPostsToOthers: the body of a post means nothing at the path of another function.
func TestPostsToOthers(t *testing.T) {
	a := newApp(t, nil)
	body := postOf("text/plain", anEnvelope("")).invocation(t)
	for _, path := range []string{function, "in/orders-in", "api/in/orders-in", strings.ToLower(postFunction)} {
		recorder := httptest.NewRecorder()
		a.ServeHTTP(recorder, invocation(t, path, body))
		if recorder.Code == http.StatusOK {
			t.Errorf("%s: %d %s", path, recorder.Code, recorder.Body)
		}
	}
	foreign := invocation(t, postFunction, body)
	foreign.Host = "app.example"
	recorder := httptest.NewRecorder()
	a.ServeHTTP(recorder, foreign)
	if recorder.Code != http.StatusForbidden || len(a.contents(t, successors)) > 0 {
		t.Errorf("with a foreign Host: %d", recorder.Code)
	}
}

// FuzzPost: any body of the host is answered, and a post that is accepted is a message.
func FuzzPost(f *testing.F) {
	f.Add([]byte(postOf("text/plain", "x").invocation(f)))
	f.Add([]byte(bytesOf("application/octet-stream", allBytes()).invocation(f)))
	f.Add([]byte(`{"Data":{"req":{"Headers":"{\"A\":[\"b\"]}","Identities":"[null]","Method":null,"Body":{}}}}`))
	f.Add([]byte(`{"Data":{"req":{"Headers":{"":[1]}}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		a := newApp(t, nil)
		recorder := httptest.NewRecorder()
		a.ServeHTTP(recorder, invocation(t, postFunction, string(body)))
		reply{recorder.Code, recorder.Header(), recorder.Body.String()}.wantUsable(t)
		var answer struct{ Outputs map[string]told }
		_ = json.Unmarshal(recorder.Body.Bytes(), &answer)
		accepted := answer.Outputs["res"].StatusCode == http.StatusAccepted
		if accepted != (len(a.contents(t, successors)) == 1) || strings.Contains(a.log.String(), `"panic"`) {
			t.Errorf("answered %s\n%s", recorder.Body, a.log)
		}
	})
}
