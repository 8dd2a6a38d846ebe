package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// received is what an invocation says, read as the contract has it.
type received struct {
	Data     struct{ Message string }
	Metadata struct {
		DequeueCount, ID, AsyncCaller string
		Call                          struct{ URL, Body string }
		Sys                           struct{ MethodName string }
	}
}

func TestInvocation(t *testing.T) {
	const url = "http://127.0.0.1:1/orders"
	for _, m := range []mode{modeBinary, modeText} {
		for _, kib := range []int{1, 48} {
			t.Run(fmt.Sprintf("%s_%d", m, kib), func(t *testing.T) {
				var got received
				if err := json.Unmarshal(invocation(url, contentBytes(kib), m, time.Now()), &got); err != nil {
					t.Fatal(err)
				}
				content := []byte(got.Data.Message)
				var err error
				if m == modeText {
					var text string
					err = json.Unmarshal(content, &text)
					content = []byte(text)
				} else {
					content, err = base64.StdEncoding.DecodeString(got.Data.Message)
				}
				if err != nil {
					t.Fatal(err)
				}
				if len(content) != contentBytes(kib) {
					t.Errorf("content of %d bytes, want %d", len(content), contentBytes(kib))
				}
				var envelope struct{ Call struct{ URL, Body string } }
				if err := json.Unmarshal(content, &envelope); err != nil || envelope.Call.URL != url || envelope.Call.Body != newBody(url, contentBytes(kib)) {
					t.Errorf("%v, call to %q", err, envelope.Call.URL)
				}
				// The host copies a text's members, and no others.
				if copied := got.Metadata.Call.Body == envelope.Call.Body; copied != (m == modeText) {
					t.Errorf("call in Metadata: %v", copied)
				}
				if got.Metadata.DequeueCount != "1" || got.Metadata.Sys.MethodName != m.function() {
					t.Errorf("metadata %+v", got.Metadata)
				}
			})
		}
	}
}

func TestRequest(t *testing.T) {
	body := []byte(`{"Data":{}}`)
	whole, at := request(modeText, body, sizes{call: 12, put: 34})
	copy(whole[at:], strings.Repeat("f", idLength))
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(whole)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r.Body)
	if err != nil || !bytes.Equal(got, body) {
		t.Errorf("body %q, %v", got, err)
	}
	if id := r.Header.Get("X-Azure-Functions-InvocationId"); id != strings.Repeat("f", idLength) {
		t.Errorf("id %q does not stand where request says", id)
	}
	if r.Header.Get(callHeader) != "12" || r.Header.Get(putHeader) != "34" {
		t.Errorf("the floor is not told how much to send: %v", r.Header)
	}
	if r.URL.Path != "/AC-text" || r.Method != http.MethodPost {
		t.Errorf("%s %s", r.Method, r.URL.Path)
	}
}

func TestContentBytes(t *testing.T) {
	for kib, want := range map[int]int{1: 1 << 10, 48: 45 << 10} {
		if got := contentBytes(kib); got != want {
			t.Errorf("%d KiB: %d, want %d", kib, got, want)
		}
	}
}
