package e2e_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"asynccaller/handler/tools/storageproxy"
)

// foreignAnswers are those of another server than storage, without passing the request on.
var foreignAnswers = []storageproxy.Order{
	{Status: 200, Body: "<html><body>Sign in<br></body></html>"},
	{Status: 200},
	{Status: 201},
	{Status: 204},
	{Status: 302, Header: http.Header{"Location": {"http://127.0.0.1:1/elsewhere"}}},
	{Status: 400},
	{Status: 401},
	{Status: 403},
	{Status: 404},
	{Status: 407},
	{Status: 409},
	{Status: 502},
}

// inTheWay answers the first write of message rN with the Nth foreign answer.
type inTheWay struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (i *inTheWay) Before(r storageproxy.Request) storageproxy.Order {
	content, _ := base64.StdEncoding.DecodeString(r.Text)
	var envelope struct{ RequestID string }
	isWrite := r.Operation == storageproxy.Put || r.Operation == storageproxy.Update
	if !isWrite || json.Unmarshal(content, &envelope) != nil {
		return storageproxy.Order{}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for n, order := range foreignAnswers {
		if id := fmt.Sprint("r", n); id == envelope.RequestID && !i.seen[id] {
			i.seen[id] = true
			return order
		}
	}
	return storageproxy.Order{}
}

func (*inTheWay) After(storageproxy.Request, storageproxy.Answer) storageproxy.Order {
	return storageproxy.Order{}
}

// TestForeignAnswers checks that a proxy that answers a settling write in the place of storage costs no message and no
// second call.
func TestForeignAnswers(t *testing.T) {
	t.Parallel()
	for name, env := range map[string][]string{"enqueue": nil, "update": inUpdateMode} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{azurite: true})
			watcher := &inTheWay{seen: map[string]bool{}}
			proxy, err := storageproxy.Open(t.Context(), f.endpoint, watcher)
			f.must(err)
			t.Cleanup(proxy.Close)
			for n := range foreignAnswers {
				f.put(fmt.Sprint("r", n), "503,200", `,"retry":{"schedule":["1s"]}`)
			}
			f.start(append([]string{connection(proxy.Through(f.connectionString))}, env...))
			f.await("the last call", func() bool { return f.delivered(len(foreignAnswers)) })
			f.awaitEmpty()
			f.stopAndCount(map[string]float64{"failed": 0, "poisoned": 0})
			if n := f.count(poisonQueue); n > 0 {
				t.Errorf("%d messages in the poison queue", n)
			}
			for n, order := range foreignAnswers {
				if calls := f.target.Calls(fmt.Sprint("r", n)); len(calls) != 2 || !watcher.seen[fmt.Sprint("r", n)] {
					t.Errorf("%d instead: %d calls", order.Status, len(calls))
				}
			}
		})
	}
}
