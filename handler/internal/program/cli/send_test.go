package cli

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/operate/send"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// distant is a store that takes a second for each message, the later ones of ten less.
type distant struct{ *memory.Queues }

func (d distant) Put(ctx context.Context, name string, item storage.Item) (storage.Message, error) {
	<-time.After(time.Second - time.Duration(len(item.Text)%10)*50*time.Millisecond)
	return d.Queues.Put(ctx, name, item)
}

// TestSendManyInParallel: a file of many envelopes does not wait for storage one by one, and the ids come in its order.
func TestSendManyInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 160
		var file, want strings.Builder
		for i := range n {
			fmt.Fprintf(&file, `{"asyncCaller":1,"requestId":"r%d","call":{"url":"https://t.example/%s"}}`+"\n",
				i, strings.Repeat("x", i%7))
			fmt.Fprintf(&want, "r%d\n", i)
		}
		var stdout, stderr bytes.Buffer
		env := Env{Stdin: strings.NewReader(file.String()), Stderr: &stderr, out: &output{Writer: &stdout}}
		store := distant{memory.New()}
		began := time.Now()
		if err := new(sendOptions).sendFile(t.Context(), env, &send.Sender{Store: store, Encoding: storage.Base64},
			"-"); err != nil {
			t.Fatal(err)
		}
		if stdout.String() != want.String() {
			t.Errorf("got %s, want the ids in the order of the file", stdout.String())
		}
		if took := time.Since(began); took > n*time.Second/8 {
			t.Errorf("it took %v", took)
		}
		if count, err := store.Count(t.Context(), "async-caller"); count != n {
			t.Errorf("%d messages on the queue, error %v", count, err)
		}
	})
}

// TestSendInterrupted: what was begun before Ctrl-C is completed and printed, so that nobody sends it again.
func TestSendInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := strings.Repeat(`{"asyncCaller":1,"call":{"url":"https://t.example/"}}`+"\n", 500)
		var stdout, stderr bytes.Buffer
		env := Env{Stdin: strings.NewReader(file), Stderr: &stderr, out: &output{Writer: &stdout}}
		store := distant{memory.New()}
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(1500*time.Millisecond, interrupt)
		err := new(sendOptions).sendFile(ctx, env, &send.Sender{Store: store, Encoding: storage.Base64}, "-")
		count, countErr := store.Count(t.Context(), "async-caller")
		if printed := strings.Count(stdout.String(), "\n"); countErr != nil || count == 0 || count == 500 ||
			printed != count {
			t.Errorf("%d ids for %d messages on the queue, error %v", printed, count, countErr)
		}
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("interrupted after %d envelopes", count)) {
			t.Errorf("got %v", err)
		}
	})
}
