package world

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// postFunction takes posts for the route.
const postFunction = "AC-in-" + routedQueue

// hasHost reports whether there are hosts: workers take no posts.
func (w *World) hasHost() bool {
	return slices.ContainsFunc(w.instances, func(i instancePlan) bool { return !i.isWorker })
}

// post posts the content of a message to any host, until one has accepted it. An answer other than 202, or none, does
// not say that no message was written.
func (w *World) post(m *message) {
	const claims = "http://schemas.microsoft.com/2017/07/functions/claims/"
	body := encoded(map[string]any{
		"Data": map[string]any{"req": map[string]any{
			"Method": http.MethodPost, "Body": string(m.content), "Query": map[string]string{"code": secretMark},
			"Headers": map[string][]string{
				"Content-Type": {"text/plain"}, "Content-Length": {strconv.Itoa(len(m.content))},
				"X-Functions-Key": {secretMark}, "Cookie": {secretMark}, "Idempotency-Key": {m.id},
			},
			"Identities": []any{map[string]any{"AuthenticationType": "WebJobsAuthLevel", "Claims": []any{
				map[string]string{"Type": claims + "authlevel", "Value": "Function"},
			}}},
		}},
		"Metadata": map[string]any{},
	})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for w.until(w.now() + 2*time.Second) {
		handler, p := w.anyHandler()
		if handler == nil {
			continue
		}
		var answer struct {
			Outputs struct {
				Res struct {
					StatusCode int
					Body       string
				}
			}
		}
		if got := request(ctx, handler, p, postFunction, body); got != nil {
			_ = json.Unmarshal(got.Body.Bytes(), &answer)
		}
		var accepted struct{ MessageID string }
		_ = json.Unmarshal([]byte(answer.Outputs.Res.Body), &accepted)
		w.tell("sender", "%s: posted to %s, answered %d", m.token, p.name, answer.Outputs.Res.StatusCode)
		w.mu.Lock()
		if answer.Outputs.Res.StatusCode == http.StatusAccepted {
			w.note(m.token, fact{kind: sent, by: "sender", id: accepted.MessageID, queue: m.queue})
			if w.items[accepted.MessageID] == nil {
				w.brokenLocked("docs/http.md: %s: 202 for a message that was not written", m.token)
			}
			w.mu.Unlock()
			return
		}
		w.ledger(m.token).unsure++
		w.mu.Unlock()
	}
}

// anyHandler returns the handler of a host that runs; nil if there is none.
func (w *World) anyHandler() (http.Handler, *process) {
	w.mu.Lock()
	var hosts []*hosting
	for _, name := range slices.Sorted(maps.Keys(w.hostings)) {
		hosts = append(hosts, w.hostings[name])
	}
	w.mu.Unlock()
	for _, h := range hosts {
		h.mu.Lock()
		handler, p := h.handler, h.running
		h.mu.Unlock()
		if handler != nil {
			return handler, p
		}
	}
	return nil, nil
}
