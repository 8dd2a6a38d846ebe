package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"asynccaller/handler/internal/storage/emulator"
	"asynccaller/handler/tools/storageproxy"
)

// puts interferes with the answers to the puts of a proxy, by their numbers from 1.
type puts struct {
	after func(n int64) storageproxy.Order
	n     atomic.Int64
}

func (*puts) Before(storageproxy.Request) storageproxy.Order { return storageproxy.Order{} }

func (p *puts) After(r storageproxy.Request, a storageproxy.Answer) storageproxy.Order {
	if r.Operation != storageproxy.Put || !a.Done() {
		return storageproxy.Order{}
	}
	return p.after(p.n.Add(1))
}

// sending is an app folder with a route, and an account behind a proxy.
type sending struct {
	t      *testing.T
	server *emulator.Server
	env    Env
	folder string
	// stdout and stderr are of the latest command.
	stdout, stderr bytes.Buffer
}

func startSending(t *testing.T, watcher storageproxy.Watcher) *sending {
	t.Helper()
	server, err := emulator.Start(context.Background(), emulator.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	proxy, err := storageproxy.Open(context.Background(), server.QueueEndpoint, watcher)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	s := &sending{t: t, server: server, folder: t.TempDir()}
	s.env = Env{
		Environ: []string{"AzureWebJobsStorage=" + proxy.Through(server.ConnectionString)},
		Stdin:   strings.NewReader(""), Stdout: &s.stdout, Stderr: &s.stderr,
	}
	s.write("routes.json", `{"orders-in":{"url":"https://shop.example/orders"},`+
		`"events-in":{"url":"https://shop.example/events","cloudevents":true}}`)
	return s
}

func (s *sending) write(name, content string) string {
	s.t.Helper()
	path := filepath.Join(s.folder, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

func (s *sending) run(args ...string) (code int) {
	s.t.Helper()
	s.stdout.Reset()
	s.stderr.Reset()
	return Run(s.t.Context(), append([]string{"send", "--app", s.folder}, args...), s.env)
}

// TestSendLost: after a lost answer the command says that it does not know, and how to send again with the same id.
func TestSendLost(t *testing.T) {
	t.Parallel()
	envelopes := ""
	for i := range 3 {
		envelopes += fmt.Sprintf(`{"asyncCaller":1,"requestId":"r%d","call":{"url":"https://t.example/"}}`+"\n", i)
	}
	for name, test := range map[string]struct {
		args   []string
		stdout string // its end
		stderr []string
		lost   func(n int64) bool
		order  *storageproxy.Order
		isFile bool
	}{
		"one": {
			args:   []string{"--url", "https://t.example/?C4nary", "--request-id", "it's"},
			stderr: []string{"perhaps sent: request id it's: ", "repeat the command with `--request-id 'it'\\''s'`"},
		},
		"one_json": {
			args:   []string{"--url", "https://t.example/", "--request-id", "r", "--json"},
			stdout: `"perhapsSent":true}` + "\n",
			stderr: []string{"perhaps sent: request id r: "},
		},
		"gateway": {
			args: []string{"--url", "https://t.example/", "--request-id", "r"}, order: &storageproxy.Order{Status: 502},
			stderr: []string{"perhaps sent: request id r: ", "502 Bad Gateway"},
		},
		"content": {
			args:   []string{"--queue", "orders-in", "--body", "C4nary"},
			stderr: []string{"perhaps sent: put on queue orders-in", "the request id is that of the message, and unk"},
		},
		"event": {
			args: []string{"--queue", "events-in", "--body", `{"specversion":"1.0","id":"e1","source":"s","type":"t"}`},
			stderr: []string{
				"perhaps sent: request id e1", "to send it again, repeat the command: the Idempotency-Key",
			},
		},
		"some_of_a_file": {
			isFile: true, lost: func(n int64) bool { return n == 2 },
			stderr: []string{
				"sent 2 envelopes to", "perhaps sent: request id r", "1 envelope perhaps sent: to send it again",
			},
		},
		"all_of_a_file": {
			isFile: true, stderr: []string{"perhaps sent: request id r0", "request id r1", "request id r2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSending(t, &puts{after: func(n int64) storageproxy.Order {
				if test.lost != nil && !test.lost(n) {
					return storageproxy.Order{}
				}
				if test.order != nil {
					return *test.order
				}
				return storageproxy.Order{Reset: true}
			}})
			args := test.args
			if test.isFile {
				args = []string{s.write("some.jsonl", envelopes)}
			}
			if code := s.run(args...); code != exitPartly {
				t.Errorf("exit code %d", code)
			}
			for _, want := range test.stderr {
				if strings.Count(s.stderr.String(), want) != 1 {
					t.Errorf("want %q once: %s", want, &s.stderr)
				}
			}
			if strings.Contains(s.stderr.String(), "C4nary") {
				t.Errorf("a secret: %s", &s.stderr)
			}
			stdout := s.stdout.String()
			if !strings.HasSuffix(stdout, test.stdout) || !test.isFile && test.stdout == "" && stdout != "" {
				t.Errorf("printed %s", stdout)
			}
		})
	}
}
