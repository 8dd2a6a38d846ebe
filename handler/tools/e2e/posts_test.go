package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/tools/azurite"
	"asynccaller/handler/tools/azurite/azuritetest"
	"asynccaller/handler/tools/storageproxy"
	"asynccaller/handler/tools/testbed"
)

const (
	postKey    = "planted-function-key"
	ofPosts    = "HTTP function: "
	octets     = "application/octet-stream"
	noPosts    = "its HTTP functions have keys that only the portal shows"
	noPostsYet = "a worker takes no posts"
)

// startPosts starts the host with a route that takes posts and calls the target, and returns the URL of its function.
func (f *fixture) startPosts(script string, env ...string) (url string) {
	f.t.Helper()
	routes := fmt.Sprintf(`{"orders-in":{"url":%q,"http":true,"queue":false,"keepHeaders":["X-Hub-Signature"],`+
		`"retry":{"schedule":["1s"]}}}`, f.target.URL(script))
	return f.startRoutes(routes, env...) + "/api/in/orders-in"
}

// startRoutes starts the host with a routes.json, and returns the URL of the HTTP functions without their path.
func (f *fixture) startRoutes(routes string, env ...string) (root string) {
	f.t.Helper()
	f.must(os.WriteFile(filepath.Join(f.app, "routes.json"), []byte(routes), 0o600))
	command, stdout, stderr := f.operate("routes", "sync")
	if err := command.Run(); err != nil {
		f.t.Fatalf("%v\n%s%s", err, stdout, stderr)
	}
	// An outage can keep messages leased that the host has not got.
	f.start(env, "-http", "127.0.0.1:0", "-key", postKey, "-lease", "10s")
	f.await("the HTTP function", func() bool { return len(f.host.Lines(ofPosts)) > 0 && f.host.HandlerPID() != 0 })
	root, _, _ = strings.Cut(strings.TrimPrefix(fmt.Sprint(f.host.Lines(ofPosts)[0]["message"]), ofPosts), "/api/")
	return root
}

// post posts a body with headers, in pairs of name and value, and returns the answer.
func post(ctx context.Context, url string, body io.Reader, headers ...string) (status int, text string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return 0, "", err
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, string(content), err
}

// TestPosts: what is posted arrives at the target byte for byte, at the first attempt and after a failure, or is
// refused. The key is found nowhere.
func TestPosts(t *testing.T) {
	t.Parallel()
	needsHost(t, noPostsYet)
	onlyLocal(t, noPosts)
	f := newFixture(t, options{azurite: true})
	url := f.startPosts("503,200")
	random := make([]byte, 5<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(random)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	large := []byte(`["` + strings.Repeat(`order 4711 of crm.example.com", "`, 200<<10/32) + `"]`)
	accepted := map[string][]byte{}
	for id, c := range map[string]struct {
		contentType string
		body        []byte
		status      int
	}{
		"empty":     {"text/plain", nil, 202},
		"json":      {"application/json", []byte(`{"Id":"forged","DequeueCount":9,"å":"🙂"}`), 202},
		"all_bytes": {octets, all, 202},
		"30_kib":    {octets, random[:30<<10], 202},
		"200_kib":   {"application/json", large, 202},
		"48_kib":    {octets, random[:48<<10], 413},
		"5_mb":      {octets, random, 413},
		"latin_1":   {"text/plain", []byte("\xe5"), 415},
		"bom":       {"text/plain; charset=utf-8", []byte("\xef\xbb\xbfx"), 415},
		"utf_16":    {"text/plain", []byte("\xff\xfex\x00"), 415},
		"wide":      {"text/plain", []byte("四字熟語"), 202},
		"gzip":      {"text/plain", []byte("\x1f\x8b\x08\x00\x00"), 415},
		"signed":    {"multipart/form-data; boundary=x", []byte("\xff"), 202},
	} {
		status, text, err := post(t.Context(), url+"?code="+postKey, bytes.NewReader(c.body),
			"Content-Type", c.contentType, "Idempotency-Key", id, "X-Hub-Signature", "sha256=1", "Cookie", postKey)
		if err != nil || status != c.status || strings.Contains(text, postKey) {
			t.Errorf("%s: answered %d %s, want %d: %v", id, status, text, c.status, err)
		}
		if c.status == http.StatusAccepted {
			accepted[id] = c.body
		}
	}
	for id, want := range accepted {
		f.await(id+" to be delivered", func() bool { return len(f.target.Calls(id)) == 2 })
		for _, call := range f.target.Calls(id) {
			_, hasCookie := call.Header["Cookie"]
			if !bytes.Equal(call.Body, want) || call.Header.Get("X-Hub-Signature") != "sha256=1" || hasCookie {
				t.Errorf("%s: called with %d bytes, %v", id, len(call.Body), call.Header)
			}
		}
	}
	f.refusePosts(url)
	if strings.Contains(f.host.Output(), postKey) {
		t.Error("the log has the key")
	}
	if f.count(poisonQueue) > 0 {
		t.Error("there are dead letters")
	}
	f.stopAndCount(map[string]float64{"failed": 0})
}

// refusePosts makes requests that an outsider can make, and of which nothing may come.
func (f *fixture) refusePosts(url string) {
	f.t.Helper()
	const invocation = "0f4dbbbd-7b3c-4f0a-8c62-0a4ac11d4d0e"
	accepted := len(f.host.Lines("post accepted"))
	envelope := fmt.Sprintf(`{"Data":{"message":%q},"Metadata":{}}`,
		storage.Base64.Encode([]byte(envelopeTo(f.target.URL("200")))))
	root := strings.TrimSuffix(url, "/api/in/orders-in")
	for path, want := range map[string]int{
		"/AC-standard": 404, "/api/AC-standard": 404, "/AC-in-orders-in": 404,
		"/api/in/orders-in/..%2f..%2fAC-standard": 404,
		"/api/in/orders-in":                       401, "/API/in/Orders-In/?code=wrong": 401,
	} {
		status, text, err := post(f.t.Context(), root+path, strings.NewReader(envelope),
			"Content-Type", "application/json", "X-Azure-Functions-InvocationId", invocation)
		if err != nil || status != want {
			f.t.Errorf("%s: answered %d %s, want %d: %v", path, status, text, want, err)
		}
	}
	// chunked, two keys, no key of the function but a user who says that he is an admin
	for text, c := range map[string]struct {
		body    io.Reader
		headers []string
		status  int
	}{
		"chunked":  {struct{ io.Reader }{strings.NewReader("x")}, nil, 411},
		"two keys": {strings.NewReader("x"), []string{"Idempotency-Key", "a", "Idempotency-Key", "b"}, 400},
		"admin": {strings.NewReader("x"), []string{"X-Ms-Client-Principal", storage.Base64.Encode([]byte(
			`{"auth_typ":"WebJobsAuthLevel","claims":[{"typ":"` +
				`http://schemas.microsoft.com/2017/07/functions/claims/authlevel","val":"Admin"}]}`))}, 401},
	} {
		headers := append(c.headers, "Content-Type", "text/plain", "X-Functions-Key", postKey)
		status, said, err := post(f.t.Context(), url, c.body, headers...)
		if err != nil || status != c.status {
			f.t.Errorf("%s: answered %d %s, want %d: %v", text, status, said, c.status, err)
		}
	}
	if got := len(f.host.Lines("post accepted")); got != accepted {
		f.t.Errorf("%d posts were accepted", got-accepted)
	}
}

// breaking breaks every twentieth write of storage before it, and every twentieth after it.
type breaking struct{ writes atomic.Int64 }

func (b *breaking) Before(r storageproxy.Request) (o storageproxy.Order) {
	if r.Operation == storageproxy.Put && b.writes.Add(1)%20 == 0 {
		o.Reset = true
	}
	return o
}

func (b *breaking) After(r storageproxy.Request, _ storageproxy.Answer) (o storageproxy.Order) {
	if r.Operation == storageproxy.Put && b.writes.Load()%20 == 10 {
		o.Reset = true
	}
	return o
}

// TestPostsDuringAnOutage: every post that was accepted is delivered, whatever happens to storage.
func TestPostsDuringAnOutage(t *testing.T) {
	t.Parallel()
	needsHost(t, noPostsYet)
	onlyLocal(t, noPosts)
	postMany(t, 300, 0)
}

// postMany makes posts, 50 at a time, while connections break, and Azurite stops in between for an outage.
func postMany(t *testing.T, posts int, outage time.Duration) {
	t.Helper()
	f := newFixture(t, options{})
	server := azuritetest.Start(t, azurite.Options{Data: t.TempDir()})
	proxy, err := storageproxy.Open(t.Context(), server.Endpoint, &breaking{})
	f.must(err)
	t.Cleanup(proxy.Close)
	f.connectionString = proxy.Through(server.ConnectionString)
	f.store, err = testbed.OpenStore(f.connectionString)
	f.must(err)
	t.Cleanup(f.store.Close)
	f.must(f.store.Create(t.Context(), mainQueue))
	url := f.startPosts("200")
	var posting sync.WaitGroup
	var next, unsure atomic.Int64
	half := make(chan struct{})
	for range 50 {
		posting.Go(func() {
			for n := next.Add(1); n <= int64(posts); n = next.Add(1) {
				if n == int64(posts)/2 {
					close(half)
				}
				for status := 0; status != http.StatusAccepted; {
					id := fmt.Sprint("r", n-1)
					status, _, err = post(t.Context(), url, strings.NewReader(id), "Content-Type", "text/plain",
						"Idempotency-Key", id, "X-Functions-Key", postKey)
					if status != http.StatusAccepted {
						unsure.Add(1)
					}
					if t.Context().Err() != nil {
						return
					}
				}
			}
		})
	}
	<-half
	f.must(server.Stop())
	storage.Sleep(t.Context(), outage)
	f.must(server.Restart(t.Context()))
	posting.Wait()
	f.await("every post to be delivered", func() bool { return f.delivered(posts) })
	for n := range posts {
		id := fmt.Sprint("r", n)
		for _, call := range f.target.Calls(id) {
			if string(call.Body) != id {
				t.Fatalf("%s was called with %q", id, call.Body)
			}
		}
	}
	t.Logf("%d answers were not 202", unsure.Load())
}
