package storage_test

import (
	"bytes"
	"strings"
	"testing"

	"asynccaller/handler/internal/storage"
)

func TestValidID(t *testing.T) {
	for id, want := range map[string]bool{
		"550e8400-e29b-41d4-a716-446655440000": true, "550E8400": true, "m": true, strings.Repeat("a", 64): true,
		"": false, "-": false, "--all": false, strings.Repeat("a", 65): false, "a b": false, "a\n": false, "a_b": false,
		"a/b": false, "a?": false, "$(x)": false, "å": false, "..": false, "%61": false,
	} {
		if got := storage.ValidID(id); got != want {
			t.Errorf("%q: %t, want %t", id, got, want)
		}
	}
}

func TestValidName(t *testing.T) {
	for name, want := range map[string]bool{
		"async-caller": true, "async-caller-10": true, "123": true, "abc": true, strings.Repeat("a", 63): true,
		"": false, "ab": false, strings.Repeat("a", 64): false, "Async-caller": false, "async--caller": false,
		"-async": false, "async-": false, "async_caller": false, "async.caller": false, "async/caller": false,
		"äsync": false, "async\n": false, "%queue%": false,
	} {
		if got := storage.ValidName(name); got != want {
			t.Errorf("%q: %t, want %t", name, got, want)
		}
	}
}

func TestPoisonName(t *testing.T) {
	longest := strings.Repeat("a", 63-len("-poison"))
	for name, want := range map[string]string{
		"async-caller-1": "async-caller-1-poison", longest: longest + "-poison", "poison": "poison-poison",
		"a-poison-b": "a-poison-b-poison", longest + "a": "", "async-caller-poison": "", "-poison": "", "Async": "",
		"": "", "async-": "",
	} {
		got, ok := storage.PoisonName(name)
		if ok != (want != "") || ok && got != want {
			t.Errorf("PoisonName(%q) = %q, %t; want %q", name, got, ok, want)
		}
	}
}

func TestEncode(t *testing.T) {
	for content, want := range map[string]string{"hello": "aGVsbG8=", "": "", "\x00\xff\xfe": "AP/+"} {
		if got := storage.Base64.Encode([]byte(content)); got != want {
			t.Errorf("%q: %q, want %q", content, got, want)
		}
	}
	if got := storage.None.Encode([]byte("<a>\n🙂")); got != "<a>\n🙂" {
		t.Errorf("without an encoding: %q", got)
	}
}

// TestDecode: the host uses .NET's decoder.
func TestDecode(t *testing.T) {
	for text, want := range map[string]string{
		" aGVs\r\n\tbG8= ": "hello",
		"test":             "\xb5\xeb-", // plain text that happens to be base64
		"\n":               "",
	} {
		if got, err := storage.Base64.Decode(text); err != nil || string(got) != want {
			t.Errorf("Decode(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{
		"aGVsbG8",     // no padding
		"aGVsbG8==",   // too much of it
		"aGVsbG8=x",   // something after it
		"aGVs_G8=",    // the URL alphabet
		"aGVs\u00a08", // white space that the decoder does not ignore
		"{}", "hello, world", "\x00",
	} {
		got, err := storage.Base64.Decode(text)
		if err == nil || !strings.HasPrefix(err.Error(), "not base64: ") {
			t.Errorf("Decode(%q) = %q, %v, want an error that says what is wrong", text, got, err)
		}
	}
}

func TestEncodingMaxContentBytes(t *testing.T) {
	for _, encoding := range []storage.Encoding{storage.Base64, storage.None} {
		limit := encoding.MaxContentBytes()
		if got := len(encoding.Encode(make([]byte, limit))); got > storage.MaxTextBytes {
			t.Errorf("%s: the largest content takes %d bytes, more than %d", encoding, got, storage.MaxTextBytes)
		}
		if got := len(encoding.Encode(make([]byte, limit+1))); got <= storage.MaxTextBytes {
			t.Errorf("%s: content of %d bytes still fits", encoding, limit+1)
		}
	}
}

func FuzzEncoding(f *testing.F) {
	for _, seed := range []string{"", "x", "test", "\x00\xff", "<&>\r\n 🙂", strings.Repeat("long ", 100)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, encoding := range []storage.Encoding{storage.Base64, storage.None} {
			text := encoding.Encode(content)
			got, err := encoding.Decode(text)
			if err != nil || !bytes.Equal(got, content) {
				t.Errorf("%s: Decode(%q) = %q, %v; want %q", encoding, text, got, err, content)
			}
			if fits := len(content) <= encoding.MaxContentBytes(); fits != (len(text) <= storage.MaxTextBytes) {
				t.Errorf("%s: %d bytes of content, %d of text, which MaxContentBytes does not expect",
					encoding, len(content), len(text))
			}
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"", "aGVsbG8=", " aGVs\nbG8=", "aGVsbG8", "===="} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		content, err := storage.Base64.Decode(text)
		if err != nil {
			return
		}
		again, err := storage.Base64.Decode(storage.Base64.Encode(content))
		if err != nil || !bytes.Equal(again, content) {
			t.Errorf("%q holds %q, which decodes to %q, %v", text, content, again, err)
		}
	})
}
