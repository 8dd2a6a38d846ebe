package queue_test

import (
	"bytes"
	stdlib "encoding/base64"
	"strings"
	"testing"

	"github.com/segmentio/asm/base64"

	"asynccaller/handler/internal/queue"
)

// FuzzBase64 holds the library that decodes and encodes what is on its way to encoding/base64: it is written
// for the processor, with no bounds that the language checks.
func FuzzBase64(f *testing.F) {
	for _, n := range []int{0, 1, 2, 3, 23, 24, 25, 31, 32, 33, 45, 48, 63, 64, 65, 96, 97, 1000} {
		f.Add([]byte(stdlib.StdEncoding.EncodeToString(bytes.Repeat([]byte{0x5a}, n))))
		f.Add([]byte(strings.Repeat("A", n)))
	}
	long := strings.Repeat("+/Az", 20)
	for _, text := range []string{long + "A", long + "AA==", long + "AA=A", long + "\r\n" + long, "=" + long, long[:50] + "-_" + long, long[:37] + "\xff" + long, long + "\x00AAA"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if got, want := queue.Base64.Encode(text), stdlib.StdEncoding.EncodeToString(text); got != want {
			t.Errorf("encoded %q, want %q", got, want)
		}
		want, wantErr := stdlib.StdEncoding.DecodeString(string(text))
		if got, err := base64.StdEncoding.DecodeString(string(text)); (err == nil) != (wantErr == nil) || err == nil && !bytes.Equal(got, want) {
			t.Errorf("decoded %q, %v, want %q, %v", got, err, want, wantErr)
		}
		const canary = 64
		room := base64.StdEncoding.DecodedLen(len(text))
		memory := bytes.Repeat([]byte{0xc5}, room+canary)
		n, err := base64.StdEncoding.Decode(memory[:room:room], text)
		if (err == nil) != (wantErr == nil) || err == nil && !bytes.Equal(memory[:n], want) {
			t.Errorf("decoded %q, %v, want %q, %v", memory[:n], err, want, wantErr)
		}
		if !bytes.Equal(memory[room:], bytes.Repeat([]byte{0xc5}, canary)) {
			t.Error("decoding wrote beyond its memory")
		}
	})
}
